#!/usr/bin/env bash
# Which encoder has the better features? `compare.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
use_environment # programs here import those of recipes/
exec python "$(dirname "${BASH_SOURCE[0]}")/compare.py" "$@"
