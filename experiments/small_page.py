#!/usr/bin/env python3
"""Remakes the tables of SMALL.md from the records of small.py alone.

Letters in shapes: n examples of a task, S seeds of pretraining, N minimal pairs.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import tags
from few_labels import FINE_TUNED as FINE_TUNED_ON_FEW
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS, MOST_FREQUENT
from maelm_fairseq.baselines.ensemble import ENSEMBLE
from maelm_fairseq.evaluation.minimal_pairs import pairs_interval, percent_right
from maelm_fairseq.evaluation.model_record import GROUPS_KEY, PAIRS_FEATURE
from maelm_fairseq.evaluation.report import frame_to_markdown
from measure import NATURAL_TASKS
from page_blocks import with_blocks
from small import (
    ENCODER_ALONE,
    FEW_LABELS,
    FEW_SHOT_TASKS,
    IS_DEV_KEY,
    KNOWN,
    OVERLAPPING,
    TARGETS,
    WORD_VECTORS,
)
from small_records import VARIANTS_SHOWN, WITH_BAG, SmallRecords, mean_score
from small_variants import (
    FINE_TUNED_VARIANTS,
    OBJECTIVES,
    OTHER_LOSSES,
    OTHER_SETTINGS,
    SEEDS,
    VARIANT_TITLES,
)

SMALL_PAGE = Path(__file__).with_name("SMALL.md")
MAE_LM, ALL_MASKS, MLM = OBJECTIVES
SHARED = "half"
RECIPE = FINE_TUNED_VARIANTS[0]
# Pairs of variants. The first is the primary comparison of objectives; the last is of updates.
COMPARISONS = [(MAE_LM, ALL_MASKS), (MAE_LM, MLM), (SHARED, MLM), (RECIPE, SHARED)]
CHOOSING_SEED = 1  # the seed of pretraining whose scores chose the number of updates
REFERENCE = "short"  # each of OTHER_SETTINGS changes one thing of this variant


class Page(SmallRecords):
    """The tables of SMALL.md, from the records in a folder."""

    def scores(self, chosen=lambda task: slice(None)):
        """The mean scores over seeds: predictors by tasks.

        `chosen` is a function that returns which examples of a task are scored.
        """
        rows = {}
        for title, predictions in self.predictors().items():
            cells = {}
            for task, values in predictions.items():
                targets = self.baselines[f"{task}/{TARGETS}"]
                part = chosen(task)
                cells[task] = mean_score(values[:, part], targets[part])
            mean = np.mean(list(cells.values())) if len(cells) == len(NATURAL_TASKS) else np.nan
            seeds = len(next(iter(predictions.values())))
            rows[title] = {"seeds": str(seeds), **cells, "mean": mean}
        for title in [BAG_OF_WORDS, WORD_VECTORS, MOST_FREQUENT]:
            rows[title]["seeds"] = ""
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def tasks(self):
        return self.scores()

    def dev(self):
        return self.scores(lambda task: self.baselines[f"{task}/{IS_DEV_KEY}"] == 1)

    def test(self):
        return self.scores(lambda task: self.baselines[f"{task}/{IS_DEV_KEY}"] == 0)

    def differences(self):
        """Each predictor minus the bag of words: points by tasks."""
        predictors = self.predictors()
        bag = predictors[BAG_OF_WORDS]
        first = VARIANT_TITLES[RECIPE]
        other_seeds = {
            task: predictions[CHOOSING_SEED:] for task, predictions in predictors[first].items()
        }
        rows = {
            first: self.difference(predictors[first], bag),
            f"{first}, seeds that chose nothing": self.difference(other_seeds, bag),
        }
        for title, predictions in predictors.items():
            if title not in (first, BAG_OF_WORDS, MOST_FREQUENT):
                rows[title] = self.difference(predictions, bag)
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def objectives_on_tasks(self):
        """Differences between objectives of pretraining in the scores after fine-tuning.

        Compared are the seeds that both have.
        """
        predictors = self.predictors()

        def difference(first, second):
            both = [predictors[VARIANT_TITLES[variant]] for variant in (first, second)]
            count = min(len(predictions[NATURAL_TASKS[0]]) for predictions in both)
            common_predictions = []
            for predictions in both:
                common_predictions.append(
                    {task: predictions[task][:count] for task in NATURAL_TASKS}
                )
            return {"seeds": str(count), **self.difference(*common_predictions)}

        return self.compared(difference)

    def objectives_on_pairs(self):
        """Differences between objectives of pretraining in how they decide minimal pairs.

        Compared are the shares of right decisions, of the seeds that both have.
        """
        groups = self.baselines[f"{PAIRS_FEATURE}/{GROUPS_KEY}"]
        decisions = self.decisions()

        def difference(first, second):
            both = [decisions[VARIANT_TITLES[variant]] for variant in (first, second)]
            common_seeds = min(map(len, both))
            gaps = both[0][:common_seeds] - both[1][:common_seeds]
            low, high = pairs_interval(gaps, groups)
            points = 100 * gaps.mean(axis=1)
            seed_means = {f"seed {seed}": mean for seed, mean in zip(SEEDS, points)}
            return {**seed_means, "mean": points.mean(), "from": low, "to": high}

        return self.compared(difference)

    def compared(self, difference):
        """The table of the differences between variants, of which both have been measured."""
        rows = {}
        for first, second in COMPARISONS:
            if not self.missing(first) and not self.missing(second):
                title = f"{VARIANT_TITLES[first]}, minus: {VARIANT_TITLES[second]}"
                rows[title] = difference(first, second)
        table = frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index")) if rows else ""
        missing = [name for variant in [*OBJECTIVES, SHARED] for name in self.missing(variant)]
        if missing:
            table += f"\nNot measured yet, nor shown until all seeds are: {', '.join(missing)}.\n"
        return table.strip("\n")

    def other_settings(self):
        """What other settings of pretraining give: losses, minimal pairs, and scores on the tasks.

        The interval is of the difference from the first row on the tasks; see `difference`.
        """
        predictions = {}
        rows = {}
        for variant in [REFERENCE, *OTHER_SETTINGS]:
            losses = self.validation_losses(variant)
            if losses.empty:
                continue
            last = losses[losses.updates == losses.updates.max()]
            bits = np.nan if variant in OTHER_LOSSES else last.value.mean()
            row = rows[VARIANT_TITLES[variant]] = {"bits": bits}
            self.add_predictions(predictions, variant, variant, ENCODER_ALONE)
            if variant not in predictions:
                continue
            (decided,) = self.seeds(variant, PAIRS_FEATURE)
            row["minimal pairs"] = 50 * decided.mean()
            scores = []
            for task, values in predictions[variant].items():
                scores.append(mean_score(values, self.baselines[f"{task}/{TARGETS}"]))
            row["six tasks"] = np.mean(scores)
            if variant != REFERENCE:
                difference = self.difference(predictions[variant], predictions[REFERENCE])
                row["minus the first row"] = difference["mean"]
                row.update({name: difference[name] for name in ("from", "to")})
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def overlap(self):
        """How many dev and test examples have 8 neighbouring words of the pretraining text."""
        examples = {}
        overlapping = {}
        for task in NATURAL_TASKS:
            is_overlapping = self.baselines[f"{task}/{OVERLAPPING}"]
            examples[task] = len(is_overlapping)
            overlapping[task] = int(is_overlapping.sum())
        rows = {"examples": examples, "with 8 words of the text": overlapping}
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def few(self):
        """The scores with 32 labelled examples of each class.

        They are means over draws and seeds of pretraining.
        """
        is_few = self.records.feature.str.startswith(f"{FEW_LABELS} labels a class, ")
        records = self.records[is_few]
        records = records.assign(predictor=records.feature.str.partition(", ")[2])
        measured = set(records.arm)
        rows = {}
        for variant in VARIANT_TITLES:
            if variant not in measured:
                continue
            variant_records = records[records.arm == variant]
            scores = variant_records.pivot_table(index="predictor", columns="task", values="value")
            rows[VARIANT_TITLES[variant]] = scores.loc[FINE_TUNED_ON_FEW]
            if variant == RECIPE:
                rows[VARIANT_TITLES[variant] + WITH_BAG] = scores.loc[ENSEMBLE]
                rows[BAG_OF_WORDS] = scores.loc[BAG_OF_WORDS]
        probes = self.records[self.records.feature == f"{FEW_LABELS} examples per class"]
        probes = probes[probes.arm == RECIPE].groupby("task").value.mean()
        title = VARIANT_TITLES[RECIPE]
        rows[f"{title}, a linear probe of its frozen features"] = probes
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index")[FEW_SHOT_TASKS])

    def pairs(self):
        """The shares of right decisions of all minimal pairs, and of those with known words."""
        rows = {}
        groups = self.baselines[f"{PAIRS_FEATURE}/{GROUPS_KEY}"]
        known = self.baselines[f"{PAIRS_FEATURE}/{KNOWN}"]
        for title, decided in self.decisions().items():
            mean = decided.mean(axis=0)
            low, high = pairs_interval(decided, groups)
            rows[title] = {
                "seeds": str(len(decided)),
                "all": 100 * mean.mean(),
                "from": low,
                "to": high,
                "known words": 100 * mean[known].mean(),
            }
        return frame_to_markdown(pd.DataFrame.from_dict(rows, orient="index"))

    def pairs_by_term(self):
        """The shares of right decisions: terms by models."""
        groups = self.baselines[f"{PAIRS_FEATURE}/{GROUPS_KEY}"]
        terms = np.array([group.partition("/")[0] for group in groups])
        columns = {}
        for title, decided in self.decisions().items():
            _, columns[title] = percent_right(decided.mean(axis=0), terms)
        return frame_to_markdown(pd.DataFrame(columns).rename_axis("term"))

    def tags(self):
        return tags.score_table()

    def tag_leads(self):
        return tags.lead_table()

    def tag_trials(self):
        return tags.trial_table()

    def losses(self):
        """The loss of validation by updates, of each seed."""
        rows = {}
        for variant in VARIANTS_SHOWN:
            for updates, values in self.validation_losses(variant).groupby("updates").value:
                cells = rows.setdefault(VARIANT_TITLES[variant], {})
                cells[f"{updates:.0f} updates"] = ", ".join(f"{value:.2f}" for value in values)
        frame = pd.DataFrame.from_dict(rows, orient="index").fillna("")
        counts = sorted(int(name.split()[0]) for name in frame.columns)
        shown = [
            count
            for count in counts
            if count in (500, 1000) or count % (1500 if count <= 9000 else 3000) == 0
        ]
        return frame_to_markdown(frame[[f"{count} updates" for count in shown]])


def main():
    Parser("small_page.py", description=__doc__).parse_args()
    page = Page()
    text = with_blocks(SMALL_PAGE.read_text(encoding="utf-8"), lambda name: getattr(page, name)())
    with atomic_write(SMALL_PAGE) as stream:
        stream.write(text)


if __name__ == "__main__":
    run_main(main)
