"""Reads the results of the jobs."""

import csv
import math
import os
import statistics

from finetune_results import metrics_in_percent
from maelm_fairseq.files import read_json
from training_log import VALIDATIONS

MADE_BY = "a result of recipes/reproduce.sh"


def difference(ours, theirs):
    """The difference of the means of two lists of scores, and its standard error (nan for single scores)."""
    error = math.nan
    if min(len(ours), len(theirs)) > 1:
        error = math.sqrt(statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs))
    return statistics.mean(ours) - statistics.mean(theirs), error


class Results:
    """The results of the jobs that are done; those of other jobs count as missing.

    Args:
        experiment: :class:`~experiment.Experiment`
        folder: of the reproduction
        done: list of the :class:`~jobs.Job` that are done

    `rank_rows` has the rows of a model's ranks.csv: {name: list of dicts}; `metrics` those of each fine-tuning seed, in
    percent: {(name, task): list of dicts}. Both are sorted.
    """

    def __init__(self, experiment, folder, done):
        self.experiment, self.folder = experiment, folder
        names = sorted(job.subject for job in done if job.kind == "ranks")
        self.rank_rows = {name: self.read_ranks(name) for (name,) in names}
        names = sorted(job.subject for job in done if job.kind == "finetune")
        self.metrics = {
            (name, task): read_json(self.path("finetuning", name, task + ".json"), MADE_BY, [metrics_in_percent])
            for name, task in names
        }

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

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

    def scores(self, name, task):
        """The first metric of each fine-tuning seed, in percent; empty where that is not done."""
        return [next(iter(metrics.values())) for metrics in self.metrics.get((name, task), [])]

    def metric(self, task):
        """The name of a task's first metric."""
        run = self.experiment.compared()[0]
        return next(iter(self.metrics[run.name, task][0]))

    def model_scores(self, model, task):
        """The scores of all seeds of a model of the comparison."""
        runs = [run for run in self.experiment.compared() if run.model == model]
        return [score for run in runs for score in self.scores(run.name, task)]

    def validations(self, name):
        """What :func:`pretraining_record` gave for a run."""
        return read_json(self.path("pretraining", name, "record.json"), MADE_BY, VALIDATIONS)

    def last_validation(self, name):
        """The validation after the last update."""
        return self.validations(name)[-1]
