"""Records of what was measured: for each model and task a JSON record, and the outcome of each example in an npz.

Letters in shapes: N examples, L + 1 layers with the embeddings, F folds.
"""

import os
import zipfile

import numpy as np

from made_from import check as check_made_from
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import atomic_write, read_json, save_json

from .statistics import Paired, pearson_contributions

FROZEN = "frozen"  # the record of the probes; those of fine-tuning have names of their own
CHOSEN, LAST = "chosen", "last"  # how a layer is selected
MADE_BY = "a record of recipes/evaluate.sh"


def record_path(dest, model, task, record=FROZEN):
    """The JSON file of a record; its arrays are beside it, as .npz."""
    return os.path.join(dest, "records", model, task, record + ".json")


def is_done(path, made_from):
    """Whether a record exists.

    Args:
        made_from: {title: digest} of all that it depends on
    Raises:
        UsageError: it was made from something else
    """
    if not os.path.exists(path):
        return False
    fix = "give the model another name in --names, choose another --dest, or remove "
    fix += os.path.dirname(os.path.dirname(path))
    check_made_from(path, read_json(path, MADE_BY)["made_from"], made_from, fix)
    return True


def save(path, record, arrays):
    """Writes the arrays, then the record, which completes them.

    Args:
        arrays: {name: array}; for each kind in the record KIND_answers and KIND_bits (L + 1, N) and KIND_layers (F,),
            beside ids, targets and folds (N,)
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with atomic_write(path[: -len(".json")] + ".npz", "wb") as stream:
        np.savez_compressed(stream, **arrays)
    save_json(record, path)


class Outcome:
    """The outcome of each example of a task for one model, from one kind of representation.

    Args:
        record: the JSON record
        arrays: those of :func:`save`
        kind: such as "mean"

    Attributes: `record`; `ids`, `targets`, `folds` (N,); `answers`, `bits` (L + 1, N); `layers` (F,).
    """

    def __init__(self, record, arrays, kind):
        self.record = record
        self.ids, self.targets, self.folds = arrays["ids"], arrays["targets"], arrays["folds"]
        self.answers, self.bits = arrays[kind + "_answers"], arrays[kind + "_bits"]
        self.layers = arrays[kind + "_layers"]

    def select(self, rows, selection):
        """The values of one layer: (L + 1, N) -> (N,).

        Args:
            selection: CHOSEN inside the training folds, LAST, or a layer's number
        """
        if selection == CHOSEN:
            return rows[self.layers[self.folds], np.arange(len(self.folds))]
        return rows[-1 if selection == LAST else selection]

    def contributions(self, selection=CHOSEN):
        """What each example contributes to the score, in percent; their mean is the score: (N,)."""
        answers = self.select(self.answers, selection)
        if self.record["metric"] == "accuracy":
            return 100.0 * (answers == self.targets)
        return pearson_contributions(answers.astype(np.float64), self.targets)

    def score(self, selection=CHOSEN):
        """Accuracy in percent, or 100 x Pearson."""
        return float(self.contributions(selection).mean())

    def by_layer(self):
        """The score of each layer."""
        return [self.score(layer) for layer in range(len(self.answers))]

    def mean_bits(self, selection=CHOSEN):
        """The mean log-loss, in bits an example."""
        return float(self.select(self.bits, selection).mean())


def read(path):
    """Reads a record: the record, and {kind: :class:`Outcome`}.

    Raises:
        UsageError: the record or its arrays are damaged
    """
    record, arrays_file = read_json(path, MADE_BY), path[: -len(".json")] + ".npz"
    try:
        with np.load(arrays_file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = {kind: Outcome(record, arrays, kind) for kind in record["kinds"]}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{arrays_file}: damaged ({error}); remove {path} and run again") from None
    return record, found


def pair(ours, theirs, values=Outcome.contributions):
    """The differences of two arms on a task.

    Args:
        ours, theirs: lists of :class:`Outcome`, one for each seed, in the same order
        values: function of an outcome -> (N,)
    Raises:
        UsageError: they are of different examples
    """
    first = ours[0]
    for other in [*ours, *theirs]:
        if not (np.array_equal(other.ids, first.ids) and np.array_equal(other.folds, first.folds)):
            names = f"{first.record['model']} and {other.record['model']}"
            raise UsageError(f"{names}: evaluated on different examples of {first.record['task']}; evaluate both again")
    return Paired(np.stack([values(a) - values(b) for a, b in zip(ours, theirs)]), first.ids)
