#!/usr/bin/env bash
# Probes checkpoints within runs, and MAE-LM's decoder. `probe_checkpoints.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
become "$(dirname "${BASH_SOURCE[0]}")/probe_checkpoints.py" "$@"
