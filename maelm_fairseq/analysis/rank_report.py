"""Tables and the figure of effective ranks."""

import csv

from .token_moments import TAU, TOKEN_GROUPS


def plot_ranks(path, panels, tau=TAU):
    """Draws the ranks of several models side by side as a PNG.

    Ranks of 0 are left out: there are no such tokens.

    `panels` is {title: rows from `token_moments.analyse`}.
    """
    from matplotlib.figure import Figure  # only needed here, not to measure ranks

    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(6.5, 3.4 * columns), 1.0 + 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axis, (title, ranks) in zip(axes.flat, panels.items()):
        plot_groups(axis, [row for row in ranks if row["tau"] == tau and row["rank"]])
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


def plot_groups(axis, ranks):
    """Draws a line for each group of tokens; `ranks` are the rows of a panel that are drawn."""
    for (group, label), style in zip(TOKEN_GROUPS.items(), ["o-", "s--", "^:", "v-."]):
        rows = [row for row in ranks if row["token_group"] == group]
        layers = [row["layer"] for row in rows]
        axis.plot(layers, [row["rank"] for row in rows], style, label=label, markersize=4)


def write_csv(path, rows):
    """Writes a list of dicts with the same keys as a CSV table."""
    with open(path, "w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def table_of_ranks(name, rows, dimensions, tau):
    """One model's table for the terminal."""
    tokens = {row["token_group"]: row["tokens"] for row in rows}
    masked = f"{tokens['mask_tokens']:,} of which [MASK] replaces"
    groups = "".join(f"{group:>16}" for group in TOKEN_GROUPS)
    lines = [
        f"{name}: effective rank at tau = {tau:g}, of {tokens['without_mask']:,} tokens, {masked}",
        f"layer{groups}   dimensions used by [MASK] alone",
    ]
    ranks = {(row["layer"], row["token_group"]): row["rank"] for row in rows if row["tau"] == tau}
    for row in dimensions:
        if row["tau"] == tau:
            layer = row["layer"]
            cells = "".join(f"{ranks[layer, group]:>16}" for group in TOKEN_GROUPS)
            lines.append(f"{layer:>5}{cells}{row['mask_outside_real']:>14}")
    return "\n".join(lines)
