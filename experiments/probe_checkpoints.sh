#!/usr/bin/env bash
# Probes checkpoints within runs, and MAE-LM's decoder. `probe_checkpoints.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
use_environment # programs here import those of recipes/
exec python "$(dirname "${BASH_SOURCE[0]}")/probe_checkpoints.py" "$@"
