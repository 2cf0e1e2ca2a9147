#!/usr/bin/env bash
# Pretrains MAE-LM base++: 12 layers, width 768, on 160 GB of text.
#
# Settings: those of the authors' script, but for what docs/pretraining.md lists.
# Data: cased, 64,000 BPE pieces, in shards (data-prep/prepare.sh --vocab-size 64000 --shards 64).
# Makes 2,000,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# The authors train it on 64 GPUs with 32 sequences each.
# Memory, simulated: 6.9, 10.7 or 18.3 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 32 should
# fit a GPU of 16 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
