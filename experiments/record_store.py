"""The records of a comparison, committed to the repository: all that its page needs, some kilobytes per run.

RUN.json has the options, validations, effective ranks and scores; RUN.npz the outcome of each example, which intervals
need: for each task and representation whether the answer was right, as a bit, or the predicted value in half precision.
tasks.npz has what all runs share: the hash of each example, and the values to predict. chosen-MODEL.json has the
learning rate that the pilots selected. probe_checkpoints.py writes later-scores.json, measure_cost.py cost.json.
"""

import contextlib
import os

import numpy as np

from evaluation import outcomes
from evaluation.outcomes import Outcome
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write, one_at_a_time, read_json, save_json
from preregistration import FINE_TUNED_TASKS, LEARNING_RATES

FINE_TUNED = "fine-tuned-mean"
EACH_EXAMPLE = ("mean", FINE_TUNED)  # the kinds of outcomes of which each example is kept
EXPECTED = "a record of a comparison"
RECORDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "records")
PROBED, COST = "later-scores", "cost"


class Records:
    """A folder of records.

    Args:
        comparison: :class:`~preregistration.Comparison`
        folder: its path, in which the comparison has a folder of its name
    """

    def __init__(self, comparison, folder):
        self.comparison, self.folder = comparison, os.path.join(os.path.abspath(folder), comparison.name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        """A JSON file of the folder, by its name without the extension; empty if there is none."""
        path = self.path(name + ".json")
        return read_json(path, list if name == COST else dict, EXPECTED) if os.path.exists(path) else {}

    def save(self, name, value):
        """Writes a JSON file of the folder."""
        os.makedirs(self.folder, exist_ok=True)
        save_json(value, self.path(name + ".json"))

    def learning_rate(self, model):
        """The learning rate that the pilots of a model selected; None while they have not run."""
        return self.read(f"chosen-{model.name}").get("lr")

    def keep_learning_rate(self, model, losses):
        """Records the learning rate with the lowest of the pilots' losses, which are in the order of LEARNING_RATES."""
        by_rate = dict(zip(LEARNING_RATES, losses))
        self.save(f"chosen-{model.name}", dict(lr=min(by_rate, key=by_rate.get), losses=by_rate))

    def keep_probed(self, name, task, scores):
        """Records the scores of a model, called `name`, on a task: {"chosen": number, "by_layer": list}."""
        os.makedirs(self.folder, exist_ok=True)
        with one_at_a_time(self.folder):
            probed = self.read(PROBED)
            probed.setdefault(name, {})[task] = scores
            self.save(PROBED, probed)

    def has(self, run, kind="mean"):
        """Whether a run has a record with all scores: of frozen features, or of fine-tuning for FINE_TUNED."""
        scores = self.read(run.name).get("scores", {})
        tasks = FINE_TUNED_TASKS if kind == FINE_TUNED else self.comparison.tasks
        return all(kind in scores.get(task, {}) for task in tasks)

    def check(self, run, options):
        """Refuses a record of a run that was trained with other options."""
        record = self.read(run.name)
        now, was = provenance.by_option(options), provenance.by_option(record.get("options", options))
        provenance.check_same(self.path(run.name + ".json"), was, now, "choose another --records")

    def keep(self, run, numbers):
        """Starts the record of a run with options, validations and ranks; replaces an earlier one."""
        self.save(run.name, numbers)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(run.name + ".npz"))

    def add(self, run, paths):
        """Adds outcomes to the record of a run.

        Args:
            paths: list of records of recipes/evaluate.sh
        Raises:
            UsageError: the run was evaluated on other examples than the runs before
        """
        with one_at_a_time(self.folder):
            numbers, arrays, shared = self.read(run.name), self._arrays(run.name), self._arrays("tasks")
            scores = numbers.setdefault("scores", {})
            for path in paths:
                record, measured = outcomes.read(path)
                task = record["task"]
                scores.setdefault(task, {}).update(record["scores"])
                if record.get("few_shot"):
                    scores[task]["few_shot"] = record["few_shot"]
                arrays.update({f"{task} {kind}": packed(measured[kind]) for kind in EACH_EXAMPLE if kind in measured})
                self._share(run, shared, task, next(iter(measured.values())))
            for name, each in [("tasks", shared), (run.name, arrays)]:
                with atomic_write(self.path(name + ".npz"), "wb") as stream:
                    np.savez_compressed(stream, **dict(sorted(each.items())))
            self.save(run.name, numbers)

    def _share(self, run, shared, task, outcome):
        """Adds what all runs share of a task, or refuses other examples."""
        mine = {f"{task} ids": outcome.ids.astype(np.uint32)}
        if not outcome.is_class:
            mine[f"{task} targets"] = outcome.targets.astype(np.float32)
        for name, array in mine.items():
            if not np.array_equal(shared.setdefault(name, array), array):
                raise UsageError(
                    f"{self.path('tasks.npz')}: {run.name} was evaluated on other examples of {task} than the runs "
                    "before; choose another --records"
                )

    def _arrays(self, name):
        path = self.path(name + ".npz")
        if not os.path.exists(path):
            return {}
        with np.load(path) as arrays:
            return dict(arrays)

    def outcomes(self, run):
        """The outcomes of a run, for :class:`evaluation.report.Report`: {task: (record, {kind: Outcome})}.

        They have one layer, the selected one; the scores of the others are among the numbers.
        """
        arrays, shared, by_task = self._arrays(run.name), self._arrays("tasks"), {}
        for task in self.comparison.tasks:
            ids, targets = shared[f"{task} ids"], shared.get(f"{task} targets")
            record = dict(model=run.name, task=task, metric="accuracy" if targets is None else "100 x Pearson")
            folds, kinds = np.zeros(len(ids), np.int64), {}
            for kind in EACH_EXAMPLE:
                answers, expected = arrays.get(f"{task} {kind}"), targets
                if answers is not None and targets is None:
                    answers, expected = np.unpackbits(answers, count=len(ids)), np.ones(len(ids), np.uint8)
                if answers is not None:
                    kinds[kind] = Outcome(record, ids, expected, folds, answers[None], folds[:1])
            by_task[task] = record, kinds
        return by_task


def packed(outcome):
    """What is recorded of the N examples: bits, eight per byte, or float16 (N,)."""
    answers = outcome.select(outcome.answers)
    return np.packbits(answers == outcome.targets) if outcome.is_class else answers.astype(np.float16)
