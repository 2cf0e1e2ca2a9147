#!/usr/bin/env python3
"""Plots the validation loss in a recipe's train.log beside that of a model that knows only token frequencies.

See recipes/demo/demo.sh.
"""

import os
import sys

import numpy as np

from maelm_fairseq.analysis.rank_report import import_pyplot
from maelm_fairseq.engine.errors import MissingFileError, Parser, UsageError, run
from maelm_fairseq.engine.files import atomic_write
from show_progress import logged


def validation_losses(lines):
    """The updates and losses (bits) of a log's validations, in order. Of a repeated update, the last counts."""
    validations = logged(lines, "valid_num_updates")
    return [int(v["valid_num_updates"]) for v in validations], [float(v["valid_loss"]) for v in validations]


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


def draw_png(path, updates, losses, entropy):
    """Draws the losses into a PNG file."""
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(updates, losses, marker="o", markersize=3, label="validation loss")
    axes.axhline(entropy, color="gray", linestyle="--", label="token frequencies only")
    axes.set_xlabel("updates")
    axes.set_ylabel("bits per predicted token")
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=120)
    pyplot.close(figure)


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("log", help="train.log of a recipe, or the output of fairseq-train --log-format json")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of binarized data, with its dict.txt")
    parser.add_argument("--png", required=True, help="file to write the plot to")
    parser.add_argument("--margin", type=float, default=0, metavar="BITS", help="fail unless the loss is so far below")
    args = parser.parse_args()

    for path in [args.log, os.path.join(args.data, "dict.txt")]:
        if not os.path.isfile(path):
            raise MissingFileError(f"{path}: not found, expected the log of a recipe, and the data that it trained on")
    with open(args.log, encoding="utf-8") as log:
        updates, losses = validation_losses(log)
    if not updates:
        raise UsageError(f"{args.log}: no validation loss found; expected a log written with --log-format json")
    entropy = unigram_entropy(args.data)
    draw_png(args.png, updates, losses, entropy)
    print(f"plot: {args.png}")
    print(f"validation loss after {updates[-1]:,} updates: {losses[-1]:.3f} bits per predicted token")
    print(f"unigram entropy of the same text: {entropy:.3f} bits per token")
    if entropy - losses[-1] < args.margin:
        sys.exit(f"the loss is not {args.margin} bits below the unigram entropy: the model has not learned")


if __name__ == "__main__":
    run(main)
