#!/usr/bin/env bash
# Fine-tunes on words with tags, as in CoNLL; `finetune_tagging.sh --help` lists the options.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
become "$recipes/finetune.py" mae_lm_tokens "$@"
