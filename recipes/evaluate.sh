#!/usr/bin/env bash
# Evaluates pretrained encoders by linear probes of frozen features; `evaluate.sh --help` lists the options.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
become "$recipes/evaluate.py" "$@"
