#!/usr/bin/env python3
"""Draws docs/pictures/idea.png: who reads [MASK] in an MLM, in MAE-LM, and with shared decoder layers."""

import io
from pathlib import Path

from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from PIL import Image

PICTURE = Path(__file__).parent / "pictures" / "idea.png"
WORDS = ["<s>", "the", "best", "film", "i", "saw"]
MASKED = {2, 5}
ALL = set(range(len(WORDS)))
TOKENS = ALL - MASKED
TOKEN, MASK, GREY = "#0072B2", "#D55E00", "#555555"  # the first two by Okabe and Ito
KEPT = dict(facecolor="#E8F1F8", edgecolor=TOKEN)
DISCARDED = dict(facecolor="white", edgecolor=GREY, linestyle="--")
LAYERS, SHALLOW = 4, 2  # of the encoder; of the decoder, and those that masks share


def color(position):
    return MASK if position in MASKED else TOKEN


def box(axis, bottom, top, name, style):
    """A stack of layers, from its first to its last row, named at its left."""
    size = len(WORDS) - 0.1, top - bottom + 0.7
    axis.add_patch(FancyBboxPatch((-0.45, bottom - 0.38), *size, boxstyle="round,pad=0,rounding_size=0.2", **style))
    axis.text(-0.62, (bottom + top) / 2, name, rotation=90, ha="right", va="center", color=GREY)


def write(axis, position, height, text):
    """A word, or [M], in a box of its colour."""
    style = dict(boxstyle="round,pad=0.22", facecolor="white", edgecolor=color(position), linewidth=1.2)
    axis.text(position, height, text, ha="center", va="center", color=color(position), bbox=style, zorder=4)


def layer(axis, height, tokens_read, masks_read):
    """The outputs of a layer, and lines to the rows below that each kind of row attends to; no masks for None."""
    for query in ALL if masks_read else TOKENS:
        for key in masks_read if query in MASKED else tokens_read:
            style = dict(color=color(key), linewidth=0.8, alpha=0.9 if key in MASKED else 0.35)
            axis.plot([key, query], [height - 1, height], zorder=2 + (key in MASKED) / 2, **style)
        axis.plot(query, height, "s" if query in MASKED else "o", color=color(query), markersize=7, zorder=3)


def predict(axis, height):
    """The language-model head above the last layer, and what it predicts."""
    bar = FancyBboxPatch((1.55, height + 0.6), 3.9, 0.5, boxstyle="round,pad=0,rounding_size=0.2", **DISCARDED)
    axis.add_patch(bar)
    axis.text(3.5, height + 0.84, "head", ha="center", va="center", color=GREY)
    for position in MASKED:
        for bottom, top in [(height + 0.1, height + 0.6), (height + 1.1, height + 1.6)]:
            axis.annotate("", (position, top), (position, bottom), arrowprops=dict(arrowstyle="->", color=MASK))
        axis.text(position, height + 1.65, WORDS[position], ha="center", color=MASK, weight="bold")


def main():
    pyplot.rcParams.update({"font.size": 14, "font.family": "DejaVu Sans"})
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 6), facecolor="white")
    mlm, mae_lm, shared = axes
    inputs = LAYERS + 1  # of MAE-LM's decoder: what the encoder gives for tokens, and [M]
    for axis, title, note, masks_enter, top in [
        (mlm, "MLM", "every token reads [MASK]", 0, LAYERS),
        (mae_lm, "MAE-LM (the paper)", "the encoder never reads [MASK]", inputs, inputs + SHALLOW),
        (shared, "Shared decoder layers (ours)", "tokens never read [MASK]", LAYERS - SHALLOW, LAYERS),
    ]:
        axis.set(xlim=(-1.25, 5.7), ylim=(-0.45, 10.9))
        axis.axis("off")
        axis.text(2.5, 10.35, title, ha="center", size=15, weight="bold")
        axis.text(2.5, 9.7, note, ha="center", color=GREY)
        box(axis, 1, LAYERS, "encoder", KEPT)
        for position, word in enumerate(WORDS):
            write(axis, position, masks_enter if position in MASKED else 0, "[M]" if position in MASKED else word)
        predict(axis, top)
    for height in range(1, LAYERS + 1):
        layer(mlm, height, ALL, ALL)
        layer(mae_lm, height, TOKENS, None)
        layer(shared, height, TOKENS, ALL if height > LAYERS - SHALLOW else None)

    box(mae_lm, inputs, inputs + SHALLOW, "decoder", DISCARDED)
    for position in TOKENS:
        mae_lm.plot(position, inputs, "o", color=TOKEN, markersize=7)
        arrow = dict(arrowstyle="->", color=TOKEN, shrinkA=5, shrinkB=5)
        mae_lm.annotate("", (position, inputs), (position, LAYERS), arrowprops=arrow)
    for height in range(inputs + 1, inputs + SHALLOW + 1):
        layer(mae_lm, height, ALL, ALL)

    entries = [
        Line2D([], [], color=TOKEN, marker="o", linewidth=1.5, label="real token, and where it is read"),
        Line2D([], [], color=MASK, marker="s", linewidth=1.5, label="[M] = [MASK], and where it is read"),
        Patch(**KEPT, label="kept after pretraining"),
        Patch(**DISCARDED, label="thrown away"),
    ]
    figure.legend(handles=entries, loc="lower center", ncols=4, frameon=False, fontsize=13, columnspacing=1.1)
    figure.subplots_adjust(left=0.01, right=0.99, top=1, bottom=0.09, wspace=0.03)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(stream := io.BytesIO(), dpi=120)
    Image.open(stream).convert("RGB").quantize(64, dither=0).save(PICTURE, optimize=True)  # a quarter of the bytes


if __name__ == "__main__":
    main()
