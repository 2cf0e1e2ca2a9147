#!/usr/bin/env python3
"""Compares the last validation loss in a recipe's train.log with that of a model that knows only token frequencies.

See recipes/demo/demo.sh.
"""

import os
import sys

import numpy as np

from maelm_fairseq.base.errors import MissingFileError, Parser, UsageError, run
from show_progress import logged


def unigram_entropy(data):
    """The cross-entropy, in bits, of the validation tokens under the token frequencies of the training data."""
    from fairseq.data import Dictionary, data_utils  # after the plugin, which keeps fairseq's import quiet

    dictionary, counts = Dictionary.load(os.path.join(data, "dict.txt")), []
    for split in ["train", "valid"]:
        lines = data_utils.load_indexed_dataset(os.path.join(data, split), dictionary, "mmap")
        # Blank lines only separate documents.
        tokens = np.concatenate([lines[index].numpy() for index in np.flatnonzero(lines.sizes > 1)])
        counts.append(np.bincount(tokens, minlength=len(dictionary)))
    train, valid = counts
    bits = -np.log2((train + 1) / (train.sum() + len(train)))
    return float((valid * bits).sum() / valid.sum())


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("log", help="train.log of a recipe, or the output of fairseq-train --log-format json")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of binarized data, with its dict.txt")
    parser.add_argument("--margin", type=float, default=0, metavar="BITS", help="fail unless the loss is so far below")
    args = parser.parse_args()

    for path in [args.log, os.path.join(args.data, "dict.txt")]:
        if not os.path.isfile(path):
            raise MissingFileError(f"{path}: not found, expected the log of a recipe, and the data that it trained on")
    with open(args.log, encoding="utf-8") as log:
        validations = logged(log, "valid_num_updates")
    if not validations:
        raise UsageError(f"{args.log}: no validation loss found; expected a log written with --log-format json")
    update, loss = int(validations[-1]["valid_num_updates"]), float(validations[-1]["valid_loss"])
    entropy = unigram_entropy(args.data)
    print(f"validation loss after {update:,} updates: {loss:.3f} bits per predicted token")
    print(f"unigram entropy of the same text: {entropy:.3f} bits per token")
    if entropy - loss < args.margin:
        sys.exit(f"the loss is not {args.margin} bits below the unigram entropy: the model has not learned")


if __name__ == "__main__":
    run(main)
