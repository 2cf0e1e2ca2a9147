"""Runs a comparison: pretraining, effective ranks, evaluation and fine-tuning, each in a process of its own.

Every step skips what is done, so that a comparison that was stopped resumes.
"""

import csv
import os
import statistics
import sys

import torch

from evaluation import outcomes
from fairseq_options import PLUGIN, RECIPES
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import read_json, save_json, sha256
from maelm_fairseq.checkpoints.building import read_checkpoint, updates_of
from maelm_fairseq.checkpoints.writing import save
from maelm_fairseq.vocabulary import load_dictionary
from preregistration import FINE_TUNED_TASKS, TAU
from pretraining import training_flops
from record_store import FINE_TUNED
from show_progress import logged

DATA_PREP = os.path.join(os.path.dirname(RECIPES), "data-prep")
LOG, MODEL = "pretraining.log", "model.pt"  # in the folder of a run


class Runs:
    """A comparison in a folder.

    Args:
        comparison: :class:`~preregistration.Comparison`
        dest: the folder
        records: :class:`~record_store.Records`, which receive what is measured
        data: a folder of binarized text; None for film reviews, which are downloaded
        tasks: a folder of labelled texts, as recipes/evaluate.sh takes them; None for those that are downloaded
    """

    def __init__(self, comparison, dest, records, data=None, tasks=None):
        self.comparison, self.dest, self.records = comparison, os.path.abspath(dest), records
        self.data, self.labelled = os.path.abspath(data or f"{dest}/data"), os.path.abspath(tasks or f"{dest}/labelled")
        self.downloads_text, self.downloads_tasks = not data, not tasks

    def path(self, *parts):
        return os.path.join(self.dest, *parts)

    def all(self, jobs):
        """Runs all that the records lack, what matters most first, as many runs at a time as :class:`~jobs.Jobs` do."""
        self.jobs = jobs
        self.prepare()
        undecided = [model for model in self.comparison.pilots() if not self.records.learning_rate(model)]
        jobs.map(self.train, [run for model in undecided for run in self.comparison.pilot_runs(model)])
        for model in undecided:
            losses = [self.validations(run)[-1]["loss"] for run in self.comparison.pilot_runs(model)]
            self.records.keep_learning_rate(model, losses)
        runs = self.comparison.runs()
        for run in runs:
            self.records.check(run, self.options(run))
        to_measure = [run for run in runs if not self.records.has(run)]
        to_tune = [run for run in self.comparison.fine_tuned_runs() if not self.records.has(run, FINE_TUNED)]
        print(f"{len(runs) - len(to_measure)} of {len(runs)} runs are in {self.records.folder}", flush=True)
        jobs.map(self.measure, to_measure)
        jobs.map(self.fine_tune, to_tune)

    def prepare(self):
        """Downloads and prepares the texts that were not given; these programs skip what is done."""
        if self.downloads_text:
            raw = self.path("text")
            self.execute("text", [sys.executable, f"{DATA_PREP}/movie_reviews.py", "--dest", raw])
            command = [f"{DATA_PREP}/prepare.sh", "--dest", self.data, "--vocab-size", self.comparison.text.vocab_size]
            command += ["--lowercase", "--train", f"{raw}/train.txt", "--valid", f"{raw}/valid.txt"]
            self.execute("data", command)
        if self.downloads_tasks:
            command = [sys.executable, f"{DATA_PREP}/fetch_labelled.py", "--dest", self.labelled]
            self.execute("labelled", [*command, "--data", *self.comparison.tasks])

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run whose pilots are done."""
        chosen = (self.records.learning_rate(run.pilots),) if run.pilots else ()
        return self.comparison.options(run, *chosen)

    def file(self, run, name):
        """A file in the folder of a run's pretraining."""
        return self.path("pretraining", run.name, name)

    def train(self, run, environment):
        """Trains a run to its end; keeps its model without the optimizer's state."""
        folder, options, log = self.path("pretraining", run.name), self.options(run), self.file(run, LOG)
        self.claim(folder, options)
        if os.path.exists(self.file(run, MODEL)):
            return
        updates, last = int(options[options.index("--max-update") + 1]), self.file(run, "checkpoint_last.pt")
        # A run that was stopped at its last update has a checkpoint of it, and no validation.
        if min(updates_done(last), max(logged_statistics(log, "valid_num_updates"), default=0)) < updates:
            command = ["fairseq-train", self.data, "--user-dir", PLUGIN, "--save-dir", folder, *options]
            self.execute(log, command + ["--cpu"] * (not torch.cuda.is_available()), environment)
        if updates_done(last) < updates:
            raise UsageError(f"{folder}: {updates_done(last)} of {updates} updates; the whole log is in {log}")
        keep_model(folder, self.file(run, MODEL))

    def claim(self, folder, options):
        """Records the options and data of a run in its folder; refuses a folder made with others."""
        path = os.path.join(folder, "run.json")
        text = {name: sha256(os.path.join(self.data, name)) for name in ("dict.txt", "train.idx", "valid.idx")}
        now = {**provenance.by_option(options), **text}
        if os.path.exists(folder):
            fix = "choose another --dest, or remove that folder to train again"
            provenance.check_same(folder, read_json(path, dict, "the record of a run"), now, fix)
        os.makedirs(folder, exist_ok=True)
        save_json(now, path)

    def validations(self, run):
        """The validations of a run: list of dicts of update, loss (bits), and GFLOP of training so far."""
        log = self.file(run, LOG)
        rows = logged_statistics(log, "num_updates").values()
        tokens = statistics.mean(float(row["wpb"]) / float(row["bsz"]) for row in rows)
        once = training_flops(run.model, self.comparison.size, tokens, len(load_dictionary(self.data)))
        once *= self.comparison.text.batch_size / 1e9
        validations = logged_statistics(log, "valid_num_updates").items()
        return [
            dict(update=update, loss=float(row["valid_loss"]), gflop=round(once * update, 3))
            for update, row in validations
        ]

    # Measuring

    def measure(self, run, environment):
        """Trains a run, measures ranks and frozen features, and records them in place of an earlier record."""
        self.train(run, environment)
        ranks = self.path("ranks", run.name)
        if not os.path.exists(os.path.join(ranks, "ranks.png")):  # which is written last
            command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", self.file(run, MODEL)]
            command += ["--names", run.name, "--data", self.data, "--dest", ranks]
            self.execute(
                f"ranks-{run.name}", [*command, "--tokens", self.comparison.rank_tokens, "--tau", TAU], environment
            )
        self.records.keep(run, dict(options=self.options(run), validations=self.validations(run), **read_ranks(ranks)))
        self.evaluate(run, environment, outcomes.FROZEN, self.comparison.tasks)

    def fine_tune(self, run, environment):
        """Fine-tunes a run; if the folder has no model, it is trained again, with the same options and seed."""
        self.train(run, environment)
        self.evaluate(run, environment, FINE_TUNED, FINE_TUNED_TASKS, "--fine-tune", "mean")

    def evaluate(self, run, environment, kind, tasks, *options):
        """Evaluates a run with recipes/evaluate.sh, and adds the outcomes to its record."""
        dest = self.path("evaluation")
        command = [sys.executable, os.path.join(RECIPES, "evaluate.py"), "--checkpoint", self.file(run, MODEL)]
        command += ["--names", run.name, "--data", self.data, "--labelled", self.labelled, "--dest", dest]
        command += ["--tasks", *tasks, "--few-shot-repeats", self.comparison.few_shot_repeats, *options]
        self.execute(f"{kind}-{run.name}", command, environment)
        self.records.add(run, [outcomes.record_path(dest, run.name, task, kind) for task in tasks])

    def execute(self, name, command, environment=None):
        """Runs a program and appends its output to a log.

        Args:
            name: the path of the log, or its name in the folder of logs without the extension
            command: list of strings and numbers
            environment: variables that limit it to its device
        Raises:
            UsageError: it failed
        """
        log = name if os.path.isabs(name) else self.path("logs", name + ".log")
        os.makedirs(os.path.dirname(log), exist_ok=True)
        print(f"running: {log}", flush=True)
        status = self.jobs.run(command, log, environment)
        if status:
            with open(log, encoding="utf-8", errors="replace") as lines:
                last = (lines.read().strip().splitlines() or [""])[-1]
            raise UsageError(f"{command[0]} stopped with exit status {status}: {last}; the whole log is {log}")


