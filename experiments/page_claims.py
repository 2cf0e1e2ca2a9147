"""Sections of the page on the paper's claims: what became of each."""

import pandas as pd
from scipy import stats

from maelm_fairseq.evaluation.report import frame_to_markdown
from page_arms import ARM_TITLES, MLMS
from page_tests import MIN_SEEDS, WITHOUT_TREC, compute_tests, points_with_interval

MAIN_CLAIM = "The main claim: fine-tuned, MAE-LM scores higher than the MLM"
MAIN_CLAIM_WITHOUT_TREC = "The same without the questions of trec and trec_fine"
# The paper's other claims. An estimate is positive where its claim holds; ranks are those of the
# last layer.
CLAIMS = {
    "rises": "Lemma 2.1, Figure 1b: in the MLM, [MASK] has a higher rank than in the embeddings",
    "gap": "Figure 1a: in the MLM, text with [MASK] has a higher rank than text without",
    "own": "Theorem 2.2: [MASK] has more dimensions outside those of real tokens in the MLM "
    "than in MAE-LM",
    "closes": "Figure 5a: text with [MASK] exceeds text without by more in the MLM than in MAE-LM",
    "plain": "Abstract: text without [MASK] has a higher rank in MAE-LM than in the MLM",
    "tuned": "Figure 5b: while it is fine-tuned, this rank is higher in MAE-LM than in the MLM",
    "earlier": "Figure 3: after three quarters of its updates, MAE-LM scores higher than the MLM "
    "at its end",
}
EMPTY = pd.DataFrame(columns=[1, 2], dtype=float)


def summary(results):
    """What became of the paper's claims."""
    columns = {}
    for mlm in MLMS:
        rows = [main_claim(results, mlm), claim_without_trec(results, mlm)]
        rows += claim_lines(results, [mlm], "A", CLAIMS)
        cells = {}
        for claim, _, seeds, estimate, result in rows:
            cells[claim] = f"{estimate}; seeds: {seeds}; {result}"
        columns[ARM_TITLES[mlm]] = cells
    return frame_to_markdown(pd.DataFrame(columns).fillna("not run").rename_axis("claim"))


def main_claim(results, mlm):
    """The row of the main claim, as of `claim_lines`."""
    difference = f"{ARM_TITLES['A']} minus {ARM_TITLES[mlm]}"
    row = compute_tests(results).set_index(["on", "difference"]).loc["fine-tuned", difference]
    estimate = f"{points_with_interval(row)} points"
    if row.p:
        estimate += f", p {row['p, Holm'] or row.p}"
    return [MAIN_CLAIM, "", row.seeds, estimate, row.result]


def claim_without_trec(results, mlm):
    """The row of the main claim without the questions that two tasks share."""
    difference = f"{ARM_TITLES['A']} minus {ARM_TITLES[mlm]}"
    row = compute_tests(results).set_index(["on", "difference"]).loc[WITHOUT_TREC, difference]
    estimate = f"{points_with_interval(row)} points"
    return [MAIN_CLAIM_WITHOUT_TREC, "", row.seeds, estimate, row.result]


def claims(results, mlms, mae, keys):
    """The table of `claim_lines`."""
    columns = ["claim", "MLM", "seeds", "estimate", "result"]
    rows = claim_lines(results, mlms, mae, keys)
    return frame_to_markdown(pd.DataFrame(rows, columns=columns).set_index("claim"))


def claim_lines(results, mlms, mae, keys):
    """The rows of the claims with these keys: claim, MLM, seeds, estimate, result.

    Estimates have an interval over seeds. The main claim is not among them.
    """
    rows = []
    for mlm in mlms:
        values = values_of_claims(results, mlm, mae)
        for key in keys:
            seed_values = values[key].dropna()
            if len(seed_values):
                rows.append([CLAIMS[key], ARM_TITLES[mlm], *verdict(seed_values, key != "earlier")])
    return rows


def values_of_claims(results, mlm, mae):
    """What is above 0 where a claim of MAE-LM and an MLM holds: {key: Series by seeds}."""
    masks = results.by_layer(mlm, "mask_tokens")
    plain_of_mlm = results.by_layer(mlm, "without_mask").iloc[:, -1]
    plain_of_mae = results.by_layer(mae, "without_mask").iloc[:, -1]
    tuned_gains = results.ranks_during_tuning.get(mae, EMPTY) - results.ranks_during_tuning.get(
        mlm, EMPTY
    )
    before_end_of_mae = results.scores_by_update.get(mae, EMPTY).iloc[:, -2]
    end_of_mlm = results.scores_by_update.get(mlm, EMPTY).iloc[:, -1]
    return {
        "rises": masks.iloc[:, -1] - masks.iloc[:, 0],
        "gap": results.mask_rank_gap(mlm).iloc[:, -1],
        "own": results.mask_dimensions(mlm).iloc[:, -1] - results.mask_dimensions(mae).iloc[:, -1],
        "closes": results.mask_rank_gap(mlm).iloc[:, -1] - results.mask_rank_gap(mae).iloc[:, -1],
        "plain": plain_of_mae - plain_of_mlm,
        "tuned": tuned_gains.mean(axis=1),
        "earlier": before_end_of_mae - end_of_mlm,
    }


def verdict(values, is_rank=True):
    """What values of seeds show of a claim that they are above 0.

    Returns: the number of seeds, the mean with its interval as text, and the result as text
    """
    n = len(values)
    mean = round(values.mean(), 9)
    error = values.sem()
    unit = "dimensions" if is_rank else "points"
    if not error > 0:  # ranks are integers: without any spread, no interval is known
        text = f"{mean:+.1f} {unit}"
        if n > 1:
            text += " in each seed"
        return n, text, "described"
    low, high = stats.t.interval(0.95, n - 1, mean, error)
    text = f"{mean:+.1f} ({low:+.1f} to {high:+.1f}) {unit}"
    if n < MIN_SEEDS:
        return n, text, "described"
    if low > 0:
        return n, text, "shown"
    if high < 0:
        return n, text, "reversed"
    return n, text, "not shown"
