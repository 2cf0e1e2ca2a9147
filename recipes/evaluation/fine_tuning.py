"""Fine-tuning by the folds of the probes: the recipe of recipes/finetune_glue.sh, once for each fold.

Letters in shapes: N examples, K classes.
"""

import glob
import os
import shutil
import sys

import numpy as np

import child_processes
from finetune_glue import GlueTask
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import atomic_folder, one_at_a_time

from . import outcomes
from .measurement import shared_arrays, summary
from .probes import answers, bits, class_count

RECIPES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREPARE = os.path.join(os.path.dirname(RECIPES), "data-prep", "glue.py")
RECIPE = os.path.join(RECIPES, "finetune_glue.py")
BATCH_SIZE = 32
# Those of the miniature. Batches of one length need half the padding: fairseq shuffles the batches, not the examples.
SETTINGS = [
    *("--batch-size", str(BATCH_SIZE), "--lr", "5e-4", "--warmup-ratio", "0.1", "--epochs", "3"),
    *("--no-shuffle", "--bf16-autocast"),
]
WINDOW = 32 * BATCH_SIZE  # random examples that are sorted by length
KINDS = {"first": "fine-tuned-first", "mean": "fine-tuned-mean"}  # by what the head reads


def execute(command):
    """Runs a program of this repository, which prints what went wrong."""
    with child_processes.program([sys.executable, *command]) as process:
        pass
    if process.returncode:
        raise UsageError(f"{os.path.basename(command[0])} ended with exit status {process.returncode}; see above")


def in_batches(texts, rows, generator):
    """Examples in an order that makes batches of about one length: shuffled, then sorted within each WINDOW.

    Args:
        texts: N strings, or N pairs of strings
        rows: (n,) numbers of the examples
        generator: :class:`numpy.random.Generator`
    Returns:
        the same numbers, (n,)
    """
    lengths = np.array([sum(map(len, texts[i])) for i in rows])
    shuffled = generator.permutation(len(rows))
    windows = [shuffled[i : i + WINDOW] for i in range(0, len(rows), WINDOW)]
    order = [window[np.argsort(lengths[window], kind="stable")] for window in windows]
    return rows[np.concatenate(order)]


def write_fold(task, fold, folder):
    """Writes the examples of a task as train.tsv, and those of a fold as dev.tsv, into `folder`/TASK."""
    path = os.path.join(folder, task.name)
    os.makedirs(path)
    names = ["sentence1", "sentence2"] if isinstance(task.texts[0], tuple) else ["sentence"]
    train, dev = np.flatnonzero(task.folds != fold), np.flatnonzero(task.folds == fold)
    for split, chosen in [("train", in_batches(task.texts, train, np.random.default_rng(fold))), ("dev", dev)]:
        with open(os.path.join(path, split + ".tsv"), "w", encoding="utf-8", newline="\n") as stream:
            stream.write("\t".join([*names, "label"]) + "\n")
            for i in chosen:
                label = repr(float(task.targets[i])) if task.labels is None else task.labels[task.targets[i]]
                text = task.texts[i] if isinstance(task.texts[i], tuple) else (task.texts[i],)
                stream.write("\t".join([*text, label]) + "\n")


def prepare_fold(task, fold, data, positions, dest):
    """The data of a fold for fairseq-train, shared by all models with the same vocabulary; returns its folder.

    Evaluations at the same time wait for the one that prepares it.

    Args:
        data: folder with the vocabulary
        positions: longer examples are cut
    """
    folder = os.path.join(dest, "folds", f"{task.name}-{task.digest()[:16]}", f"{fold}-{positions}")
    raw, prepared = os.path.join(folder, "raw"), os.path.join(folder, "prepared")
    os.makedirs(folder, exist_ok=True)
    with one_at_a_time(folder):
        if not os.path.exists(raw):
            with atomic_folder(raw) as partial:
                write_fold(task, fold, partial)
        if not os.path.exists(os.path.join(prepared, task.name)):
            options = ["--input", raw, "--task", task.name, "--vocabulary", data, "--dest", prepared]
            options += ["--max-tokens", str(positions), *(["--regression"] if task.labels is None else [])]
            execute([PREPARE, *options])
    return prepared


def predictions(data, task, model_file):
    """What a fine-tuned model predicts for the dev examples: float64 (n, K) probabilities, or (n, 1) values."""
    prepared = GlueTask(os.path.join(data, task.name), task.name)
    logits = prepared.load(model_file).head_logits(prepared.tokens("valid")).double()
    if task.labels is None:
        return logits.numpy()
    places = [prepared.labels.index(label) for label in task.labels]
    return logits.softmax(-1).numpy()[:, places]


def fine_tune_fold(encoder, task, data, folder, pooling):
    """Fine-tunes on all folds but one; returns the predictions of that one.

    Args:
        data: the fold's, from :func:`prepare_fold`
        pooling: "first" or "mean"
    """
    command = [RECIPE, "--task", task.name, "--checkpoint", encoder.checkpoint, "--data", data]
    command += ["--save-dir", folder, "--seeds", "1", *SETTINGS]
    execute([*command, "--classification-pooling", pooling])
    (model_file,) = glob.glob(os.path.join(glob.escape(folder), task.name, "*", "*", "seed1", "model.pt"))
    return predictions(data, task, model_file)


def outcome_arrays(task, predicted, kind):
    """The arrays of a record: answers and log-losses of what was predicted for each example.

    The density of a value has the variance of the errors in the other folds.

    Args:
        predicted: (N, K)
    """
    classes, folds = class_count(task), np.unique(task.folds)
    found = np.empty(len(task.targets))
    for fold in folds:
        rows, others = task.folds == fold, task.folds != fold
        variance = None
        if classes is None:
            variance = np.mean((predicted[others, 0] - task.targets[others]) ** 2, keepdims=True)
        found[rows] = bits(predicted[rows], task.targets[rows], variance)
    return {
        kind + "_answers": answers(predicted, classes)[None].astype(np.float32),
        kind + "_bits": found[None].astype(np.float32),
        kind + "_layers": np.zeros(len(folds), np.int64),
    }


def fine_tune(name, encoder, task, dest, pooling):
    """Fine-tunes a model on each fold of a task, unless that is done; returns the record's path.

    Args:
        name: of the model
        encoder: :class:`~evaluation.features.Encoder`
        task: :class:`~evaluation.tasks.Task`
        pooling: "first" for a head on `<s>`, "mean" for one on the mean of the other tokens
    """
    kind = KINDS[pooling]
    path = outcomes.record_path(dest, name, task.name, kind)
    digests = {"checkpoint or vocabulary": encoder.digest, "task": task.digest()}
    origin = {**digests, "setting of fine-tuning": " ".join(SETTINGS)}
    if outcomes.is_done(path, origin):
        return path
    folder = os.path.join(dest, kind, name, task.name)
    predicted = np.empty((len(task.targets), class_count(task) or 1))
    for fold in np.unique(task.folds):
        data = prepare_fold(task, fold, encoder.data, encoder.model().model.max_positions(), dest)
        found = fine_tune_fold(encoder, task, data, os.path.join(folder, f"fold{fold}"), pooling)
        predicted[task.folds == fold] = found
    arrays = {**shared_arrays(task), **outcome_arrays(task, predicted, kind)}
    record = {
        "model": name, "task": task.name, "metric": task.metric, "kinds": [kind], "examples": len(task.texts),
        "made_from": origin,
    }  # fmt: skip
    record["scores"] = {kind: summary(outcomes.Outcome(record, arrays, kind))}
    outcomes.save(path, record, arrays)
    shutil.rmtree(folder)
    return path
