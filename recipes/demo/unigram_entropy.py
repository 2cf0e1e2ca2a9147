#!/usr/bin/env python3
"""Prints the loss, in bits per token, of a model that knows only token frequencies.

It is the cross-entropy of the validation tokens under the token frequencies of the training data, in the same units as
the loss that fairseq logs.
"""

import argparse
import os

import numpy as np

from maelm_fairseq.errors import MissingFileError, Parser, run


def token_counts(prefix, dictionary):
    """The count of each symbol in binarized data, without blank lines, which only separate documents.

    Args:
        prefix: path of the data, without .bin or .idx
        dictionary: fairseq's
    Returns:
        int64 array (len(dictionary),)
    """
    from fairseq.data import data_utils  # after the plugin, which keeps fairseq's import quiet

    lines = data_utils.load_indexed_dataset(prefix, dictionary, "mmap")
    if lines is None:
        raise MissingFileError(f"{prefix}.idx: not found; --data takes a folder of binarized data")
    counts = np.zeros(len(dictionary), dtype=np.int64)
    some = []
    for index in np.flatnonzero(lines.sizes > 1):
        some.append(lines[index].numpy())
        if len(some) == 10000:
            counts += np.bincount(np.concatenate(some), minlength=len(counts))
            some = []
    if some:
        counts += np.bincount(np.concatenate(some), minlength=len(counts))
    return counts


def unigram_entropy(train, valid):
    """The cross-entropy, in bits per token, of counts `valid` (N,) under counts `train` (N,) with add-one smoothing."""
    bits = -np.log2((train + 1) / (train.sum() + len(train)))
    return float((valid * bits).sum() / valid.sum())


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of binarized data, with its dict.txt")
    parser.add_argument("--train-subset", default="train")
    parser.add_argument("--valid-subset", default="valid")
    args = parser.parse_args()

    from fairseq.data import Dictionary

    dictionary = Dictionary.load(os.path.join(args.data, "dict.txt"))
    train, valid = (
        token_counts(os.path.join(args.data, subset), dictionary) for subset in (args.train_subset, args.valid_subset)
    )
    print("{:.3f}".format(unigram_entropy(train, valid)))


if __name__ == "__main__":
    run(main)
