"""The scores of a predictor on the examples of a split, its lead over another one, and the standard
errors of both."""

import itertools

from ..finetuning.jackknife import jackknife_errors, leave_groups_out


class SplitScores:
    """The scores of a predictor on the examples of a split that have labels.

    Args:
        task: a `finetuning_task.FineTuningTask` that has read the split
        split: split of the examples
        predictions: {index of a sequence: prediction}, of all examples that have labels

    Attributes:
        split, predictions: as given
        values: {metric: percent}
        standard_errors: {metric: standard error over examples}
    """

    def __init__(self, task, split, predictions):
        dataset = task.datasets[split]
        sequences = dataset.sequences_of_examples()

        def score_subset(examples):
            kept = itertools.chain.from_iterable(sequences[example] for example in examples)
            return task.compute_scores(dataset, {index: predictions[index] for index in kept})

        self.split = split
        self.predictions = predictions
        self.values = score_subset(sequences)
        self.jackknife_scores = leave_groups_out(score_subset, [*sequences], task.jackknife_groups)
        self.standard_errors = jackknife_errors(self.jackknife_scores)

    def lead_standard_errors(self, baseline):
        """The standard errors of the lead over the `SplitScores` of another predictor.

        They are paired by examples.

        Returns: {metric: standard error}
        """
        leads = []
        for scores, baseline_scores in zip(self.jackknife_scores, baseline.jackknife_scores):
            leads.append(
                {metric: value - baseline_scores[metric] for metric, value in scores.items()}
            )
        return jackknife_errors(leads)
