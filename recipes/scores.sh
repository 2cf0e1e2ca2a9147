#!/usr/bin/env bash
# Does MAE-LM score higher than an MLM? `scores.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/scores/compare_scores.py" "$@"
