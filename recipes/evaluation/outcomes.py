"""Records of an evaluation: for each model and task a JSON record, and the outcome of each example as npz.

Letters in shapes: N examples, L + 1 layers with the embeddings, F folds.
"""

import os
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import numpy as np

from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write, read_json, save_json

from .intervals import Paired, contributions

FROZEN = "frozen"  # the record of the probes; those of fine-tuning have names of their own
CHOSEN, LAST = "chosen", "last"  # how a layer is selected
SHARED = ["ids", "targets", "folds"]  # by all outcomes of a task
EXPECTED = "a record of recipes/evaluate.sh"


@dataclass
class Record:
    """The JSON record."""

    model: str
    task: str
    metric: str
    kinds: List[str]
    made_from: Dict[str, Any]
    scores: Dict[str, Any]
    few_shot: Optional[Dict[str, List[float]]] = None


@dataclass
class Outcome:
    """The outcome of each example of a task for one model, from one kind of representation."""

    record: dict  # with the model, the task and the metric
    ids: np.ndarray  # (N,), as targets and folds those of the task
    targets: np.ndarray
    folds: np.ndarray
    answers: np.ndarray  # what was predicted, (L + 1, N)
    layers: np.ndarray  # (F,), the layer that the training folds select for each test fold

    @property
    def is_class(self):
        return self.record["metric"] == "accuracy"

    def select(self, rows, selection=CHOSEN):
        """The values of one layer, CHOSEN inside the training folds, LAST, or that of a number: (L + 1, N) -> (N,)."""
        if selection == CHOSEN:
            return rows[self.layers[self.folds], np.arange(len(self.folds))]
        return rows[-1 if selection == LAST else selection]

    def contributions(self, selection=CHOSEN):
        """The contribution of each example to the score, which is their mean: (N,)."""
        return contributions(self.select(self.answers, selection), self.targets, self.is_class)

    def score(self, selection=CHOSEN):
        """Accuracy in percent, or 100 x Pearson."""
        return float(self.contributions(selection).mean())

    def by_layer(self):
        return [self.score(layer) for layer in range(len(self.answers))]

    def summary(self):
        """The scores, for the record."""
        return {
            **{selection: round(self.score(selection), 4) for selection in (CHOSEN, LAST)},
            "chosen_layers": self.layers.tolist(),
            "by_layer": [round(score, 4) for score in self.by_layer()],
        }


def record_path(dest, model, task, record=FROZEN):
    """The JSON file of a record; its arrays are beside it, as .npz."""
    return os.path.join(dest, "records", model, task, record + ".json")


def is_done(path, origin):
    """Whether a record exists; if so, refuses one that was made from something else than `origin`, {title: digest}."""
    if not os.path.exists(path):
        return False
    fix = "give the model another name in --names, choose another --dest, or remove "
    fix += os.path.dirname(os.path.dirname(path))
    provenance.check_same(path, read_json(path, Record, EXPECTED).made_from, origin, fix)
    return True


def save(path, model, task, kinds, origin, **more):
    """Writes the outcomes of a model on a task, then their record, which completes them.

    Args:
        path: of the record
        model: its name
        task: :class:`~evaluation.labelled_tasks.Task`
        kinds: {kind of representation: {"answers": (L + 1, N), "layers": (F,)}}
        origin, more: what it depends on, as for :func:`is_done`, and other fields of the record
    """
    shared = {name: getattr(task, name) for name in SHARED}
    arrays, scores = dict(shared), {}
    record = dict(model=model, task=task.name, metric=task.metric, kinds=list(kinds), made_from=origin, **more)
    for kind, each in kinds.items():
        answers, layers = each["answers"].astype(np.float32), each["layers"]
        arrays.update({f"{kind}_answers": answers, f"{kind}_layers": layers})
        scores[kind] = Outcome(record, **shared, answers=answers, layers=layers).summary()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with atomic_write(arrays_path(path), "wb") as stream:
        np.savez_compressed(stream, **arrays)
    save_json({**record, "scores": scores}, path)


def arrays_path(path):
    return os.path.splitext(path)[0] + ".npz"


def read(path):
    """Reads a record: the record, and {kind: :class:`Outcome`}; refuses a damaged one."""
    record, kinds = vars(read_json(path, Record, EXPECTED)), {}
    try:
        with np.load(arrays_path(path)) as arrays:
            shared = [arrays[name] for name in SHARED]
            for kind in record["kinds"]:
                kinds[kind] = Outcome(record, *shared, arrays[f"{kind}_answers"], arrays[f"{kind}_layers"])
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{arrays_path(path)}: damaged ({error}); remove {path} and run again") from None
    return record, kinds


def pair(ours, theirs, selection=CHOSEN):
    """The differences between two arms on a task: :class:`~evaluation.intervals.Paired`.

    Args:
        ours, theirs: lists of :class:`Outcome` of the same examples, one for each seed, in the same order
        selection: of the layer, as for :meth:`Outcome.select`
    """
    first = ours[0]
    for other in [*ours, *theirs]:
        if not (np.array_equal(other.ids, first.ids) and np.array_equal(other.folds, first.folds)):
            names = f"{first.record['model']} and {other.record['model']}"
            raise UsageError(f"{names}: evaluated on different examples of {first.record['task']}; evaluate both again")
    differences = [a.contributions(selection) - b.contributions(selection) for a, b in zip(ours, theirs)]
    return Paired(np.stack(differences), first.ids)
