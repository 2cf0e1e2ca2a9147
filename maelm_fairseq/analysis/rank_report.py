"""Tables and the figure of effective ranks."""

import csv

from .token_moments import FAMILIES, TAU


def draw(path, panels, tau=TAU):
    """Draws the ranks of several models side by side as a PNG, except those of 0: there are no such tokens.

    `panels` are {title: rows from `token_moments.analyse`}.
    """
    from matplotlib.figure import Figure  # not needed to measure ranks

    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(6.5, 3.4 * columns), 1.0 + 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axis, (title, ranks) in zip(axes.flat, panels.items()):
        for (family, label), style in zip(FAMILIES.items(), ["o-", "s--", "^:", "v-."]):
            chosen = [row for row in ranks if row["family"] == family and row["tau"] == tau and row["rank"]]
            axis.plot([r["layer"] for r in chosen], [r["rank"] for r in chosen], style, label=label, markersize=4)
        axis.set_title(title, parse_math=False)
        axis.set_xlabel("layer (0: embeddings)")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel(f"effective rank ($\\tau$ = {tau:g})")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=120)


def write_csv(path, rows):
    """Writes a list of dicts with the same keys as a CSV table."""
    with open(path, "w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def report(name, rows, dimensions, tau):
    """One model's table for the terminal."""
    tokens = {row["family"]: row["tokens"] for row in rows}
    counts = f"{tokens['without_mask']:,} tokens, {tokens['mask_tokens']:,} of which [MASK] replaces"
    lines = [f"{name}: effective rank at tau = {tau:g}, of {counts}"]
    lines.append("layer" + "".join(f"{family:>16}" for family in FAMILIES) + "   [MASK] dimensions of its own")
    for row in dimensions:
        if row["tau"] == tau:
            here = {r["family"]: r["rank"] for r in rows if r["layer"] == row["layer"] and r["tau"] == tau}
            cells = "".join(f"{here[family]:>16}" for family in FAMILIES)
            lines.append(f"{row['layer']:>5}{cells}{row['mask_outside_real']:>14}")
    return "\n".join(lines)
