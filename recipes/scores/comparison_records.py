"""The records of a comparison that are kept in the repository: all that the report needs, some kilobytes a run.

RUN.json has the validations, effective ranks and scores; RUN.npz the outcome of each example, which intervals need: for
each task and representation whether the answer was right, a bit, or the predicted value in half precision. tasks.npz
has what all runs share: the hash of each example, and the values to predict.

Letters in shapes: N examples.
"""

import contextlib
import csv
import os

import numpy as np

from evaluation import outcomes
from evaluation.fine_tuning import KINDS
from evaluation.outcomes import CHOSEN
from evaluation.statistics import pearson_contributions
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import atomic_write, one_at_a_time, read_json, save_json

MADE_BY = "a record of recipes/scores.sh"
FINE_TUNED = KINDS["mean"]
EACH_EXAMPLE = ("mean", FINE_TUNED)  # the kinds of outcomes of which each example is kept


class Kept:
    """The outcomes of a task for one model: what a report asks of :class:`~evaluation.outcomes.Outcome`.

    Args:
        scores: numbers by selection
        answers: (N,), whether they are right, or values; None if only numbers are kept
        ids: (N,) of the examples
        targets: (N,) values to predict; None for classes
    """

    def __init__(self, scores, answers, ids, targets):
        self.scores, self.answers, self.ids, self.targets = scores, answers, ids, targets
        self.folds = None

    def contributions(self):
        """What each example contributes to the score, in percent; their mean is the score: (N,)."""
        if self.targets is None:
            return 100.0 * self.answers
        return pearson_contributions(self.answers.astype(np.float64), self.targets)

    def score(self, selection=CHOSEN):
        """Accuracy in percent, or 100 x Pearson; CHOSEN or LAST, of :mod:`evaluation.outcomes`."""
        return self.scores[selection]

    def by_layer(self):
        """The score of each layer."""
        return self.scores["by_layer"]


class Records:
    """A folder of records.

    Args:
        comparison: :class:`~comparison.Comparison`
        folder: its path, in which the comparison has a folder of its name
    """

    def __init__(self, comparison, folder):
        self.comparison, self.folder = comparison, os.path.join(os.path.abspath(folder), comparison.name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, run):
        """The numbers of a run; empty if nothing is kept of it."""
        path = self.path(run.name + ".json")
        return read_json(path, MADE_BY, dict) if os.path.exists(path) else {}

    def has(self, run, part, options):
        """Whether a part of a run is kept: "ranks", "scores" or "fine-tuning".

        Raises:
            UsageError: the run was trained with other options
        """
        found = self.read(run)
        if found and found["options"] != options:
            raise UsageError(
                f"{self.path(run.name)}.json: made with other options ({' '.join(found['options'])}) than the plan's "
                f"({' '.join(options)}); choose another --records"
            )
        if part == "fine-tuning":
            tasks = self.comparison.fine_tuned_tasks
            return all(FINE_TUNED in found.get("scores", {}).get(task, {}) for task in tasks)
        return part in found

    def begin(self, run, **numbers):
        """Keeps the numbers of a training, in place of all that is kept of an earlier one."""
        os.makedirs(self.folder, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path(run.name + ".npz"))
        save_json(numbers, self.path(run.name + ".json"))

    def add(self, run, **more):
        """Adds numbers to the record of a run."""
        with one_at_a_time(self.folder):
            save_json({**self.read(run), **more}, self.path(run.name + ".json"))

    def add_ranks(self, run, folder):
        """Adds the tables of maelm_fairseq.effective_rank: ranks by layer, {tau: {family: [...]}}."""
        ranks, outside = {}, {}
        with open(os.path.join(folder, "ranks.csv"), encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                ranks.setdefault(row["tau"], {}).setdefault(row["family"], []).append(int(row["rank"]))
        with open(os.path.join(folder, "mask_dimensions.csv"), encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                outside.setdefault(row["tau"], []).append(float(row["mask_outside_real"]))
        self.add(run, ranks=ranks, mask_outside_real=outside)

    def add_outcomes(self, run, paths):
        """Adds the outcomes of an evaluation.

        Args:
            paths: {task: record of recipes/evaluate.sh}
        """
        kept, numbers = self._arrays(run.name), self.read(run)
        scores, shared = numbers.get("scores", {}), {}
        for task, path in paths.items():
            record, found = outcomes.read(path)
            mine = scores.setdefault(task, {})
            mine.update(record["scores"])
            if record.get("few_shot"):
                mine["few_shot"] = record["few_shot"]
            for kind in EACH_EXAMPLE:
                if kind in found:
                    kept[f"{task} {kind}"] = self._each(found[kind])
            outcome = next(iter(found.values()))
            shared[f"{task} ids"] = outcome.ids.astype(np.uint32)
            if record["metric"] != "accuracy":
                shared[f"{task} targets"] = outcome.targets.astype(np.float32)
        self._share(run, shared)
        self._save(run.name, kept)
        self.add(run, scores=scores)

    @staticmethod
    def _each(outcome):
        """What is kept of each example: bits, packed, or float16 (N,)."""
        answers = outcome.select(outcome.answers, CHOSEN)
        if outcome.record["metric"] == "accuracy":
            return np.packbits(answers == outcome.targets)
        return answers.astype(np.float16)

    def _share(self, run, arrays):
        """Keeps what all runs share, and refuses other examples."""
        with one_at_a_time(self.folder):
            before = self._arrays("tasks")
            for name, array in arrays.items():
                if name in before and not np.array_equal(before[name], array):
                    raise UsageError(
                        f"{self.path('tasks.npz')}: {run.name} was evaluated on other examples of {name.split()[0]} "
                        "than the runs before; choose another --records"
                    )
            self._save("tasks", {**before, **arrays})

    def _arrays(self, name):
        path = self.path(name + ".npz")
        if not os.path.exists(path):
            return {}
        with np.load(path) as arrays:
            return {key: arrays[key] for key in arrays.files}

    def _save(self, name, arrays):
        with atomic_write(self.path(name + ".npz"), "wb") as stream:
            np.savez_compressed(stream, **dict(sorted(arrays.items())))

    def outcomes(self, run):
        """The outcomes of a run, as a report takes them: {task: (record, {kind: Kept})}; None if it has none."""
        scores, arrays, tasks = self.read(run).get("scores"), self._arrays(run.name), self._arrays("tasks")
        if not scores:
            return None
        found = {}
        for task in self.comparison.tasks:
            ids, targets, kinds = tasks[f"{task} ids"], tasks.get(f"{task} targets"), {}
            for kind, numbers in scores[task].items():
                answers = arrays.get(f"{task} {kind}")
                if answers is not None and targets is None:
                    answers = np.unpackbits(answers, count=len(ids)).astype(bool)
                if kind != "few_shot":
                    kinds[kind] = Kept(numbers, answers, ids, targets)
            found[task] = {"model": run.name, "task": task, "few_shot": scores[task].get("few_shot")}, kinds
        return found
