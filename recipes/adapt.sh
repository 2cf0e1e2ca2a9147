#!/usr/bin/env bash
# Continues a Hugging Face RoBERTa on your own text, and exports it; `adapt.sh --help` lists the options.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
become "$recipes/adapt.py" "$@"
