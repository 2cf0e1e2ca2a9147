#!/usr/bin/env bash
# Evaluates pretrained encoders by linear probes of frozen features; `evaluate.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
become "$recipes/evaluate.py" "$@"
