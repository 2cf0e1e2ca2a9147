#!/usr/bin/env bash
# Pretrains a small MAE-LM on the CPU: 4 layers, width 256, on a few megabytes of text. `make demo` runs it.
#
#   recipes/pretrain_demo.sh --gpus 0 --data DIR --save-dir DIR

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

effective_batch=64
batch_size=32
settings=(
  --arch mae_lm_tiny --encoder-layers 4 --decoder-layers 1
  --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4
  --dropout 0 --attention-dropout 0 --max-positions 128
  --tokens-per-sample 128 --sample-break-mode complete_doc --mask-prob 0.15
  --lr 1e-3 --warmup-updates 100 --total-num-update 1500 --max-update 1500
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
  --log-interval 50 --save-interval-updates 150 --keep-interval-updates 1
)
pretrain "$@"
