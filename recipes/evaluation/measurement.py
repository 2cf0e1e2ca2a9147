"""Measures one model on one task: features, probes of every layer, few-shot probes."""

import numpy as np

from . import outcomes
from .few_shot import SHOTS, few_shot
from .probes import STRENGTHS, probe


def made_from(encoder, task, draws):
    """What a record of the probes depends on: {title: text}."""
    settings = f"strengths {STRENGTHS}, shots {SHOTS}, {draws} draws"
    return {"checkpoint or vocabulary": encoder.digest, "task": task.digest(), "setting of the probes": settings}


def shared_arrays(task):
    return {"ids": task.ids, "targets": task.targets, "folds": task.folds}


def summary(outcome):
    """The scores of a kind of representation, for the record."""
    selections = [outcomes.CHOSEN, outcomes.LAST]
    return {
        **{selection: round(outcome.score(selection), 4) for selection in selections},
        "chosen_layers": outcome.layers.tolist(),
        "by_layer": [round(score, 4) for score in outcome.by_layer()],
        "bits": {selection: round(outcome.mean_bits(selection), 5) for selection in selections},
    }


def measure(name, encoder, task, dest, draws, features_folder):
    """Measures an encoder on a task, unless that is done; returns the record's path.

    Args:
        name: of the model
        encoder: :class:`~evaluation.features.Encoder`
        task: :class:`~evaluation.tasks.Task`
        draws: number of few-shot draws
        features_folder: where features are kept
    """
    path, origin = outcomes.record_path(dest, name, task.name), made_from(encoder, task, draws)
    if outcomes.is_done(path, origin):
        return path
    arrays, kinds = shared_arrays(task), []
    features = encoder.features(task, features_folder)
    for kind, layers in features.items():
        found = probe(layers, task, STRENGTHS)
        kinds.append(kind)
        arrays[kind + "_answers"] = found["answers"].astype(np.float32)
        arrays[kind + "_bits"] = found["bits"].astype(np.float32)
        arrays[kind + "_layers"] = found["layers"]
    shots = few_shot(features["mean"], task, draws, STRENGTHS[1::2]) if draws else None
    record = {
        "model": name, "task": task.name, "metric": task.metric, "kinds": kinds, "examples": len(task.texts),
        "dropped": task.dropped, "classes": task.labels and len(task.labels), "made_from": origin,
        "few_shot": shots and {k: np.round(v.mean(1), 4).tolist() for k, v in shots.items()},
    }  # fmt: skip
    record["scores"] = {kind: summary(outcomes.Outcome(record, arrays, kind)) for kind in kinds}
    outcomes.save(path, record, arrays)
    return path