def updates_done(checkpoint):
    """The number of updates of a checkpoint; 0 if there is none."""
    return updates_of(read_checkpoint(checkpoint)) if os.path.exists(checkpoint) else 0


def keep_model(folder, model_file):
    """Keeps the model of a finished run, without the optimizer state, and removes its checkpoints."""
    state = read_checkpoint(os.path.join(folder, "checkpoint_last.pt"))
    state.pop("last_optimizer_state", None)
    save(state, model_file)
    for name in os.listdir(folder):
        if name.startswith("checkpoint_"):
            os.remove(os.path.join(folder, name))


def logged_statistics(path, key):
    """The statistics that a training has logged: {number of updates: dict}; see :func:`show_progress.logged`."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        return {int(row[key]): row for row in logged(lines, key)}


def read_ranks(folder):
    """The ranks by layer, {tau: {family: [...]}}, and [MASK]'s own dimensions, {tau: [...]}, as they are recorded."""
    ranks, outside = {}, {}
    with open(os.path.join(folder, "ranks.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            ranks.setdefault(row["tau"], {}).setdefault(row["family"], []).append(int(row["rank"]))
    with open(os.path.join(folder, "mask_dimensions.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            outside.setdefault(row["tau"], []).append(float(row["mask_outside_real"]))
    return {"ranks": ranks, "mask_outside_real": outside}
