"""What small.py has recorded, and differences between predictors, for small_page.py.

Letters in shapes: n examples of a task, S seeds of pretraining, N minimal pairs.
"""

import numpy as np
import pandas as pd

from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS, MOST_FREQUENT
from maelm_fairseq.evaluation.intervals import interval_over_seeds_and_items
from maelm_fairseq.evaluation.model_record import PAIRS_FEATURE
from maelm_fairseq.evaluation.probes import score_predictions
from measure import NATURAL_TASKS
from ngrams import NGRAM_MODELS
from small import (
    BASELINES_RECORD,
    ENCODER_ALONE,
    SMALL_RECORDS,
    TARGETS,
    WITH_BAG_OF_WORDS,
    WORD_VECTORS,
)
from small_variants import (
    FINE_TUNED_VARIANTS,
    OBJECTIVES,
    OTHER_SETTINGS,
    SEEDS,
    VARIANT_TITLES,
)

BOOTSTRAP_DRAWS = 1000
WITH_BAG = ", together with a bag of words"
# Other settings have a table of their own.
VARIANTS_SHOWN = [variant for variant in VARIANT_TITLES if variant not in OTHER_SETTINGS]


def scores_of_seeds(predictions, targets):
    """The scores of predictions (S, n), in percent: (S,)."""
    return np.array([score_predictions(of_seed, targets) for of_seed in predictions])


def mean_score(predictions, targets):
    """The mean over seeds of the scores of predictions (S, n), in percent."""
    return scores_of_seeds(predictions, targets).mean()


class SmallRecords:
    """The records of small.py in a folder."""

    def __init__(self, folder=SMALL_RECORDS):
        self.records = pd.concat(map(pd.read_csv, sorted(folder.glob("*.csv"))), ignore_index=True)
        self.arrays = {}  # {VARIANT-SEED: {name: array}}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path) as arrays:
                self.arrays[path.stem] = dict(arrays)
        self.baselines = self.arrays.pop(BASELINES_RECORD)
        # Nobody looks at an objective before all of its seeds have been measured.
        self.hidden = [variant for variant in OBJECTIVES if self.missing(variant)]
        self.records = self.records[~self.records.arm.isin(self.hidden)]

    def missing(self, variant):
        """The encoders of a variant whose minimal pairs have not been measured: list of names."""
        names = [f"{variant}-{seed}" for seed in SEEDS]
        return [name for name in names if PAIRS_FEATURE not in self.arrays.get(name, {})]

    def seeds(self, variant, array):
        """An array of each seed of a variant, of those seeds that have it: list."""
        if variant in self.hidden:
            return []
        names = [name for name in self.arrays if name.rpartition("-")[0] == variant]
        return [self.arrays[name][array] for name in names if array in self.arrays[name]]

    def predictors(self):
        """The rows of the tables of tasks: {title: {task: predictions (S, n)}}.

        The bag of words comes after the encoders.
        """
        rows = {}
        for variant in VARIANTS_SHOWN:
            if variant in FINE_TUNED_VARIANTS:
                self.add_predictions(rows, VARIANT_TITLES[variant], variant, ENCODER_ALONE)
        first = FINE_TUNED_VARIANTS[0]
        self.add_predictions(rows, VARIANT_TITLES[first] + WITH_BAG, first, WITH_BAG_OF_WORDS)
        for predictor in [BAG_OF_WORDS, WORD_VECTORS, MOST_FREQUENT]:
            rows[predictor] = {}
            for task in NATURAL_TASKS:
                predictions = self.baselines.get(f"{task}/{predictor}")
                if predictions is not None:
                    rows[predictor][task] = predictions[None]
        return rows

    def add_predictions(self, rows, title, variant, predictor):
        """Adds a row of `predictors` if it has predictions for every task."""
        predictions = {task: self.seeds(variant, f"{task}/{predictor}") for task in NATURAL_TASKS}
        if all(predictions.values()):
            rows[title] = {
                task: np.stack(predictions_of_seeds)
                for task, predictions_of_seeds in predictions.items()
            }

    def validation_losses(self, variant):
        """The records of a variant's losses of validation, in bits."""
        is_validation = self.records.feature == "validation"
        is_loss = is_validation & (self.records.metric == "bits")
        return self.records[is_loss & (self.records.arm == variant)]

    def decisions(self):
        """{title: how minimal pairs are decided, (S, N), in shares}."""
        halves = {}
        for variant in VARIANTS_SHOWN:
            halves[VARIANT_TITLES[variant]] = self.seeds(variant, PAIRS_FEATURE)
        for model in NGRAM_MODELS:
            halves[model] = [self.baselines[f"{PAIRS_FEATURE}/{model}"]]
        return {
            title: np.stack(halves_of_seeds) / 2
            for title, halves_of_seeds in halves.items()
            if halves_of_seeds
        }

    def difference(self, first, second):
        """One predictor's scores minus another's, on dev and test pooled.

        The 95% interval is over examples, the same for both predictors, by a bootstrap; and, where
        there are several, over seeds of pretraining: see `interval_over_seeds_and_items`.

        Args:
            first, second: {task: predictions (S, n)}; second also (1, n), if it has no seeds

        Returns: {task: points, "mean", "from" and "to"}, or nothing if a task is missing
        """
        if not {*NATURAL_TASKS} <= {*first} & {*second}:
            return {}
        rng = np.random.default_rng(1)
        leads = {}  # of each seed
        drawn = np.zeros((BOOTSTRAP_DRAWS, len(NATURAL_TASKS)))
        for column, task in enumerate(NATURAL_TASKS):
            targets = self.baselines[f"{task}/{TARGETS}"]
            leads[task] = scores_of_seeds(first[task], targets) - scores_of_seeds(
                second[task], targets
            )
            for draw in range(BOOTSTRAP_DRAWS):
                rows = rng.integers(len(targets), size=len(targets))
                first_score = mean_score(first[task][:, rows], targets[rows])
                drawn[draw, column] = first_score - mean_score(second[task][:, rows], targets[rows])
        means = np.mean(list(leads.values()), axis=0)
        means_drawn = drawn.mean(axis=1)
        if len(means) == 1:
            low, high = np.percentile(means_drawn, [2.5, 97.5])
        else:
            low, high = interval_over_seeds_and_items(means, means_drawn.std())
        points = {task: leads_of_seeds.mean() for task, leads_of_seeds in leads.items()}
        return {**points, "mean": means.mean(), "from": low, "to": high}
