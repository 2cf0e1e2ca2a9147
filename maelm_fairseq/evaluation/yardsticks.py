"""What probes are compared with: a bag of words and the most frequent class.

These need no encoder. They are scored on the same folds as the probes, and with the same few
labelled examples.

Letters in shapes: N examples.
"""

import numpy as np

from .bag_of_words import BAG_STRENGTHS, Counts, most_frequent, predict_with_bag
from .few_shot import SHOTS, has_few_shot, training_examples
from .outcomes import TEXT_FEATURE
from .probes import score_of_answers
from .votes import BAG_OF_WORDS, MOST_FREQUENT

YARDSTICKS = [BAG_OF_WORDS, MOST_FREQUENT]


def by_folds(task, predict):
    """What `predict`, a function of training and test examples, predicts for each example: (N,)."""
    kind = np.float32 if task.labels is None else np.int64
    predicted = np.empty(task.targets.shape, kind)
    for fold in range(int(task.folds.max()) + 1):
        test = np.flatnonzero(task.folds == fold)
        predicted[test] = predict(np.flatnonzero(task.folds != fold), test)
    return predicted


def score_few_shot_bags(counts, task, repeats):
    """The scores of bags of words, (SHOTS, repeats), on the examples of `score_few_shot_probes`."""
    scores = np.empty((len(SHOTS), repeats), np.float32)
    for i, shots in enumerate(SHOTS):
        for repeat in range(repeats):
            rows = training_examples(task, shots, repeat)
            rest = np.flatnonzero(~np.isin(task.ids, task.ids[rows]))
            answers = predict_with_bag(counts, task.targets, rows, rest)
            scores[i, repeat] = score_of_answers(answers, task.targets[rest])
    return scores


def constant(task):
    """The most frequent class of the training folds; for values 0, which is their mean: (N,)."""
    if task.labels is None:
        return np.zeros(len(task.targets), np.float32)
    return by_folds(task, lambda rows, rest: most_frequent(task.targets, rows, rest))


def record_yardsticks(records, task, repeats):
    """Records how both do on a task, unless that is recorded.

    A record that was made from other texts or repetitions is replaced.

    Args:
        records: {each of YARDSTICKS: `outcomes.Records`}
        task: `probe_tasks.Task`
        repeats: of few-shot training
    """
    origin = {"task": task.digest()}
    shared = {"targets": task.targets, "folds": task.folds}
    bag = records[BAG_OF_WORDS]
    frequent = records[MOST_FREQUENT]
    if frequent.origin(task.name, TEXT_FEATURE) != origin:
        arrays = {**shared, TEXT_FEATURE: constant(task)[None]}
        frequent.write(task.name, TEXT_FEATURE, origin, arrays)
    of_bag = {**origin, "strengths": str(BAG_STRENGTHS)}
    origins = {TEXT_FEATURE: of_bag}
    if repeats and has_few_shot(task):
        origins["few_shot"] = {**of_bag, "repeats": f"{SHOTS} {repeats}"}
    missing = [name for name in origins if bag.origin(task.name, name) != origins[name]]
    if not missing:
        return
    counts = Counts([(text,) if isinstance(text, str) else text for text in task.texts])
    for name in missing:
        if name == TEXT_FEATURE:
            answers = by_folds(
                task, lambda rows, rest: predict_with_bag(counts, task.targets, rows, rest)
            )
            array = answers[None]
        else:
            array = score_few_shot_bags(counts, task, repeats)
        bag.write(task.name, name, origins[name], {**shared, name: array})
