#!/usr/bin/env bash
# Adds scores to those of the comparison. `later_scores.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
use_environment # programs here import those of recipes/
exec python "$(dirname "${BASH_SOURCE[0]}")/later_scores.py" "$@"
