"""The folder of a comparison's runs: data, models and logs, and the programs that make them."""

import glob
import os
import shutil
import statistics
import subprocess
import sys

import torch

from arithmetic import operations
from child_processes import program
from comparison import FINE_TUNED_TASKS, LEARNING_RATES
from devices import DeviceQueue, find_devices
from evaluation import outcomes
from fairseq_options import PLUGIN, RECIPES
from kept_records import FINE_TUNED, load
from maelm_fairseq.data.vocabulary import load_dictionary
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.engine.files import save_json
from trained_model import keep_model, updates_of
from training_log import add_cpu_seconds, pretraining_record, training_log, validated_updates

ROOT = os.path.dirname(RECIPES)
DATA_PREP = os.path.join(ROOT, "data-prep")
HERE = os.path.dirname(os.path.abspath(__file__))


class RunFolder:
    """The files of a comparison's runs, and what makes them.

    Args:
        comparison: :class:`~comparison.Comparison`
        dest: the folder
        data: a folder of binarized text; None for film reviews, which are downloaded
        tasks: a folder of labelled texts, as recipes/evaluate.sh takes them; None for those that are downloaded
        at_a_time: number of jobs that run at the same time, each on a device of its own
        kept: :class:`~kept_records.Records`
    """

    def __init__(self, comparison, dest, data, tasks, at_a_time, kept):
        self.comparison, self.dest, self.kept = comparison, os.path.abspath(dest), kept
        self.labelled = os.path.abspath(tasks) if tasks else self.path("labelled")
        self.data = os.path.abspath(data) if data else self.path("data")
        self.devices = DeviceQueue(find_devices(at_a_time))

    def path(self, *parts):
        return os.path.join(self.dest, *parts)

    def log(self, name):
        return self.path("logs", name + ".log")

    # Text, and labelled texts

    def text_options(self):
        return ["--vocab-size", str(self.comparison.text.vocab_size), "--lowercase"]

    def fetch_text(self):
        self.execute("text", [sys.executable, os.path.join(DATA_PREP, "movie_reviews.py"), "--dest", self.path("text")])

    def raw_text(self):
        return {name: self.path("text", name) for name in ("train.txt", "valid.txt")}

    def prepare_text(self):
        train, valid = self.raw_text().values()
        command = [os.path.join(DATA_PREP, "prepare.sh"), "--dest", self.data, *self.text_options()]
        self.execute("data", [*command, "--train", train, "--valid", valid])

    def fetch_labelled(self):
        command = [sys.executable, os.path.join(HERE, "substitute_datasets.py"), "--dest", self.labelled]
        self.execute("labelled", [*command, "--data", *self.comparison.tasks])

    def data_inputs(self):
        """The files that identify the text: {title: path}. The record of a split has its checksums."""
        names = ["dict.txt"]
        for split in ["train", "valid"]:
            recorded = os.path.exists(os.path.join(self.data, split + ".json"))
            names.append(split + (".json" if recorded else ".bin"))
        return {name: os.path.join(self.data, name) for name in names}

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run; known when the pilots have decided, or do not matter."""
        chosen = run.pilots and load(self.kept.chosen(run.pilots))["lr"]
        return self.comparison.options(run, chosen)

    def training_log(self, run):
        return self.log("pretrain-" + run.name)

    def model(self, run):
        return self.path("pretraining", run.name, "model.pt")

    def record(self, run):
        """The file of a run's validations."""
        return self.path("pretraining", run.name, "record.json")

    def train(self, run):
        """Trains a run to its end; keeps its model without the optimizer's state, and its validations."""
        folder, options, log = self.path("pretraining", run.name), self.options(run), self.training_log(run)
        updates, last = int(options[options.index("--max-update") + 1]), os.path.join(folder, "checkpoint_last.pt")
        if not os.path.exists(self.model(run)):
            # A run that was stopped at its last update has a checkpoint of it, and no validation.
            if min(updates_of(last), validated_updates(log)) < updates:
                variant = any(option.startswith("mae_lm_") and option != "mae_lm_tiny" for option in options)
                command = [
                    "fairseq-train",
                    self.data,
                    "--user-dir",
                    os.path.join(HERE, "variants") if variant else PLUGIN,
                ]
                command += ["--save-dir", folder, *options, *([] if torch.cuda.is_available() else ["--cpu"])]
                self.execute("pretrain-" + run.name, command, add_cpu_seconds)
            done = updates_of(last)
            if done < updates:
                raise UsageError(f"{folder}: {done} of {updates} updates; the whole log is in {log}")
            keep_model(folder, self.model(run))
        save_json(self.validations(run), self.record(run))

    def validations(self, run):
        """The validations of a run, each with the arithmetic and CPU seconds so far: list of dicts."""
        log, comparison = self.training_log(run), self.comparison
        rows = training_log(log)
        tokens = statistics.mean(float(row["wpb"]) for row in rows) / statistics.mean(float(row["bsz"]) for row in rows)
        once = operations(run.model, comparison.size, tokens, len(load_dictionary(self.data)))
        once *= comparison.text.batch_size / 1e9
        return [dict(row, gflop=round(once * row["update"], 3)) for row in pretraining_record(log)]

    def choose(self, model):
        """Chooses the learning rate whose pilot's last validation loss is lowest; the first of equal ones."""
        losses = [load(self.record(run))[-1]["loss"] for run in self.comparison.pilot_runs(model)]
        lr = LEARNING_RATES[losses.index(min(losses))]
        os.makedirs(self.kept.folder, exist_ok=True)
        save_json(dict(lr=lr, losses=dict(zip(map(str, LEARNING_RATES), losses))), self.kept.chosen(model))

    # Measuring

    def ranks(self, run):
        """The folder of a run's effective ranks."""
        return self.path("ranks", run.name)

    def rank_options(self):
        return ["--tokens", str(self.comparison.rank_tokens), "--tau", *map(str, self.comparison.taus)]

    def measure_ranks(self, run):
        """Measures the effective ranks of a run's model."""
        final = self.ranks(run)
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", self.model(run)]
        command += ["--names", run.name, "--data", self.data, "--dest", final + ".partial", *self.rank_options()]
        self.execute("ranks-" + run.name, command)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(final + ".partial", final)

    def outcomes(self, run, tuned=False):
        """The records that an evaluation of a run's frozen features writes, or its fine-tuning; in this order."""
        tasks = FINE_TUNED_TASKS if tuned else self.comparison.tasks
        kind = FINE_TUNED if tuned else outcomes.FROZEN
        return [outcomes.record_path(self.path("evaluation"), run.name, task, kind) for task in tasks]

    def evaluation_options(self, tuned=False):
        tasks = FINE_TUNED_TASKS if tuned else self.comparison.tasks
        options = ["--tasks", *tasks, "--draws", str(self.comparison.draws)]
        return [*options, *["--fine-tune", "mean"] * tuned]

    def evaluation_inputs(self, run):
        """What an evaluation reads: {title: path}."""
        files = sorted(glob.glob(os.path.join(glob.escape(self.labelled), "*", "*.tsv")))
        labelled = {os.path.relpath(file, self.labelled): file for file in files}
        vocabulary = {name: os.path.join(self.data, name) for name in ("dict.txt", "sentencepiece.model")}
        return {"model.pt": self.model(run), **vocabulary, **labelled}

    def evaluate(self, run, tuned=False):
        """Evaluates a run's model by recipes/evaluate.sh, or fine-tunes it, too; does not keep its features."""
        dest = self.path("evaluation")
        command = [sys.executable, os.path.join(RECIPES, "evaluate.py"), "--names", run.name, "--dest", dest]
        command += ["--checkpoint", self.model(run), "--data", self.data, "--labelled", self.labelled]
        log = f"finetune-{run.name}" if tuned else f"evaluate-{run.name}"
        self.execute(log, [*command, *self.evaluation_options(tuned)])
        shutil.rmtree(os.path.join(dest, "features", run.name), ignore_errors=True)

    # Running a program

    def execute(self, name, command, change=None):
        """Runs a program and appends its output to the log of that name.

        Args:
            change: function of the process that yields what to write, lines of bytes; None for its output
        """
        paths = [os.path.dirname(sys.executable), os.environ["PATH"]]
        environment = dict(os.environ, PATH=os.pathsep.join(paths), PYTHONPATH=ROOT, PYTHON=sys.executable)
        environment["OMP_WAIT_POLICY"] = "passive"
        os.makedirs(self.path("logs"), exist_ok=True)
        with self.devices.one() as device, open(self.log(name), "ab", buffering=0) as log:
            environment.update(device.environment)
            output = dict(stdout=subprocess.PIPE if change else log, stderr=subprocess.STDOUT)
            with program(command, **output, env=environment) as process:
                for line in change(process) if change else []:
                    log.write(line)
                status = process.wait()
        if status:
            with open(self.log(name), encoding="utf-8", errors="replace") as log:
                last = (log.read().strip().splitlines() or [""])[-1]
            raise UsageError(f"{name} stopped with exit status {status}: {last}; the whole log is in {self.log(name)}")
