#!/usr/bin/env bash
# GLUE, or tasks of your own -> folders for fairseq-train. `glue.sh --help` lists the options; README.md explains them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/run.sh"
run_program glue.py "$@"
