#!/usr/bin/env bash
# Raw text -> a folder for fairseq-train. `prepare.sh --help` lists the options; README.md tells what they do.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/run.sh"
run_program prepare.py "$@"
