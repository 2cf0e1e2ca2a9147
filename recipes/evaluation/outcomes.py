"""Records of an evaluation: the outcome of every example, one npz a model, and from them a tidy table of scores.

Letters in shapes: N examples, L + 1 layers with the embeddings, F folds, R repetitions.

The array `origin` identifies the model. The arrays of a task are called TASK/NAME:
    targets, folds      (N,)
    FEATURE             answers: what was predicted from it, (L + 1, N), or (1, N) where it has no layers
    FEATURE/layers      (F,), the layer that the training folds select for each test fold
    few_shot            scores, (SHOTS, R)
or, of minimal pairs:
    pairs, groups       (N,), how each was decided, and its group
"""

import json
import os
import zipfile
import zlib

import numpy as np

from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write

from .few_shot import SHOTS
from .minimal_pairs import shares
from .probes import score

ORIGIN = "origin"  # what an array was made from, as JSON in an array of its own
CHOSEN, LAST = "chosen", "last"  # layers of the table, besides numbers
COLUMNS = ["model", "task", "feature", "layer", "metric", "value"]
PAIRS, GROUPS = "pairs", "groups"
METRICS = {True: "accuracy", False: "100 x Pearson"}


class Records:
    """The arrays of one model in a file, which is rewritten as they come; nothing is measured twice.

    Args:
        path: of the npz file
        model: what identifies the model's files; None to read only
    """

    def __init__(self, path, model=None):
        self.path, self.arrays = path, {}
        self.model = os.path.splitext(os.path.basename(path))[0]
        if os.path.exists(path):
            try:
                with np.load(path) as arrays:
                    self.arrays = dict(arrays)
            except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise UsageError(f"{path}: damaged ({error}); remove it and run again") from None
        if model is not None:
            was = str(self.arrays.setdefault(ORIGIN, np.array(model)))
            self.check({"checkpoint or vocabulary": was}, {"checkpoint or vocabulary": model})

    def check(self, was, now):
        fix = "give the model another name in --names, choose another --dest, or remove the file"
        provenance.check_same(self.path, was, now, fix)

    def has(self, task, name, origin):
        """Whether a measurement is recorded; refuses one that was made from something else than `origin`, a dict."""
        was = self.arrays.get(f"{task}/{name}/{ORIGIN}")
        if was is not None:
            self.check(json.loads(str(was)), origin)
        return was is not None

    def add(self, task, name, origin, arrays):
        """Records {name: array} of a :class:`~evaluation.labelled_tasks.Task`, measured from `origin`."""
        self.write(task.name, name, origin, {"targets": task.targets, "folds": task.folds, **arrays})

    def write(self, task, name, origin, arrays):
        """Records {name: array} of a task by its name."""
        arrays = {**arrays, f"{name}/{ORIGIN}": json.dumps(origin)}
        self.arrays.update({f"{task}/{key}": np.asarray(array) for key, array in arrays.items()})
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        with atomic_write(self.path, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
            for key, array in sorted(self.arrays.items()):  # np.savez writes the time, too
                with file.open(zipfile.ZipInfo(key + ".npy"), "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    def answers(self, task, feature, layer=CHOSEN):
        """What was predicted for each example, (N,), from one layer, the last or the chosen one."""
        rows = self.arrays[f"{task}/{feature}"]
        if layer == CHOSEN and f"{task}/{feature}/layers" in self.arrays:
            layers, folds = self.arrays[f"{task}/{feature}/layers"], self.arrays[f"{task}/folds"]
            return rows[layers[folds], np.arange(rows.shape[1])]
        return rows[-1 if layer in (CHOSEN, LAST) else layer]

    def table(self):
        """The scores: list of dicts of COLUMNS; few-shot scores are means over repetitions."""
        rows, arrays = [], dict(sorted(self.arrays.items()))
        for task in dict.fromkeys(key.split("/")[0] for key in arrays if "/" in key):
            if f"{task}/{PAIRS}" in arrays:
                share, parts = shares(arrays[f"{task}/{PAIRS}"], arrays[f"{task}/{GROUPS}"])
                for feature, value in {"": share, **parts}.items():
                    feature = f"{PAIRS}: {feature}" if feature else PAIRS
                    rows.append(dict(zip(COLUMNS, [self.model, task, feature, LAST, METRICS[True], round(value, 4)])))
                continue
            targets = self.arrays[f"{task}/targets"]

            def add(feature, layer, value, task=task, metric=METRICS[targets.dtype.kind != "f"]):
                rows.append(dict(zip(COLUMNS, [self.model, task, feature, layer, metric, round(value, 4)])))

            for key, array in arrays.items():
                of, _, name = key.partition("/")
                if of != task or "/" in name or name in ("targets", "folds"):
                    continue
                if name == "few_shot":
                    for shots, values in zip(SHOTS, array):
                        add(f"{shots} examples per class", CHOSEN, float(values.mean()))
                    continue
                for layer in [*(range(len(array)) if len(array) > 1 else ()), LAST, CHOSEN]:
                    add(name, layer, score(self.answers(task, name, layer), targets))
        return rows
