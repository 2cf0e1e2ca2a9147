"""What probes are compared with: a bag of words and the most frequent class.

These need no encoder. They are scored on the same folds as the probes, and with the same few
labelled examples.

Letters in shapes: N examples.
"""

from functools import partial

import numpy as np

from ..baselines.bag_of_words import predict_most_frequent
from ..baselines.bag_of_words_model import REGULARISATION_GRID, NgramCounts, train_and_predict
from ..baselines.baseline_scores import BAG_OF_WORDS, MOST_FREQUENT
from .few_shot import SHOTS, has_few_shot, score_few_shot
from .model_record import TEXT_FEATURE
from .probes import predict_by_folds

BASELINES = [BAG_OF_WORDS, MOST_FREQUENT]


def most_frequent_by_folds(task):
    """The most frequent class of the training folds; for values 0, which is their mean: (N,)."""
    if task.labels is None:
        return np.zeros(len(task.targets), np.float32)
    return predict_by_folds(task, partial(predict_most_frequent, task.targets))


def record_baselines(records, task, repeats):
    """Records how both do on a task, unless that is recorded.

    A record that was made from other texts or repetitions is replaced.

    Args:
        records: {each of BASELINES: `model_record.ModelRecord`}
        task: `probe_tasks.ProbeTask`
        repeats: of few-shot training
    """
    origin = {"task": task.compute_sha256()}
    shared = {"targets": task.targets, "folds": task.folds}
    bag = records[BAG_OF_WORDS]
    frequent = records[MOST_FREQUENT]
    if frequent.origin(task.name, TEXT_FEATURE) != origin:
        arrays = {**shared, TEXT_FEATURE: most_frequent_by_folds(task)[None]}
        frequent.write(task.name, TEXT_FEATURE, origin, arrays)
    bag_origin = {**origin, "strengths": str(REGULARISATION_GRID)}
    origins = {TEXT_FEATURE: bag_origin}
    if repeats and has_few_shot(task):
        origins["few_shot"] = {**bag_origin, "repeats": f"{SHOTS} {repeats}"}
    missing = [name for name in origins if bag.origin(task.name, name) != origins[name]]
    if not missing:
        return
    counts = NgramCounts(task.texts)
    predict = partial(train_and_predict, counts, task.targets)
    for name in missing:
        if name == TEXT_FEATURE:
            array = predict_by_folds(task, predict)[None]
        else:
            array = score_few_shot(task, repeats, predict)
        bag.write(task.name, name, origins[name], {**shared, name: array})
