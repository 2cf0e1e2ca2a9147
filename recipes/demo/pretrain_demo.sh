#!/usr/bin/env bash
# Pretrains a small MAE-LM on the CPU: 2 layers, width 256, on a few megabytes of text; part of `make demo`.
#
# 1,500 updates of 32 sequences of 64 tokens. The settings differ from the
# method's where that helps to learn from little text: many small updates, 30% predicted tokens, the encoder's layers in
# place of a decoder of its own, and heads that start by attending to neighbours. T5's buckets let Hugging Face's MPNet
# hold the encoder.

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
pretrain "$@"
