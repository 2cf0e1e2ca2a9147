"""Sections of the page on effective ranks, layer by layer."""

import functools

import pandas as pd

from maelm_fairseq.evaluation.report import frame_to_markdown
from page_arms import ARM_TITLES, MAIN, MLMS, OLD
from page_claims import claims
from page_pictures import draw_lines

RANK_LAYERS = ["0", "1", "2", "3", "5", "8", "12"]
GROUP_TITLES = {
    "without_mask": "text without [MASK]",
    "with_mask": "text with [MASK]",
    "mask_tokens": "[MASK] itself",
}
GAP_TITLE = "text with [MASK] minus text without"
OWN_TITLE = "[MASK] outside real tokens"


def ranks_by_layer(results):
    """Ranks of text without [MASK] in some layers, means over seeds."""
    ranks = {arm: results.by_layer(arm, "without_mask") for arm in results.recorded(MAIN)}
    rows = {ARM_TITLES[arm]: seeds.mean() for arm, seeds in ranks.items()}
    table = pd.DataFrame.from_dict(rows, orient="index")[RANK_LAYERS]
    table.columns = ["embeddings", *(f"layer {layer}" for layer in RANK_LAYERS[1:])]
    return frame_to_markdown(table.rename_axis("arm").map("{:.1f}".format))


def lemma(results):
    """Lemma 2.1: the rank of [MASK] by layer."""
    return ranks_of(results, "lemma", [*MLMS, "A"], [GROUP_TITLES["mask_tokens"]], ["rises"])


def theorem(results):
    """Theorem 2.2: the dimensions that serve [MASK] alone, by layer."""
    return ranks_of(results, "theorem", [*MLMS, "A"], [GAP_TITLE, OWN_TITLE], ["gap", "own"])


def closing(results):
    """Figure 5a: the ranks of text with and without [MASK], by layer."""
    titles = [GROUP_TITLES["without_mask"], GROUP_TITLES["with_mask"]]
    return ranks_of(results, "closing", MAIN, titles, ["closes", "plain"])


def old_ranks(results):
    """All ranks of the older encoders."""
    keys = ["rises", "gap", "own", "closes", "plain"]
    return ranks_of(results, "old-ranks", OLD, GROUP_TITLES.values(), keys, ["mlm"], "mae_lm")


def ranks_of(results, name, arms, titles, keys, mlms=MLMS, mae="A"):
    """Draws ranks by layer, and says what they show of the claims with these keys."""
    sources = {GAP_TITLE: results.mask_rank_gap, OWN_TITLE: results.mask_dimensions}
    for group, title in GROUP_TITLES.items():
        sources[title] = functools.partial(results.by_layer, group=group)
    arms = [arm for arm in results.recorded(arms) if len(results.by_layer(arm, "without_mask"))]
    panels = {}
    for title in titles:
        panels[title, "layer (0: embeddings)"] = {arm: sources[title](arm) for arm in arms}
    title = f"Dimensions by layer: {', '.join(titles)}"
    return draw_lines(results, name, "dimensions", title, panels) + claims(results, mlms, mae, keys)
