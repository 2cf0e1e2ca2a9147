#!/usr/bin/env bash
# SQuAD's JSON -> a folder for fairseq-train. `squad.sh --help` lists the options; README.md tells what they do.
# PYTHON names the interpreter that has fairseq and sentencepiece (default: python3).
set -euo pipefail
exec "${PYTHON:-python3}" "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/squad.py" "$@"
