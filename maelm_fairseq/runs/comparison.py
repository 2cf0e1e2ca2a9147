"""Predictors on the same examples: scores, differences, and the standard errors of both."""

from dataclasses import replace
from functools import partial

import numpy as np

from ..evaluation.baseline_scores import Score
from ..finetuning.jackknife import errors_of_jackknife, scores_without_groups
from .finetune_results import scores_of_examples


class Comparison:
    """Predictors beside a baseline, on the examples of a split that have labels.

    Args:
        task: a `finetuning_task.FineTuningTask` that has read the split
        split: of the examples
        baseline: name of the predictor that the others are compared with
        predictions: {predictor: {index of an example: prediction}}
    """

    def __init__(self, task, split, baseline, predictions):
        self.task = task
        self.dataset = task.datasets[split]
        self.baseline = baseline
        self.predictions = predictions
        self.indices = [*predictions[baseline]]
        without_groups = {}
        for predictor in predictions:
            scores = partial(self.scores, predictor)
            without_groups[predictor] = scores_without_groups(
                scores, self.indices, task.jackknife_groups
            )
        self.errors = {}
        self.lead_errors = {}
        for predictor, scores in without_groups.items():
            leads = list(map(difference, scores, without_groups[baseline]))
            self.errors[predictor] = errors_of_jackknife(scores)
            self.lead_errors[predictor] = errors_of_jackknife(leads)

    def scores(self, predictor, indices):
        """The scores of a predictor for some examples: {metric: percent}."""
        return scores_of_examples(self.task, self.dataset, self.predictions[predictor], indices)

    def score(self, predictor, file_name, metric):
        """The `baseline_scores.Score` of a predictor."""
        value = self.scores(predictor, self.indices)[metric]
        return Score(predictor, file_name, metric, value, self.errors[predictor][metric])

    def with_lead(self, result):
        """A Result that knows its predictor's lead over the baseline.

        The standard error of the lead is paired by examples.
        """
        baseline_score = self.scores(self.baseline, self.indices)[result.metric]
        lead = float(np.median(result.bounded)) - baseline_score
        lead_error = self.lead_errors[result.predictor][result.metric]
        return replace(result, lead=lead, lead_error=lead_error)


def difference(scores, others):
    """{metric: score} minus the same of another."""
    return {metric: score - others[metric] for metric, score in scores.items()}
