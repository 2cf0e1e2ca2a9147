#!/usr/bin/env bash
# Pretrains MAE-LM large++: 24 layers, width 1024, on 160 GB of text.
#
# Settings: sizes from the authors' code, the learning rate ours, the rest as for base++ (docs/pretraining.md).
# Data: cased, 64,000 BPE pieces, in shards (data-prep/prepare.sh --vocab-size 64000 --shards 64).
# Makes 2,000,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# Memory, simulated: 15.6, 23.2 or 38.5 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 16 should
# fit a GPU of 24 GB, and 32 one of 40 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
