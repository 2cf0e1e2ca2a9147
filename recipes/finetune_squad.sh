#!/usr/bin/env bash
# Fine-tunes on questions, as in SQuAD; `finetune_squad.sh --help` lists the options.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
use_environment
exec python "$recipes/finetune.py" squad "$@"
