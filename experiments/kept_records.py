"""The records of a comparison that are kept in the repository: all that its page needs, some kilobytes a run.

RUN.json has the options, validations, effective ranks and scores; RUN.npz the outcome of each example, which intervals
need: for each task and representation whether the answer was right, a bit, or the predicted value in half precision.
tasks.npz has what all runs share: the hash of each example, and the values to predict. chosen-MODEL.json has the
learning rate that pilots decided.

Letters in shapes: N examples.
"""

import csv
import json
import os

import numpy as np

from comparison import FINE_TUNED_TASKS
from evaluation import outcomes
from evaluation.fine_tuning import KINDS
from evaluation.outcomes import CHOSEN, Outcome
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import atomic_write, one_at_a_time, save_json

FINE_TUNED = KINDS["mean"]
EACH_EXAMPLE = ("mean", FINE_TUNED)  # the kinds of outcomes of which each example is kept


def load(path):
    """What a JSON file says."""
    with open(path, encoding="utf-8") as stream:
        try:
            return json.load(stream)
        except ValueError as error:
            raise UsageError(f"{path}: damaged ({error}); remove it, or take it from the repository again") from None


def read_ranks(folder):
    """The tables of maelm_fairseq.effective_rank: ranks by layer, {tau: {family: [...]}}, and [MASK]'s own dimensions.

    Returns:
        {"ranks": ..., "mask_outside_real": {tau: [...]}}
    """
    ranks, outside = {}, {}
    with open(os.path.join(folder, "ranks.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            ranks.setdefault(row["tau"], {}).setdefault(row["family"], []).append(int(row["rank"]))
    with open(os.path.join(folder, "mask_dimensions.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            outside.setdefault(row["tau"], []).append(float(row["mask_outside_real"]))
    return {"ranks": ranks, "mask_outside_real": outside}


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

    def chosen(self, model):
        """The file of what the pilots of a model decided."""
        return self.path(f"chosen-{model.name}.json")

    def read(self, run):
        """The numbers of a run; empty if nothing is kept of it."""
        path = self.path(run.name + ".json")
        return load(path) if os.path.exists(path) else {}

    def has(self, run, part, options=None):
        """Whether a part of a run is kept: "ranks", "scores" or "fine-tuning".

        Args:
            options: what the run is to be trained with; None not to compare
        Raises:
            UsageError: the run was trained with other options
        """
        found = self.read(run)
        if found and options and found["options"] != options:
            raise UsageError(
                f"{self.path(run.name)}.json: made with other options ({' '.join(found['options'])}) than the plan's "
                f"({' '.join(options)}); choose another --records"
            )
        if part == "ranks":
            return part in found
        tuning = part == "fine-tuning"
        tasks = FINE_TUNED_TASKS if tuning else self.comparison.tasks
        return all((FINE_TUNED if tuning else "mean") in found.get("scores", {}).get(task, {}) for task in tasks)

    def keep(self, run, numbers, paths):
        """Adds to the record of a run; replaces that of another training.

        Args:
            numbers: options and validations, and what :func:`read_ranks` gave if that is measured
            paths: list of records of recipes/evaluate.sh
        Raises:
            UsageError: the run was evaluated on other examples than the runs before
        """
        os.makedirs(self.folder, exist_ok=True)
        with one_at_a_time(self.folder):
            before, arrays, shared = self.read(run), self._arrays(run.name), self._arrays("tasks")
            if any(before.get(name) != numbers[name] for name in ("options", "validations")):
                before, arrays = {}, {}
            scores = json.loads(json.dumps(before.get("scores", {})))
            for path in paths:
                record, found = outcomes.read(path)
                task = record["task"]
                scores.setdefault(task, {}).update(record["scores"])
                if record.get("few_shot"):
                    scores[task]["few_shot"] = record["few_shot"]
                arrays.update({f"{task} {kind}": each(found[kind]) for kind in EACH_EXAMPLE if kind in found})
                self._share(run, shared, task, next(iter(found.values())))
            after = {**before, **numbers, **({"scores": scores} if scores else {})}
            if json.loads(json.dumps(after)) != before:
                if paths:
                    self._save("tasks", shared)
                    self._save(run.name, arrays)
                save_json(after, self.path(run.name + ".json"))

    def _share(self, run, shared, task, outcome):
        """Adds what all runs share of a task, or refuses other examples."""
        mine = {f"{task} ids": outcome.ids.astype(np.uint32)}
        if outcome.record["metric"] != "accuracy":
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
            return {key: arrays[key] for key in arrays.files}

    def _save(self, name, arrays):
        with atomic_write(self.path(name + ".npz"), "wb") as stream:
            np.savez_compressed(stream, **dict(sorted(arrays.items())))

    def outcomes(self, run):
        """The outcomes of a run, for :class:`evaluation.report.Report`: {task: (record, {kind: Outcome})}.

        They have one layer, which is that chosen; the scores of others are among the numbers.
        """
        arrays, shared, found = self._arrays(run.name), self._arrays("tasks"), {}
        for task in self.comparison.tasks:
            ids, targets = shared[f"{task} ids"], shared.get(f"{task} targets")
            record = dict(model=run.name, task=task, metric="accuracy" if targets is None else "100 x Pearson")
            zeros, kinds = np.zeros(len(ids), np.int64), {}
            for kind in EACH_EXAMPLE:
                answers = arrays.get(f"{task} {kind}")
                if answers is not None:
                    if targets is None:
                        answers = np.unpackbits(answers, count=len(ids)).astype(bool)
                    values = dict(ids=ids, folds=zeros, targets=np.ones(len(ids), bool) if targets is None else targets)
                    values.update({f"{kind}_answers": answers[None], f"{kind}_bits": None, f"{kind}_layers": zeros[:1]})
                    kinds[kind] = Outcome(record, values, kind)
            found[task] = record, kinds
        return found


def each(outcome):
    """What is kept of each example: bits, packed, or float16 (N,)."""
    answers = outcome.select(outcome.answers, CHOSEN)
    if outcome.record["metric"] == "accuracy":
        return np.packbits(answers == outcome.targets)
    return answers.astype(np.float16)
