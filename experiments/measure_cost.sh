#!/usr/bin/env bash
# What an update of each arm of the comparison costs. `measure_cost.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
become "$(dirname "${BASH_SOURCE[0]}")/measure_cost.py" "$@"
