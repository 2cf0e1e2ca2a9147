"""Fine-tuning on the folds of the probes, with recipes/finetune.py, once for each fold."""

import glob
import os
import shutil
import sys

import numpy as np

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.finetuning.prediction import load_task, predict

RECIPE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "finetune.py")
OPTIONS = ["--batch-size", "32", "--lr", "5e-4", "--warmup-ratio", "0.1", "--epochs", "3", "--bf16-autocast"]


def execute(jobs, command, fault=None):
    """Runs a program of this repository, which prints what went wrong; `fault` is what follows from that."""
    status = jobs.run([sys.executable, *command], os.devnull, show=lambda line: print(line, flush=True))
    if status:
        raise UsageError(fault or f"{os.path.basename(command[0])} ended with exit status {status}; see above")


def write_fold(task, fold, folder):
    """Writes the examples of a task as train.tsv, and those of a fold as dev.tsv."""
    os.makedirs(folder, exist_ok=True)
    pairs = isinstance(task.texts[0], tuple)
    for split, chosen in [("train", task.folds != fold), ("dev", task.folds == fold)]:
        with open(os.path.join(folder, split + ".tsv"), "w", encoding="utf-8", newline="\n") as stream:
            stream.write("\t".join([*(["sentence1", "sentence2"] if pairs else ["sentence"]), "label"]) + "\n")
            for i in np.flatnonzero(chosen):
                label = repr(float(task.targets[i])) if task.labels is None else task.labels[task.targets[i]]
                stream.write("\t".join([*(task.texts[i] if pairs else [task.texts[i]]), label]) + "\n")


def fine_tune(jobs, records, encoder, task, dest, pooling):
    """Fine-tunes a model on each fold of a task, unless that is recorded.

    Args:
        jobs: :class:`~jobs.Jobs`
        records, encoder, task, dest: as for evaluate.py's `measure`
        pooling: "first" for a head on `<s>`, "mean" for one on the mean of the other tokens
    """
    kind = "fine-tuned-" + pooling
    origin = {"task": task.digest(), "options": " ".join(OPTIONS)}
    if records.has(task.name, kind, origin):
        return
    folder = os.path.join(dest, kind, records.model, task.name)
    answers = np.empty(task.targets.shape, task.targets.dtype)
    for fold in np.unique(task.folds):
        labelled, runs = (os.path.join(folder, f"fold{fold}", part) for part in (task.name, "runs"))
        write_fold(task, fold, labelled)
        command = [RECIPE, "mae_lm_sentences", "--labelled", labelled, "--checkpoint", encoder.checkpoint]
        command += ["--data", encoder.data, "--save-dir", runs, "--seeds", "1", *OPTIONS]
        execute(jobs, [*command, "--classification-pooling", pooling, *["--regression"] * (task.labels is None)])
        (model_file,) = glob.glob(os.path.join(glob.escape(runs), task.name, "*", "seed1", "checkpoint_last.pt"))
        tuned, model = load_task(model_file)
        logits = np.array([row for _, row in sorted(predict(tuned, model, "valid").items())])
        if task.labels is not None:
            logits = logits[:, [tuned.state.labels.index(label) for label in task.labels]]
        answers[task.folds == fold] = logits[:, 0] if task.labels is None else logits.argmax(1)
    records.add(task, kind, origin, {kind: answers[None]})
    shutil.rmtree(folder)
