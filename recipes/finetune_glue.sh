#!/usr/bin/env bash
# Fine-tunes on a GLUE task, or on data in the same format; `finetune_glue.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/finetune_glue.py" "$@"
