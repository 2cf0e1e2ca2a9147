"""The runs of a comparison: pretraining, effective ranks, evaluation and fine-tuning, each by a program of its own.

Every step looks at what is there and does the rest, so a comparison that was stopped goes on where it was.
"""

import csv
import os
import statistics
import sys

import torch

from arithmetic import operations
from comparison import FINE_TUNED_TASKS
from evaluation import outcomes
from fairseq_options import PLUGIN, RECIPES
from kept_records import FINE_TUNED
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import read_json, save_json, sha256
from maelm_fairseq.vocabulary import load_dictionary
from programs import execute
from show_progress import logged
from trained_model import keep_model, updates_of

ROOT = os.path.dirname(RECIPES)
DATA_PREP = os.path.join(ROOT, "data-prep")


class Runs:
    """What a comparison runs, in a folder.

    Args:
        comparison: :class:`~comparison.Comparison`
        dest: the folder
        records: :class:`~kept_records.Records`, which receive what is measured
        data: a folder of binarized text; None for film reviews, which are downloaded
        tasks: a folder of labelled texts, as recipes/evaluate.sh takes them; None for those that are downloaded
    """

    def __init__(self, comparison, dest, records, data=None, tasks=None):
        self.comparison, self.dest, self.records = comparison, os.path.abspath(dest), records
        self.data = os.path.abspath(data) if data else self.path("data")
        self.labelled = os.path.abspath(tasks) if tasks else self.path("labelled")
        self.downloads_text, self.downloads_tasks = not data, not tasks

    def path(self, *parts):
        return os.path.join(self.dest, *parts)

    def all(self, devices):
        """Everything that the records do not have, what matters most first, as far as it can run at the same time.

        Args:
            devices: :class:`~devices.DeviceQueue`
        """
        self.prepare()
        undecided = [model for model in self.comparison.pilots if not self.records.learning_rate(model)]
        devices.run(self.train, [run for model in undecided for run in self.comparison.pilot_runs(model)])
        for model in undecided:
            self.choose_learning_rate(model)
        runs = self.comparison.runs()
        to_measure = [run for run in runs if not self.records.has(run, self.options(run))]
        to_tune = [run for run in self.comparison.fine_tuned_runs() if not self.records.is_fine_tuned(run)]
        print(f"{len(runs) - len(to_measure)} of {len(runs)} runs are in {self.records.folder}", flush=True)
        devices.run(self.measure, to_measure)
        devices.run(self.fine_tune, to_tune)

    def prepare(self):
        """Downloads and prepares the texts that were not given; these programs skip what they find done."""
        if self.downloads_text:
            raw = self.path("text")
            self.execute("text", [sys.executable, os.path.join(DATA_PREP, "movie_reviews.py"), "--dest", raw])
            command = [os.path.join(DATA_PREP, "prepare.sh"), "--dest", self.data, "--lowercase"]
            command += ["--vocab-size", str(self.comparison.text.vocab_size)]
            self.execute("data", [*command, "--train", f"{raw}/train.txt", "--valid", f"{raw}/valid.txt"])
        if self.downloads_tasks:
            command = [sys.executable, os.path.join(DATA_PREP, "fetch_labelled.py"), "--dest", self.labelled]
            self.execute("labelled", [*command, "--data", *self.comparison.tasks])

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run, whose pilots have decided."""
        return self.comparison.options(run, run.pilots and self.records.learning_rate(run.pilots))

    def folder(self, run):
        return self.path("pretraining", run.name)

    def model(self, run):
        return os.path.join(self.folder(run), "model.pt")

    def training_log(self, run):
        return os.path.join(self.folder(run), "pretraining.log")

    def train(self, run, device):
        """Trains a run to its end, and keeps its model without the optimizer's state."""
        folder, options, log = self.folder(run), self.options(run), self.training_log(run)
        self.claim(folder, options)
        if os.path.exists(self.model(run)):
            return
        updates, last = int(options[options.index("--max-update") + 1]), os.path.join(folder, "checkpoint_last.pt")
        # A run that was stopped at its last update has a checkpoint of it, and no validation.
        if min(updates_of(last), max(logged_statistics(log, "valid_num_updates"), default=0)) < updates:
            command = ["fairseq-train", self.data, "--user-dir", PLUGIN, "--save-dir", folder, *options]
            execute(command + ["--cpu"] * (not torch.cuda.is_available()), log, device.environment)
        if updates_of(last) < updates:
            raise UsageError(f"{folder}: {updates_of(last)} of {updates} updates; the whole log is in {log}")
        keep_model(folder, self.model(run))

    def claim(self, folder, options):
        """Writes down what the folder of a run is made from; refuses one that was made from something else."""
        path = os.path.join(folder, "run.json")
        text = {name: sha256(os.path.join(self.data, name)) for name in ("dict.txt", "train.idx", "valid.idx")}
        now = {**provenance.by_option(options), **text}
        if os.path.exists(folder):
            fix = "choose another --dest, or remove that folder to train again"
            provenance.check_same(folder, read_json(path, dict, "the record of a run"), now, fix)
        os.makedirs(folder, exist_ok=True)
        save_json(now, path)

    def validations(self, run):
        """The validations of a run: list of dicts of update, loss (bits), and seconds and GFLOP of training so far."""
        log = self.training_log(run)
        rows = logged_statistics(log, "num_updates")
        tokens = statistics.mean(float(row["wpb"]) / float(row["bsz"]) for row in rows.values())
        once = operations(run.model, self.comparison.size, tokens, len(load_dictionary(self.data)))
        once *= self.comparison.text.batch_size / 1e9
        found = []
        for update, row in logged_statistics(log, "valid_num_updates").items():
            # A line's train_wall covers the updates since the line before, without validations.
            seconds = sum(float(each["train_wall"]) for trained, each in rows.items() if trained <= update)
            found.append(dict(update=update, loss=float(row["valid_loss"]), seconds=seconds))
            found[-1]["gflop"] = round(once * update, 3)
        return found

    def choose_learning_rate(self, model):
        """Chooses that of the pilot whose last validation loss is lowest; the first of equal ones."""
        pilots = self.comparison.pilot_runs(model)
        self.records.keep_learning_rate(model, [self.validations(run)[-1]["loss"] for run in pilots])

    # Measuring

    def measure(self, run, device):
        """Trains a run, measures ranks and frozen features, and keeps what was found in place of an earlier record."""
        self.train(run, device)
        ranks = self.path("ranks", run.name)
        if not os.path.exists(os.path.join(ranks, "ranks.png")):  # which is written last
            command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", self.model(run)]
            command += ["--names", run.name, "--data", self.data, "--dest", ranks]
            command += ["--tokens", self.comparison.rank_tokens, "--tau", *self.comparison.taus]
            self.execute("ranks-" + run.name, command, device)
        self.records.keep(run, dict(options=self.options(run), validations=self.validations(run), **read_ranks(ranks)))
        self.evaluate(run, device, outcomes.FROZEN, self.comparison.tasks)

    def fine_tune(self, run, device):
        """Fine-tunes a run; if the folder has no model, it is trained again, by the same options and with its seed."""
        self.train(run, device)
        self.evaluate(run, device, FINE_TUNED, FINE_TUNED_TASKS, "--fine-tune", "mean")

    def evaluate(self, run, device, kind, tasks, *options):
        """Evaluates a run by recipes/evaluate.sh, and adds the outcomes to its record."""
        dest = self.path("evaluation")
        command = [sys.executable, os.path.join(RECIPES, "evaluate.py"), "--checkpoint", self.model(run)]
        command += ["--names", run.name, "--data", self.data, "--labelled", self.labelled, "--dest", dest]
        command += ["--tasks", *tasks, "--few-shot-repeats", self.comparison.few_shot_repeats, *options]
        self.execute(f"{kind}-{run.name}", command, device)
        self.records.add(run, [outcomes.record_path(dest, run.name, task, kind) for task in tasks])

    def execute(self, name, command, device=None):
        """Runs a program, perhaps on a :class:`~devices.Device`; its log has that name."""
        os.makedirs(self.path("logs"), exist_ok=True)
        execute(command, self.path("logs", name + ".log"), device and device.environment)


def logged_statistics(path, key):
    """The statistics that a training has logged: {number of updates: dict}; see :func:`show_progress.logged`."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        return {int(row[key]): row for row in logged(lines, key)}


def read_ranks(folder):
    """The tables of maelm_fairseq.effective_rank: ranks by layer, {tau: {family: [...]}}, and [MASK]'s own dimensions.

    Returns:
        {"ranks": ..., "mask_outside_real": {tau: [...]}}
    """
    ranks, outside = {}, {}
    with open(os.path.join(folder, "ranks.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            ranks.setdefault(row["tau"], {}).setdefault(row["family"], []).append(int(row["rank"]))
    with open(os.path.join(folder, "mask_dimensions.csv"), encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            outside.setdefault(row["tau"], []).append(float(row["mask_outside_real"]))
    return {"ranks": ranks, "mask_outside_real": outside}
