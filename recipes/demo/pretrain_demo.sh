#!/usr/bin/env bash
# Pretrains a small MAE-LM on the CPU: 2 layers, width 256, on a few megabytes of text; part of `make demo`.
#
#   recipes/demo/pretrain_demo.sh --gpus 0 --data DIR --save-dir DIR
#
# 1,500 updates of 32 sequences of 64 tokens, or as many as four and a half minutes allow. The settings differ from the
# method's where that helps to learn from little text: many small updates, 30% predicted tokens, the encoder's layers in
# place of a decoder of its own, and heads that start by attending to neighbours. T5's buckets let Hugging Face's MPNet
# hold the encoder.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

effective_batch=32
batch_size=32
settings=(
  --arch mae_lm_tiny --encoder-layers 2 --share-decoder-layers --decoder-layers 2
  --relative-position-local-init --relative-position-buckets t5
  --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4
  --dropout 0 --attention-dropout 0 --max-positions 64 --bf16-autocast
  --tokens-per-sample 64 --sample-break-mode complete_doc --mask-prob 0.3
  --lr 1e-3 --warmup-updates 200 --total-num-update 1500 --max-update 1500 --stop-time-hours 0.075
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
  --log-interval 100 --save-interval-updates 500 --keep-interval-updates 1 --num-workers 0 --batch-size-valid 64
)
pretrain "$@"
