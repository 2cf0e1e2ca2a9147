#!/usr/bin/env bash
# Pretrains MAE-LM base: 12 layers, width 768, on 16 GB of text (Wikipedia and BookCorpus).
#
#   recipes/pretrain_base.sh --data DIR --save-dir DIR
#
# Data: uncased, 32,768 BPE pieces (data-prep/prepare.sh --lowercase --vocab-size 32768).
# With --relative-position-buckets t5, Hugging Face's MPNet classes can hold the encoder exactly.
# 125,000 updates of 2,048 sequences of 512 tokens, on any number of GPUs that divides 2,048.
# Memory, simulated: 6.0, 9.4 or 16.1 GiB with --batch-size 16, 32 or 64, plus about 15% and 1.5 GiB, so that 32 should
# fit a GPU of 16 GB (benchmarks/RESULTS.md). Time and expected loss: not measured.

. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

effective_batch=2048
batch_size=32
settings=(
  --arch mae_lm_base --decoder-layers 4
  --relative-position-num-buckets 32 --relative-position-max-distance 128
  --dropout 0.1 --attention-dropout 0.1
  --tokens-per-sample 512 --sample-break-mode complete_doc --mask-prob 0.15
  --lr 5e-4 --warmup-updates 10000 --total-num-update 125000 --max-update 125000
  --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 2.0
)
pretrain "$@"
