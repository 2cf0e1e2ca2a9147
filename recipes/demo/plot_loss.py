#!/usr/bin/env python3
"""Plots the validation loss in a recipe's train.log, as a PNG and in the terminal; see recipes/demo/demo.sh."""

import os
import sys

from maelm_fairseq.effective_rank import import_pyplot
from maelm_fairseq.errors import MissingFileError, Parser, UsageError, run
from maelm_fairseq.files import atomic_write
from show_progress import logged


def validation_losses(lines):
    """The updates and losses (bits) of a log's validations, in order. Of a repeated update, the last counts."""
    validations = logged(lines, "valid_num_updates")
    return [int(v["valid_num_updates"]) for v in validations], [float(v["valid_loss"]) for v in validations]


def draw_png(path, updates, losses, unigram_entropy):
    """Draws the losses into a PNG file."""
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(updates, losses, marker="o", markersize=3, label="validation loss")
    if unigram_entropy is not None:
        axes.axhline(unigram_entropy, color="gray", linestyle="--", label="token frequencies only")
    axes.set_xlabel("updates")
    axes.set_ylabel("bits per predicted token")
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=120)
    pyplot.close(figure)


def draw_text(updates, losses, unigram_entropy, width=60, height=12):
    """The same plot as text: a star for each loss, dashes at the unigram entropy."""
    shown = losses + ([] if unigram_entropy is None else [unigram_entropy])
    low, high = min(shown), max(shown)

    def row(loss):
        return round((high - loss) / ((high - low) or 1) * (height - 1))

    grid = [[" "] * width for _ in range(height)]
    if unigram_entropy is not None:
        grid[row(unigram_entropy)] = ["-"] * width
    for update, loss in zip(updates, losses):
        grid[row(loss)][round(update / updates[-1] * (width - 1))] = "*"
    labels = {0: high, height - 1: low}
    if unigram_entropy is not None:
        labels[row(unigram_entropy)] = unigram_entropy
    rows = [
        "{:>6} |{}".format("{:.2f}".format(labels[k]) if k in labels else "", "".join(cells).rstrip())
        for k, cells in enumerate(grid)
    ]
    return "\n".join(
        ["  bits per predicted token" + ("" if unigram_entropy is None else "; - - at the unigram entropy")]
        + rows
        + ["       +" + "-" * width, "        0{:>{}} updates".format(updates[-1], width - 1)]
    )


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("log", help="train.log of a recipe, or the output of fairseq-train --log-format json")
    parser.add_argument("--png", help="file to write the plot to")
    parser.add_argument("--unigram-entropy", type=float, metavar="BITS", help="bits per token, to compare with")
    parser.add_argument("--margin", type=float, metavar="BITS", help="fail unless the last loss is this far below it")
    args = parser.parse_args()

    if not os.path.isfile(args.log):
        raise MissingFileError(f"{args.log}: not found, expected the log of a recipe")
    with open(args.log, encoding="utf-8") as log:
        updates, losses = validation_losses(log)
    if not updates:
        raise UsageError(f"{args.log}: no validation loss found; expected a log written with --log-format json")
    print(draw_text(updates, losses, args.unigram_entropy))
    if args.png:
        draw_png(args.png, updates, losses, args.unigram_entropy)
        print("plot: {}".format(args.png))
    if args.unigram_entropy is not None:
        gain = args.unigram_entropy - losses[-1]
        print("\nvalidation loss after {:,} updates: {:.3f} bits per predicted token".format(updates[-1], losses[-1]))
        print("unigram entropy of the same text: {:.3f} bits per token".format(args.unigram_entropy))
        if args.margin is not None and gain < args.margin:
            sys.exit("the loss is not {} bits below the unigram entropy: the model has not learned".format(args.margin))


if __name__ == "__main__":
    run(main)
