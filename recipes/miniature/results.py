"""Reads the results of the jobs."""

import csv

import numpy as np

from evaluation import outcomes
from evaluation.report import Report, mean_error
from maelm_fairseq.files import read_json
from training_log import VALIDATIONS

MADE_BY = "a result of recipes/reproduce.sh"
BASELINES = {"random-weights": "random weights", "pieces": "counts of pieces"}  # of recipes/evaluate.sh


class Results:
    """The results of the jobs that are done; those of other jobs count as missing.

    Args:
        experiment: :class:`~experiment.Experiment`
        actions: :class:`~actions.Actions`
        done: list of the :class:`~jobs.Job` that are done

    `rank_rows` has the rows of a model's ranks.csv, sorted by name: {name: list of dicts}; `tables` is the
    :class:`~evaluation.report.Report` of all evaluations.
    """

    def __init__(self, experiment, actions, done):
        self.experiment, self.path = experiment, actions.path
        names = sorted(job.subject for job in done if job.kind == "ranks")
        self.rank_rows = {name: self.read_ranks(name) for (name,) in names}
        evaluated = [name for job in done if job.kind == "evaluate" for name in job.subject]
        if experiment.compared()[0].name in evaluated:
            evaluated += BASELINES
        records = {name: actions.evaluation_records(name) for name in evaluated}
        self.tables = Report(
            {name: {task: outcomes.read(path) for task, path in each.items()} for name, each in records.items()}
            or {"": {}}
        )

    def read_ranks(self, name):
        with open(self.path("ranks", name, "ranks.csv"), encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        for row in rows:
            row.update(layer=int(row["layer"]), rank=int(row["rank"]), tau=float(row["tau"]))
        return rows

    def ranks(self, name):
        """The ranks of a model: {(family, layer): rank}."""
        return {(row["family"], row["layer"]): row["rank"] for row in self.rank_rows[name]}

    def gap(self, name, layer):
        """The rank of inputs with [MASK] minus that of inputs without."""
        return self.ranks(name)["with_mask", layer] - self.ranks(name)["without_mask", layer]

    def mask_dimensions(self, name):
        """By layer, the dimensions of [MASK] outside the span of the real tokens."""
        with open(self.path("ranks", name, "mask_dimensions.csv"), encoding="utf-8") as stream:
            return [float(row["mask_outside_real"]) for row in csv.DictReader(stream)]

    def is_evaluated(self, name):
        return name in self.tables.results

    def scores(self, name):
        """{task: score} of a model's frozen features."""
        return {task: kinds["mean"].score() for task, (_, kinds) in self.tables.results[name].items()}

    def score(self, name):
        """The mean over tasks of a model's scores, and its standard error, as far as it comes from the examples."""
        found = self.tables.outcomes(name, "mean")
        return float(np.mean([outcome.score() for outcome in found])), mean_error(found)

    def validations(self, name):
        """What :func:`pretraining_record` gave for a run."""
        return read_json(self.path("pretraining", name, "record.json"), MADE_BY, VALIDATIONS)

    def last_validation(self, name):
        """The validation after the last update."""
        return self.validations(name)[-1]
