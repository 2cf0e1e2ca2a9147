#!/usr/bin/env bash
# Pretrains MAE-LM base: 12 layers, width 768, on 16 GB of text (Wikipedia and BookCorpus).
#
# Settings: of several sources, which docs/pretraining.md names; no release of the authors states those of base.
# Data: uncased, 32,768 BPE pieces (data-prep/prepare.sh --lowercase --vocab-size 32768).
# With --relative-position-buckets t5, Hugging Face's MPNet classes can hold the encoder exactly.
# Makes 125,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# Memory, simulated: 6.0, 9.4 or 16.1 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 32 should
# fit a GPU of 16 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
