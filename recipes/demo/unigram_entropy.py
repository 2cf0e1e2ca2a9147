#!/usr/bin/env python3
"""Prints the loss, in bits a token, of a model that knows only how frequent each token is.

It is the cross-entropy of the validation tokens under the token frequencies of the training data, in the units of
the loss that fairseq logs: a model that has learned nothing but frequencies ends there.
"""

import argparse
import logging
import os

import numpy as np


def token_counts(prefix, dictionary):
    """How often each symbol occurs in binarized data; blank lines, which only separate documents, are not counted."""
    from fairseq.data import data_utils

    lines = data_utils.load_indexed_dataset(prefix, dictionary, "mmap")
    if lines is None:
        raise FileNotFoundError("{}.idx: not found; --data takes a folder of binarized data".format(prefix))
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
    """Bits a token of counts `valid` (N,) under the frequencies of counts `train` (N,), each count one higher."""
    bits = -np.log2((train + 1) / (train.sum() + len(train)))
    return float((valid * bits).sum() / valid.sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of binarized data, with dict.txt")
    parser.add_argument("--train-subset", default="train")
    parser.add_argument("--valid-subset", default="valid")
    args = parser.parse_args()

    logging.disable(logging.INFO)
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(os.path.join(args.data, "dict.txt"))
    train, valid = (
        token_counts(os.path.join(args.data, subset), dictionary) for subset in (args.train_subset, args.valid_subset)
    )
    print("{:.3f}".format(unigram_entropy(train, valid)))


if __name__ == "__main__":
    main()
