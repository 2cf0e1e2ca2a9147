"""Scores in validation: predictions of all processes, gathered, scored and logged.

fairseq logs each batch into all aggregators of metrics that are active: one for the batch, one for
the whole validation. Each gets the scores of the examples that were logged into it.
"""

import math

from ..distributed import from_all_processes
from ..fairseq_api import MetersDict, metrics

METER = "_scores"  # fairseq does not print names that begin so


class ValidationScores:
    """What a model predicts in the validation of a split, in all processes, and its scores.

    Args:
        task: `FineTuningTask`
    """

    def __init__(self, task):
        self.task = task
        self.split = None  # the one that is validated, or was last
        self.predictions = {}  # {index of a sequence: prediction}, of this split
        self._indices_to_log = []  # of examples, since scores were last logged

    def gather(self, split, predictions):
        """Adds the predictions of all processes, {index of a sequence: prediction} of each.

        All processes call it at the same time, each with those for a batch of its own.
        """
        if split != self.split:
            self.split = split
            self.predictions = {}
        for process_predictions in from_all_processes(predictions):
            self.predictions.update(process_predictions)
            self._indices_to_log += process_predictions

    def log(self):
        """Logs the scores of what was added since the last call, if anything was."""
        if not self._indices_to_log:
            return
        metrics.log_custom(lambda: ScoresMeter(self), METER, self._indices_to_log)
        for name in self.task.datasets[self.split].metrics:
            metrics.log_derived(name, lambda meters, name=name: meters[METER].logged(name))
        self._indices_to_log = []

    def compute_scores(self, indices):
        """The scores of the predictions for some examples: {metric: percent}."""
        predictions = {index: self.predictions[index] for index in indices}
        return self.task.compute_scores(self.task.datasets[self.split], predictions)


# A derived meter: the other kinds are saved with a run, and must then be of fairseq's own classes.
class ScoresMeter(MetersDict._DerivedMeter):
    """The scores of the examples that were logged into one aggregator."""

    def __init__(self, validation):
        super().__init__(lambda meters: len(self.indices))
        self.validation = validation
        self.indices = {}  # of examples; the keys, in order
        self._scores = None

    def update(self, indices):
        self.indices.update(dict.fromkeys(indices))
        self._scores = None

    def scores(self):
        """{metric: percent}."""
        if self._scores is None:
            self._scores = self.validation.compute_scores(self.indices)
        return self._scores

    def logged(self, name):
        """A score as fairseq compares it to choose the best checkpoint: 0 where it is undefined."""
        value = self.scores().get(name, math.nan)
        if math.isnan(value):
            return 0.0
        return round(value, 2)
