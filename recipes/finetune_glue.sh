#!/usr/bin/env bash
# Fine-tunes on a GLUE task, or on data of that form; `finetune_glue.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/finetune_glue.py" "$@"
