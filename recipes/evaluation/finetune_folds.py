"""Fine-tuning on the folds of the probes, with recipes/finetune_glue.sh, once for each fold."""

import glob
import os
import shutil
import sys

import numpy as np

import child_processes
from finetune_glue import GlueTask
from maelm_fairseq.base.errors import UsageError

from . import outcomes
from .probes import answers

RECIPES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PREPARE = os.path.join(os.path.dirname(RECIPES), "data-prep", "glue.py")
RECIPE = os.path.join(RECIPES, "finetune_glue.py")
BATCH_SIZE = 32
# Batches of one length need half the padding: fairseq shuffles the batches, not the examples.
OPTIONS = [
    *("--batch-size", str(BATCH_SIZE), "--lr", "5e-4", "--warmup-ratio", "0.1", "--epochs", "3"),
    *("--no-shuffle", "--bf16-autocast"),
]
WINDOW = 32 * BATCH_SIZE  # random examples that are sorted by length


def execute(command, fault=None):
    """Runs a program of this repository, which prints what went wrong; `fault` is what follows from that."""
    with child_processes.program([sys.executable, *command]) as process:
        pass
    if process.returncode:
        program = os.path.basename(command[0])
        raise UsageError(fault or f"{program} ended with exit status {process.returncode}; see above")


def in_batches(texts, rows, generator):
    """Examples, (n,), in an order that makes batches of about one length: shuffled, then sorted within each WINDOW."""
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


def prepare_fold(task, fold, encoder, folder):
    """Prepares the data of a fold for fairseq-train, unless that is done; returns their folder."""
    raw, prepared = os.path.join(folder, "raw"), os.path.join(folder, "prepared")
    if not os.path.exists(os.path.join(prepared, task.name)):
        shutil.rmtree(raw, ignore_errors=True)
        write_fold(task, fold, raw)
        options = ["--input", raw, "--task", task.name, "--vocabulary", encoder.data, "--dest", prepared]
        options += ["--max-tokens", str(encoder.model.model.max_positions())]  # longer examples are cut
        execute([PREPARE, *options, *["--regression"] * (task.labels is None)])
    return prepared


def predictions(data, task, model_file):
    """What a fine-tuned model predicts for n dev examples: float64 (n, classes) probabilities, or (n, 1) values."""
    prepared = GlueTask(os.path.join(data, task.name), task.name)
    logits = prepared.load(model_file).head_logits(prepared.tokens("valid")).double()
    if task.labels is None:
        return logits.numpy()
    places = [prepared.labels.index(label) for label in task.labels]
    return logits.softmax(-1).numpy()[:, places]


def fine_tune(name, encoder, task, dest, pooling):
    """Fine-tunes a model on each fold of a task, unless that is done; returns the record's path.

    Args:
        name, encoder, task, dest: as for evaluate.py's `measure`
        pooling: "first" for a head on `<s>`, "mean" for one on the mean of the other tokens
    """
    kind = "fine-tuned-" + pooling
    path = outcomes.record_path(dest, name, task.name, kind)
    origin = {"checkpoint or vocabulary": encoder.digest, "task": task.digest(), "options": " ".join(OPTIONS)}
    if outcomes.is_done(path, origin):
        return path
    folder, folds = os.path.join(dest, kind, name, task.name), np.unique(task.folds)
    predicted = np.empty((len(task.targets), task.classes or 1))
    for fold in folds:
        data = prepare_fold(task, fold, encoder, os.path.join(folder, f"fold{fold}"))
        runs = os.path.join(folder, f"fold{fold}", "runs")
        command = [RECIPE, "--task", task.name, "--checkpoint", encoder.checkpoint, "--data", data, "--save-dir", runs]
        execute([*command, "--seeds", "1", *OPTIONS, "--classification-pooling", pooling])
        (model_file,) = glob.glob(os.path.join(glob.escape(runs), task.name, "*", "*", "seed1", "model.pt"))
        predicted[task.folds == fold] = predictions(data, task, model_file)
    layers = np.zeros(len(folds), np.int64)  # the head reads one, the last
    outcomes.save(path, name, task, {kind: dict(answers=answers(predicted, task.classes)[None], layers=layers)}, origin)
    shutil.rmtree(folder)
    return path
