#!/usr/bin/env bash
# Pretrains MAE-LM base: 12 layers, width 768, on 16 GB of text (Wikipedia and BookCorpus).
#
# Settings: of several sources, which docs/pretraining.md names; no release of the authors states those of base.
# Data: uncased, 32,768 BPE pieces (data-prep/prepare.sh --lowercase --vocab-size 32768).
# With --relative-position-buckets t5, Hugging Face's MPNet classes can hold the encoder exactly.
# Makes 125,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# Memory: as many sequences at a time as fit the GPU, by a formula (maelm_fairseq/runs/gpu_memory.py): 32 sequences on 16 GB, 64 on 40, 256 on 80.
# If one runs out of memory, run it again with a smaller --batch-size: it resumes. Time and expected loss: not measured.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
