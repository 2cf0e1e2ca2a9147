#!/usr/bin/env bash
# Pretrains a small MAE-LM on the CPU: 2 layers, width 256, on tens of megabytes of text, in less than half an hour.
#
#   recipes/pretrain_small.sh --gpus 0 --data DIR --save-dir DIR
#
# 6,000 updates of 32 sequences of 128 tokens, or as many as 29 minutes allow. What differs from the method's settings
# serves to learn much from little text: a high rate, 30% predicted, relative positions in the decoder too, and heads that
# begin by looking at neighbours: with BERT's initialisation alone a model as small as this knows nothing but the
# frequency of words for its first thousand updates. RESULTS.md tells what such a checkpoint is worth.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

effective_batch=32
batch_size=32
settings=(
  --arch mae_lm_tiny --encoder-layers 2 --decoder-layers 1 --decoder-relative-bias --relative-position-local-init
  --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-attention-heads 4
  --dropout 0 --attention-dropout 0 --max-positions 128 --bf16-autocast
  --tokens-per-sample 128 --sample-break-mode complete_doc --mask-prob 0.3
  --lr 1e-3 --warmup-updates 300 --total-num-update 6000 --max-update 6000 --stop-time-hours 0.48
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
  --log-interval 100 --save-interval-updates 1000 --keep-interval-updates 1 --num-workers 0 --batch-size-valid 64
)
pretrain "$@"
