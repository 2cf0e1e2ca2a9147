#!/usr/bin/env bash
# Which encoder has the better features? `compare.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/../recipes/lib.sh"
become "$(dirname "${BASH_SOURCE[0]}")/compare.py" "$@"
