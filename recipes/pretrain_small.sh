#!/usr/bin/env bash
# Pretrains a small encoder on the CPU: 2 layers, width 256, on ten megabytes of text or more, in an hour on two fast
# cores.
#
#   recipes/pretrain_small.sh --gpus 0 --data DIR --save-dir DIR/64
#   recipes/pretrain_small.sh --gpus 0 --data DIR --save-dir DIR/128 --finetune-from-model DIR/64/checkpoint_last.pt \
#     --tokens-per-sample 128 --batch-size 32 --lr 5e-4 --updates 500 --encoder-mask-fade-updates 0
#
# First 18,000 updates of 64 sequences of 64 tokens; then 500 updates with 128 tokens, to train positions 65 to 128.
# Expected loss, on 32 MB of film reviews with 8,000 pieces: 6.6 bits after 500 updates, 5.5 after 3,000 and 4.7 at the
# end, where token frequencies alone give 9.7. With --updates 9000, it takes half of the time, and ends at about 4.9
# bits; with --updates 3000, a sixth of the time, and about 5.4 bits (experiments/SMALL.md).
# The settings differ from the method's where that helps to learn from little text: short sequences, a high learning
# rate, 30% predicted tokens, 80/10/10 corruption, the encoder's layers in place of a decoder of its own, heads that
# start by attending to neighbours, embeddings that start from co-occurrence, and masks that fade over the first 500
# updates, without which deeper models stay at token frequencies. So the encoder also reads masks at first, and random
# tokens to the end. T5's buckets let Hugging Face's MPNet classes load the encoder. Why: docs/pretraining.md,
# experiments/SMALL.md and experiments/RESULTS.md.
# For MAE-LM with a decoder of its own and masks alone, add --no-share-decoder-layers --decoder-relative-bias
# --leave-unmasked-prob 0 --random-token-prob 0; the other differences stay. For an MLM, add --encoder-mask-fraction 1
# --decoder-layers 0 --encoder-mask-fade-updates 0.

. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
pretrain "$@"
