"""Measures one model on one task: features, probes of every layer, few-shot probes."""

import os

import numpy as np

from . import outcomes
from .few_shot import SHOTS, few_shot
from .probes import probe


class Clock:
    """Seconds of CPU time of this process and those that it started, by title."""

    def __init__(self):
        self.seconds, self.last = {}, self.now()

    @staticmethod
    def now():
        return sum(os.times()[:4])

    def lap(self, title):
        """Assigns the time since the last call to a title."""
        now = self.now()
        self.seconds[title] = round(now - self.last, 2)
        self.last = now


def made_from(model, task, draws):
    """What a record of the probes depends on: {title: text}."""
    settings = f"strengths {model.strengths}, shots {SHOTS}, {draws} draws"
    return {"checkpoint or vocabulary": model.digest, "task": task.digest(), "setting of the probes": settings}


def shared_arrays(task):
    return {"ids": task.ids, "targets": task.targets, "folds": task.folds}


def summary(outcome):
    """The scores of a kind of representation, for the record."""
    best, layer = outcome.hindsight()
    selections = [outcomes.CHOSEN, outcomes.LAST]
    return {
        **{selection: round(outcome.score(selection), 4) for selection in selections},
        "chosen_layers": outcome.layers.tolist(),
        "hindsight": round(best, 4),
        "hindsight_layer": layer,
        "by_layer": [round(score, 4) for score in outcome.by_layer()],
        "bits": {selection: round(outcome.mean_bits(selection), 5) for selection in selections},
    }


def measure(name, model, task, dest, draws, features_folder):
    """Measures a model on a task, unless that is done; returns the record's path.

    Args:
        name: of the model
        model: :class:`~evaluation.features.Encoder` or :class:`~evaluation.features.PieceCounts`
        task: :class:`~evaluation.tasks.Task`
        draws: number of few-shot draws
        features_folder: where features are kept
    """
    path, origin = outcomes.record_path(dest, name, task.name), made_from(model, task, draws)
    if outcomes.is_done(path, origin):
        return path
    clock, arrays, kinds = Clock(), shared_arrays(task), []
    features = model.features(task, features_folder)
    clock.lap("features")
    for kind, layers in features.items():
        found = probe(layers, task, model.strengths)
        kinds.append(kind)
        arrays[kind + "_answers"] = found["answers"].astype(np.float32)
        arrays[kind + "_bits"] = found["bits"].astype(np.float32)
        arrays[kind + "_layers"] = found["layers"]
    clock.lap("probes")
    shots = few_shot(features["mean"], task, draws, model.strengths[1::2]) if draws else None
    if shots:
        arrays.update({f"few_shot_{selection}": scores for selection, scores in shots.items()})
    clock.lap("few-shot probes")
    record = {
        "model": name, "task": task.name, "metric": task.metric, "kinds": kinds, "examples": len(task.texts),
        "dropped": task.dropped, "classes": task.labels and len(task.labels), "made_from": origin,
        "seconds": clock.seconds,
        "few_shot": shots and {k: np.round(v.mean(1), 4).tolist() for k, v in shots.items()},
    }  # fmt: skip
    record["scores"] = {kind: summary(outcomes.Outcome(record, arrays, kind)) for kind in kinds}
    outcomes.save(path, record, arrays)
    return path
