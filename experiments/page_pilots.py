"""Sections of the page on the pilots: what they chose, and by which numbers."""

import copy

import pandas as pd
from scipy import stats

from arms import FINE_TUNING_RATE, FINE_TUNING_RATES, PILOT_SEEDS, PILOTS
from maelm_fairseq.evaluation.few_shot import SHOTS
from maelm_fairseq.evaluation.report import frame_to_markdown
from measure import NATURAL_TASKS, WORD_ORDER_TASKS
from page_arms import ARM_TITLES
from page_scores import FEATURE_OF_COLUMN, score_table
from page_tests import TASKS_WITHOUT
from results import PRIMARY_SCORE

SIX_TASKS = "fine-tuned, all six tasks"
WORD_ORDER = "chosen layer, word order"


def rates(results):
    """The losses of the pilots with different learning rates."""
    rows = results.pilots.final
    rows = rows[rows.arm.str.contains("-lr") & (rows.metric == "bits")]
    parts = rows.arm.str.extract("(.*)-lr(.*)")
    rows = rows.assign(arm=parts[0].map(ARM_TITLES), rate=parts[1])
    frame = rows.pivot_table(index="arm", columns="rate", values="value")
    return frame_to_markdown(frame[sorted(frame, key=float)])


def tuning_rates(results):
    """The scores of pilots that were fine-tuned with different learning rates."""
    features = {rate: f"fine-tuned, {rate}" for rate in FINE_TUNING_RATES}
    features[FINE_TUNING_RATE] = "fine-tuned"
    rows = {}
    for arm in PILOTS:
        cells = {}
        for rate in sorted(features, key=float):
            scores = results.pilots.values(arm, NATURAL_TASKS, features[rate], "last")
            cells[rate] = scores.get(PILOT_SEEDS[0])
        rows[ARM_TITLES[arm]] = cells
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("arm")
    return frame_to_markdown(frame.dropna(axis=1, how="all"))


def masked(results):
    """The scores of pilots with 15% and 30% of the tokens predicted."""
    first = copy.copy(results)
    first.final = results.pilots.final[results.pilots.final.seed == PILOT_SEEDS[0]]
    arms = []
    for pilot in PILOTS:
        arms += [f"{pilot}-masked15", pilot]
    return score_table(first, arms)


def instrument(results):
    """How well each candidate tells trained layers from newly initialised ones."""
    rows = []
    tasks_of = {SIX_TASKS: NATURAL_TASKS, WORD_ORDER: WORD_ORDER_TASKS}
    for title, (feature, layer) in instruments().items():
        tasks = tasks_of.get(title, TASKS_WITHOUT["trec_fine"])  # whose classes are too small
        scores = trained_and_new(results, tasks, feature, layer)
        gains = scores.trained - scores.new
        if len(gains) > 1:
            ratio = gains.mean() / stats.sem(gains)
            rows.append([title, len(gains), *scores.mean(), gains.mean(), ratio])
    ratio_name = "gain over its standard error"
    names = ["features", "encoders", "trained", "new layers", "gain", ratio_name]
    frame = pd.DataFrame(rows, columns=names).set_index("features")
    return frame_to_markdown(frame.sort_values(ratio_name, ascending=False))


def instruments():
    """The candidates for the instrument of the experiment: {title: (feature, layer)}."""
    candidates = dict(FEATURE_OF_COLUMN)
    for layer in range(1, 12):
        candidates[f"layer {layer}"] = "mean", str(layer)
        candidates[f"`<s>`, layer {layer}"] = "first", str(layer)
    for shots in SHOTS:
        title = f"{shots} examples per class"
        candidates[title] = title, "chosen"
    candidates[SIX_TASKS] = PRIMARY_SCORE
    candidates[WORD_ORDER] = "mean", "chosen"
    return candidates


def trained_and_new(results, tasks, feature, layer):
    """The scores of pilots with trained layers, and with new ones: two columns."""
    frames = []
    for arm in PILOTS:
        trained = results.pilots.values(arm, tasks, feature, layer)
        new = results.pilots.values(f"{arm}-reset", tasks, feature, layer)
        frames.append(pd.concat([trained, new], axis=1, keys=["trained", "new"]))
    return pd.concat(frames).dropna()
