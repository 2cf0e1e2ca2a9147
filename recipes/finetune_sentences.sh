#!/usr/bin/env bash
# Fine-tunes on sentences or pairs, as in GLUE; `finetune_sentences.sh --help` lists the options.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
become "$recipes/finetune.py" mae_lm_sentences "$@"
