"""The record of a model's evaluation, an npz file: the outcome of every example, and from these a
tidy table of scores.

Letters in shapes: N examples, L + 1 layers with the embeddings, F folds, R repetitions.

The array `origin` identifies the model. The arrays of a task are called TASK/NAME:
    targets, folds      (N,)
    FEATURE             what was predicted from it, (L + 1, N), or (1, N) without layers
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
from ..base.opening import as_usage_error, open_to_read
from .few_shot import SHOTS
from .minimal_pairs import percent_right
from .probes import score_predictions

ORIGIN = "origin"  # what an array was made from, as JSON in an array of its own
CHOSEN_LAYER, LAST_LAYER = "chosen", "last"  # what a layer can be called instead of its number
TEXT_FEATURE = "text"  # the feature of a predictor that reads the text itself, without an encoder
SCORE_COLUMNS = ["model", "task", "feature", "layer", "metric", "value"]
PAIRS_FEATURE, GROUPS_KEY = "pairs", "groups"


class ModelRecord:
    """The arrays of one model in an npz file.

    The file is rewritten whenever there are new arrays, so that nothing is measured twice.

    `source` is what the arrays come from: the SHA-256 of the model's files, or the name of a
    baseline. None is to read only.
    """

    def __init__(self, path, source=None):
        self.path = path
        self.model = os.path.splitext(os.path.basename(path))[0]
        self.arrays = {}
        if source is not None:
            self.arrays[ORIGIN] = np.array(source)
        recorded = source
        if os.path.exists(path):
            with open_to_read(path) as stream, self.faults_of_file(), np.load(stream) as arrays:
                recorded = str(arrays[ORIGIN])
                self.arrays = dict(arrays)
        if source is not None:
            self.check({"checkpoint or vocabulary": recorded}, {"checkpoint or vocabulary": source})

    def faults_of_file(self):
        """A block in which errors are the fault of the file, which anybody may have written."""
        return as_usage_error(self.path, "the record of an evaluation", "move it away")

    def check(self, recorded, current):
        """Refuses a file that was made from anything other than what is evaluated now.

        Args:
            recorded, current: {name of an input: what identifies it}
        """
        advice = "give the model another name in --names, choose another --dest, or remove the file"
        provenance.check_same_origin(self.path, recorded, current, advice)

    def origin(self, task, name):
        """What a recorded measurement was made from, a dict; None if there is none."""
        key = f"{task}/{name}/{ORIGIN}"
        if key not in self.arrays:
            return None
        with self.faults_of_file():
            return dict(json.loads(str(self.arrays[key])))

    def is_recorded(self, task, name, origin):
        """Whether a measurement is recorded, and was made from `origin`.

        One that was made from anything else is refused.
        """
        recorded = self.origin(task, name)
        if recorded is None:
            return False
        self.check(recorded, origin)
        return True

    def write(self, task, name, origin, arrays):
        """Records {name: array} of a task by its name, measured from `origin`."""
        arrays = {**arrays, f"{name}/{ORIGIN}": json.dumps(origin)}
        for key, array in arrays.items():
            self.arrays[f"{task}/{key}"] = np.asarray(array)
        with atomic_write(self.path, "wb") as stream:
            np.savez_compressed(stream, **dict(sorted(self.arrays.items())))

    def predictions(self, task, feature, layer=CHOSEN_LAYER):
        """What was predicted for each example, (N,), from one layer, the last or the chosen one."""
        with self.faults_of_file():
            rows = self.arrays[f"{task}/{feature}"]
            layers = self.arrays.get(f"{task}/{feature}/layers")
            if layer == CHOSEN_LAYER and layers is not None:
                folds = self.arrays[f"{task}/folds"]
                return rows[layers[folds], np.arange(rows.shape[1])]
            if layer in (CHOSEN_LAYER, LAST_LAYER):
                return rows[-1]
            return rows[layer]

    def table(self):
        """The scores, a DataFrame of SCORE_COLUMNS; few-shot scores are means over repetitions."""
        with self.faults_of_file():
            return pd.DataFrame(self.rows(), columns=SCORE_COLUMNS)

    def rows(self):
        """Yields the rows of `table`."""
        for key, array in sorted(self.arrays.items()):
            task, _, name = key.partition("/")
            if "/" in name or name in ("", "targets", "folds", GROUPS_KEY):
                continue
            targets = self.arrays.get(f"{task}/targets")
            metric = "accuracy"
            if name != PAIRS_FEATURE and targets.dtype.kind == "f":
                metric = "100 x Pearson"
            for feature, layer, value in self.scores(task, name, array, targets):
                yield self.model, task, feature, layer, metric, round(float(value), 4)

    def scores(self, task, name, array, targets):
        """Yields the scores of an array of a task: feature, layer and value."""
        if name == PAIRS_FEATURE:
            share, parts = percent_right(array, self.arrays[f"{task}/{GROUPS_KEY}"])
            yield name, LAST_LAYER, share
            for group, part in parts.items():
                yield f"{name}: {group}", LAST_LAYER, part
        elif name == "few_shot":
            for shots, values in zip(SHOTS, array):
                yield f"{shots} examples per class", CHOSEN_LAYER, values.mean()
        else:
            layers = [LAST_LAYER, CHOSEN_LAYER]
            if len(array) > 1:
                layers = [*range(len(array)), *layers]
            for layer in layers:
                yield name, layer, score_predictions(self.predictions(task, name, layer), targets)


def record_files(folder):
    """The paths of the records in a folder."""
    return glob.glob(os.path.join(glob.escape(folder), "*.npz"))


def all_scores(folder):
    """The scores of all models that have records in a folder, a DataFrame of SCORE_COLUMNS."""
    tables = [ModelRecord(path).table() for path in record_files(folder)]
    return pd.concat(tables).sort_values("model", kind="stable")
