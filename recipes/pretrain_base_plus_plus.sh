#!/usr/bin/env bash
# Pretrains MAE-LM base++: 12 layers, width 768, on 160 GB of text.
#
#   recipes/pretrain_base_plus_plus.sh --data DIR:DIR:... --save-dir DIR
#
# Data: cased, 64,000 BPE pieces, in shards (data-prep/prepare.sh --vocab-size 64000 --shards 64).
# 2,000,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# The authors train it on 64 GPUs with 32 sequences each.
# Memory, simulated: 6.9, 10.7 or 18.3 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 32 should
# fit a GPU of 16 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

effective_batch=2048
batch_size=32
settings=(
  --arch mae_lm_base --decoder-layers 4
  --relative-position-num-buckets 64 --relative-position-max-distance 128
  --dropout 0.1 --attention-dropout 0.1
  --tokens-per-sample 512 --sample-break-mode complete_doc --mask-prob 0.15
  --lr 2e-4 --warmup-updates 10000 --total-num-update 2000000 --max-update 2000000
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
)
pretrain "$@"
