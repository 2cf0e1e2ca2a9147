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

import glob
import json
import os

import numpy as np
import pandas as pd

from ..base import provenance
from ..base.files import atomic_write
from ..base.opening import opened, reading
from .few_shot import SHOTS
from .minimal_pairs import shares
from .probes import score

ORIGIN = "origin"  # what an array was made from, as JSON in an array of its own
CHOSEN, LAST = "chosen", "last"  # layers of the table, besides numbers
TEXT = "text"  # the feature of what reads the text itself, without an encoder
COLUMNS = ["model", "task", "feature", "layer", "metric", "value"]
PAIRS, GROUPS = "pairs", "groups"


class Records:
    """The arrays of one model in an npz file, which is rewritten as they come; nothing is measured twice.

    `model` identifies the model's files; None is to read only.
    """

    def __init__(self, path, model=None):
        self.path, self.arrays, was = path, {} if model is None else {ORIGIN: np.array(model)}, model
        self.model = os.path.splitext(os.path.basename(path))[0]
        if os.path.exists(path):
            with opened(path) as stream, self.read(), np.load(stream) as arrays:
                was, self.arrays = str(arrays[ORIGIN]), dict(arrays)
        if model is not None:
            self.check({"checkpoint or vocabulary": was}, {"checkpoint or vocabulary": model})

    def read(self):
        """Errors within the block are the file's, which may be anybody's."""
        return reading(self.path, "the record of an evaluation", "move it away")

    def check(self, was, now):
        fix = "give the model another name in --names, choose another --dest, or remove the file"
        provenance.check_same(self.path, was, now, fix)

    def origin(self, task, name):
        """What a recorded measurement was made from, a dict; None if there is none."""
        key = f"{task}/{name}/{ORIGIN}"
        if key not in self.arrays:
            return None
        with self.read():
            return dict(json.loads(str(self.arrays[key])))

    def has(self, task, name, origin):
        """Whether a measurement is recorded; refuses one that was made from something else than `origin`, a dict."""
        was = self.origin(task, name)
        if was is None:
            return False
        self.check(was, origin)
        return True

    def write(self, task, name, origin, arrays):
        """Records {name: array} of a task by its name, measured from `origin`."""
        arrays = {**arrays, f"{name}/{ORIGIN}": json.dumps(origin)}
        self.arrays.update({f"{task}/{key}": np.asarray(array) for key, array in arrays.items()})
        with atomic_write(self.path, "wb") as stream:
            np.savez_compressed(stream, **dict(sorted(self.arrays.items())))

    def answers(self, task, feature, layer=CHOSEN):
        """What was predicted for each example, (N,), from one layer, the last or the chosen one."""
        with self.read():
            rows = self.arrays[f"{task}/{feature}"]
            if layer == CHOSEN and f"{task}/{feature}/layers" in self.arrays:
                layers, folds = self.arrays[f"{task}/{feature}/layers"], self.arrays[f"{task}/folds"]
                return rows[layers[folds], np.arange(rows.shape[1])]
            return rows[-1 if layer in (CHOSEN, LAST) else layer]

    def table(self):
        """The scores, a DataFrame of COLUMNS; few-shot scores are means over repetitions."""
        with self.read():
            return pd.DataFrame(self.rows(), columns=COLUMNS)

    def rows(self):
        """Yields the rows of `table`."""
        for key, array in sorted(self.arrays.items()):
            task, _, name = key.partition("/")
            if "/" in name or name in ("", "targets", "folds", GROUPS):
                continue
            targets = self.arrays.get(f"{task}/targets")
            if name == PAIRS:
                share, parts = shares(array, self.arrays[f"{task}/{GROUPS}"])
                found = {(name, LAST): share, **{(f"{name}: {group}", LAST): part for group, part in parts.items()}}
            elif name == "few_shot":
                found = {(f"{shots} examples per class", CHOSEN): values.mean() for shots, values in zip(SHOTS, array)}
            else:
                layers = [*(range(len(array)) if len(array) > 1 else ()), LAST, CHOSEN]
                found = {(name, layer): score(self.answers(task, name, layer), targets) for layer in layers}
            metric = "accuracy" if name == PAIRS or targets.dtype.kind != "f" else "100 x Pearson"
            for (feature, layer), value in found.items():
                yield self.model, task, feature, layer, metric, round(float(value), 4)


def all_scores(folder):
    """The scores of all models that have records in a folder, a DataFrame of COLUMNS."""
    tables = [Records(path).table() for path in glob.glob(os.path.join(glob.escape(folder), "*.npz"))]
    return pd.concat(tables).sort_values("model", kind="stable")
