#!/usr/bin/env bash
# Raw text -> a folder for fairseq-train. `prepare.sh --help` lists the options; README.md explains them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/run.sh"
run_program prepare.py "$@"
