#!/usr/bin/env bash
# The paper in miniature: the small plan of compare.sh, whose --help lists the options.
exec "$(dirname "${BASH_SOURCE[0]}")/compare.sh" --plan small "$@"
