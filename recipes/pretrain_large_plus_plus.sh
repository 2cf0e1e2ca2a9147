#!/usr/bin/env bash
# Pretrains MAE-LM large++: 24 layers, width 1024, on 160 GB of text.
#
#   recipes/pretrain_large_plus_plus.sh --data DIR:DIR:... --save-dir DIR
#
# Data: cased, 64,000 BPE pieces, in shards (data-prep/prepare.sh --vocab-size 64000 --shards 64).
# 2,000,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# Memory, simulated: 15.6, 23.2 or 38.5 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 16 should
# fit a GPU of 24 GB, and 32 one of 40 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

effective_batch=2048
batch_size=16
settings=(
  --arch mae_lm_large --decoder-layers 4
  --relative-position-num-buckets 128 --relative-position-max-distance 256
  --dropout 0.1 --attention-dropout 0.1
  --tokens-per-sample 512 --sample-break-mode complete_doc --mask-prob 0.15
  --lr 1e-4 --warmup-updates 10000 --total-num-update 2000000 --max-update 2000000
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
)
pretrain "$@"
