#!/usr/bin/env bash
# Fine-tunes on questions, as in SQuAD; `finetune_squad.sh --help` lists the options.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
become "$recipes/finetune.py" squad "$@"
