#!/usr/bin/env bash
# The paper in miniature; `reproduce.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/miniature/run.py" "$@"
