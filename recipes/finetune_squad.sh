#!/usr/bin/env bash
# Fine-tunes on SQuAD 1.1 or 2.0, or on data in the same format; `finetune_squad.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/finetune_squad.py" "$@"
