#!/usr/bin/env bash
# Pretrains MAE-LM base++: 12 layers, width 768, on 160 GB of text.
#
# Settings: those of the authors' script, but for what docs/pretraining.md lists.
# Data: cased, 64,000 BPE pieces, in shards (data-prep/prepare.sh --vocab-size 64000 --shards 64).
# Makes 2,000,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# The authors train it on 64 GPUs with 32 sequences each.
# Memory: as many sequences at a time as fit the GPU, by a formula (maelm_fairseq/runs/gpu_memory.py): 32 sequences on 24 GB, 64 on 40, 128 on 80.
# If one runs out of memory, run it again with a smaller --batch-size: it resumes. Time and expected loss: not measured.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
