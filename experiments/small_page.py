#!/usr/bin/env python3
"""Remakes the tables of SMALL.md from the records of small.py alone.

Letters in shapes: n examples of a task, S seeds of pretraining, N minimal pairs.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from few_labels import FINE_TUNED as FINE_TUNED_ON_FEW
from maelm_fairseq.base.errors import run
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.evaluation.minimal_pairs import interval, means, shares
from maelm_fairseq.evaluation.outcomes import GROUPS, PAIRS
from maelm_fairseq.evaluation.probes import score
from maelm_fairseq.evaluation.report import markdown
from maelm_fairseq.evaluation.votes import BAG_OF_WORDS, MOST_FREQUENT
from maelm_fairseq.evaluation.votes import TOGETHER as TOGETHER_ON_FEW
from measure import NATURAL
from ngrams import MODELS
from page import with_blocks
from small import (
    ENCODER,
    FEW_LABELS,
    FEW_SHOT_TASKS,
    FINE_TUNED,
    KNOWN,
    OBJECTIVES,
    OF_DEV,
    OVERLAPPING,
    RECORDS,
    SEEDS,
    TARGETS,
    TITLES,
    TOGETHER,
    WORD_VECTORS,
    YARDSTICKS,
)

PAGE = Path(__file__).with_name("SMALL.md")
DRAWS = 1000  # of the bootstrap
WITH_BAG = ", together with a bag of words"
MAE_LM, ALL_MASKS, MLM, SHARED = *OBJECTIVES, "small"
COMPARISONS = [(MAE_LM, ALL_MASKS), (MAE_LM, MLM), (SHARED, MLM)]  # of objectives; the first is the primary one
CHOOSING_SEED = 1  # of pretraining: its scores chose the number of updates


def mean_score(answers, targets):
    """The mean over seeds of the scores of answers (S, n), in percent."""
    return np.mean([score(each, targets) for each in answers])


class Page:
    """The tables of SMALL.md, from the records in a folder."""

    def __init__(self, folder=RECORDS):
        self.records = pd.concat(map(pd.read_csv, sorted(folder.glob("*.csv"))), ignore_index=True)
        found = {}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path) as arrays:
                found[path.stem] = dict(arrays)
        self.yardsticks = found.pop(YARDSTICKS)
        self.arrays = found  # {VARIANT-SEED: {name: array}}
        compared = [f"{variant}-{seed}" for variant in [*OBJECTIVES, SHARED] for seed in SEEDS]
        self.missing = [name for name in compared if PAIRS not in found.get(name, {})]
        if self.missing:  # one look: objectives are shown when all have been measured
            self.arrays = {name: arrays for name, arrays in found.items() if name.rpartition("-")[0] not in OBJECTIVES}
            self.records = self.records[~self.records.arm.isin([*OBJECTIVES])]

    def seeds(self, variant, array):
        """An array of each seed of a variant that has it: list."""
        names = [name for name in self.arrays if name.rpartition("-")[0] == variant]
        return [self.arrays[name][array] for name in names if array in self.arrays[name]]

    def predictors(self):
        """The rows of the tables of tasks: {title: {task: answers (S, n)}}, the bag of words after the encoders."""
        rows = {}
        for ending, predictor in [("", ENCODER), (WITH_BAG, TOGETHER)]:
            for variant in FINE_TUNED:
                answers = {task: self.seeds(variant, f"{task}/{predictor}") for task in NATURAL}
                if all(answers.values()) and (variant == FINE_TUNED[0] or predictor == ENCODER):
                    rows[TITLES[variant] + ending] = {task: np.stack(found) for task, found in answers.items()}
        for predictor in [BAG_OF_WORDS, WORD_VECTORS, MOST_FREQUENT]:
            found = {task: self.yardsticks.get(f"{task}/{predictor}") for task in NATURAL}
            rows[predictor] = {task: answers[None] for task, answers in found.items() if answers is not None}
        return rows

    def scores(self, chosen=lambda task: slice(None)):
        """The mean scores over seeds: predictors by tasks. `chosen` is a function of a task to numbers of examples."""
        rows = {}
        for title, answers in self.predictors().items():
            cells = {}
            for task, values in answers.items():
                targets = self.yardsticks[f"{task}/{TARGETS}"]
                part = chosen(task)
                cells[task] = mean_score(values[:, part], targets[part])
            mean = np.mean(list(cells.values())) if len(cells) == len(NATURAL) else np.nan
            rows[title] = {"seeds": str(len(next(iter(answers.values())))), **cells, "mean": mean}
        for title in [BAG_OF_WORDS, WORD_VECTORS, MOST_FREQUENT]:
            rows[title]["seeds"] = ""
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def tasks(self):
        return self.scores()

    def dev(self):
        return self.scores(lambda task: self.yardsticks[f"{task}/{OF_DEV}"] == 1)

    def test(self):
        return self.scores(lambda task: self.yardsticks[f"{task}/{OF_DEV}"] == 0)

    def differences(self):
        """Each predictor minus the bag of words: points by tasks."""
        predictors = self.predictors()
        bag = predictors[BAG_OF_WORDS]
        rows = {title: self.difference(answers, bag) for title, answers in predictors.items()}
        first = TITLES[FINE_TUNED[0]]
        unseen = {task: answers[CHOOSING_SEED:] for task, answers in predictors[first].items()}
        rows = {first: rows.pop(first), f"{first}, seeds that chose nothing": self.difference(unseen, bag), **rows}
        del rows[BAG_OF_WORDS], rows[MOST_FREQUENT]
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def difference(self, ours, theirs):
        """One predictor's scores minus another's, on dev and test pooled.

        The 95% interval is a bootstrap over examples, the same for both, and seeds of pretraining, the same for all
        tasks and both predictors.

        Args:
            ours, theirs: {task: answers (S, n)}; theirs also (1, n), if the predictor has no seeds

        Returns: {task: points, "mean", "from" and "to"}, or nothing if a task is missing
        """
        if not {*NATURAL} <= {*ours} & {*theirs}:
            return {}
        rng = np.random.default_rng(1)
        count = len(ours[NATURAL[0]])
        seeds = rng.integers(count, size=(DRAWS, count))
        points, drawn = {}, np.zeros((DRAWS, len(NATURAL)))
        for place, task in enumerate(NATURAL):
            targets = self.yardsticks[f"{task}/{TARGETS}"]
            ours_here, theirs_here = ours[task], theirs[task]
            points[task] = mean_score(ours_here, targets) - mean_score(theirs_here, targets)
            for draw in range(DRAWS):
                some = rng.integers(len(targets), size=len(targets))
                chosen = seeds[draw]
                drawn[draw, place] = mean_score(ours_here[chosen][:, some], targets[some])
                chosen = chosen if len(theirs_here) > 1 else [0]
                drawn[draw, place] -= mean_score(theirs_here[chosen][:, some], targets[some])
        low, high = np.percentile(drawn.mean(axis=1), [2.5, 97.5])
        return {**points, "mean": np.mean(list(points.values())), "from": low, "to": high}

    def objectives_on_tasks(self):
        """What is pretrained: differences between objectives, fine-tuned."""
        predictors = self.predictors()
        return self.compared(lambda ours, theirs: self.difference(predictors[TITLES[ours]], predictors[TITLES[theirs]]))

    def objectives_on_pairs(self):
        """What is pretrained: differences between objectives in the share of right decisions of minimal pairs.

        The 95% interval is a bootstrap over paradigms and seeds.
        """
        groups, decisions = self.yardsticks[f"{PAIRS}/{GROUPS}"], self.decisions()

        def difference(ours, theirs):
            gaps = decisions[TITLES[ours]] - decisions[TITLES[theirs]]
            points = np.array([[*means(gap, groups).values()] for gap in gaps])  # seeds by paradigms
            rng, drawn = np.random.default_rng(1), []
            for _ in range(DRAWS):
                seeds, paradigms = (rng.integers(size, size=size) for size in points.shape)
                drawn.append(points[np.ix_(seeds, paradigms)].mean())
            low, high = np.percentile(drawn, [2.5, 97.5])
            each = {f"seed {seed}": mean for seed, mean in zip(SEEDS, points.mean(axis=1))}
            return {**each, "mean": points.mean(), "from": low, "to": high}

        return self.compared(difference)

    def compared(self, difference):
        """The table of the differences between objectives, once all have been measured."""
        if self.missing:
            return f"Shown when all have been measured; missing: {', '.join(self.missing)}."
        rows = {f"{TITLES[ours]}, minus: {TITLES[theirs]}": difference(ours, theirs) for ours, theirs in COMPARISONS}
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def overlap(self):
        """How many dev and test examples have 8 neighbouring words of the pretraining text."""
        found = {task: self.yardsticks[f"{task}/{OVERLAPPING}"] for task in NATURAL}
        rows = {"examples": {task: len(each) for task, each in found.items()}}
        rows["with 8 words of the text"] = {task: int(each.sum()) for task, each in found.items()}
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def few(self):
        """The scores with 32 labelled examples of each class, means over draws and seeds of pretraining."""
        found = self.records[self.records.feature.str.startswith(f"{FEW_LABELS} labels a class, ")]
        found = found.assign(predictor=found.feature.str.partition(", ")[2])
        rows = {}
        for variant in [name for name in TITLES if name in set(found.arm)]:
            scores = found[found.arm == variant].pivot_table(index="predictor", columns="task", values="value")
            rows[TITLES[variant]] = scores.loc[FINE_TUNED_ON_FEW]
            if variant == FINE_TUNED[0]:
                rows[TITLES[variant] + WITH_BAG], rows[BAG_OF_WORDS] = (
                    scores.loc[TOGETHER_ON_FEW],
                    scores.loc[BAG_OF_WORDS],
                )
        probes = self.records[self.records.feature == f"{FEW_LABELS} examples per class"]
        probes = probes[probes.arm == FINE_TUNED[0]].groupby("task").value.mean()
        rows[f"{TITLES[FINE_TUNED[0]]}, a linear probe of its frozen features"] = probes
        return markdown(pd.DataFrame.from_dict(rows, orient="index")[FEW_SHOT_TASKS])

    def decisions(self):
        """{title: how minimal pairs are decided, (S, N), in shares}."""
        rows = {TITLES[variant]: self.seeds(variant, PAIRS) for variant in TITLES}
        rows.update({model: [self.yardsticks[f"{PAIRS}/{model}"]] for model in MODELS})
        return {title: np.stack(found) / 2 for title, found in rows.items() if found}

    def pairs(self):
        """How minimal pairs are decided: of all, with an interval, and of those of known words."""
        rows = {}
        groups, known = (self.yardsticks[f"{PAIRS}/{name}"] for name in (GROUPS, KNOWN))
        for title, decided in self.decisions().items():
            mean = decided.mean(axis=0)
            low, high = interval(mean, groups)
            rows[title] = {"seeds": str(len(decided)), "all": 100 * mean.mean(), "from": low, "to": high}
            rows[title]["known words"] = 100 * mean[known].mean()
        return markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def pairs_by_term(self):
        """The shares of right decisions: terms by models."""
        groups = self.yardsticks[f"{PAIRS}/{GROUPS}"]
        terms = np.array([group.partition("/")[0] for group in groups])
        columns = {title: shares(decided.mean(axis=0), terms)[1] for title, decided in self.decisions().items()}
        return markdown(pd.DataFrame(columns).rename_axis("term"))

    def losses(self):
        """The loss of validation by updates, of each seed."""
        rows = {}
        found = self.records[(self.records.feature == "validation") & (self.records.metric == "bits")]
        for variant in TITLES:
            for updates, values in found[found.arm == variant].groupby("updates").value:
                cells = rows.setdefault(TITLES[variant], {})
                cells[f"{updates:.0f} updates"] = ", ".join(f"{value:.2f}" for value in values)
        frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
        counts = sorted(int(name.split()[0]) for name in frame.columns)
        shown = [count for count in counts if count in (500, 1000) or count % 1500 == 0]
        return markdown(frame[[f"{count} updates" for count in shown]])


def main():
    text = with_blocks(PAGE.read_text(encoding="utf-8"), Page())
    with atomic_write(PAGE) as stream:
        stream.write(text)


if __name__ == "__main__":
    run(main)
