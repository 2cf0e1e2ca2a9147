"""What experiments have in common: a folder with data, logs and pretrained models, and the programs that fill it."""

import glob
import os
import shutil
import subprocess
import sys

import torch

from child_processes import program
from devices import DeviceQueue, find_devices
from fairseq_options import PLUGIN, RECIPES
from jobs import Job
from maelm_fairseq.errors import UsageError
from trained_model import keep_model, keep_weights, updates_of
from training_log import add_cpu_seconds, validated_updates

ROOT = os.path.dirname(RECIPES)
DATA_PREP = os.path.join(ROOT, "data-prep")


class ExperimentFolder:
    """The files of an experiment, and what makes them.

    Args:
        dest: the folder
        data: a folder of binarized text; None for film reviews, which are downloaded
        text: :class:`~pretraining.Text`
        tasks: a folder of labelled texts, as recipes/evaluate.sh takes them; None for those that are downloaded
        at_a_time: number of jobs that run at the same time, each on a device of its own
    """

    def __init__(self, dest, data, text, tasks, at_a_time):
        self.dest, self.text, self.at_a_time = os.path.abspath(dest), text, at_a_time
        self.labelled = os.path.abspath(tasks) if tasks else self.path("labelled")
        self.devices = DeviceQueue(find_devices(at_a_time))
        self.data = os.path.abspath(data) if data else self.path("data")

    def path(self, *parts):
        return os.path.join(self.dest, *parts)

    def log(self, name):
        return self.path("logs", name + ".log")

    # The data

    def text_options(self):
        return ["--vocab-size", str(self.text.vocab_size), "--lowercase"]

    def fetch_text(self):
        self.execute("text", [sys.executable, os.path.join(DATA_PREP, "movie_reviews.py"), "--dest", self.path("text")])

    def prepare_text(self):
        command = [os.path.join(DATA_PREP, "prepare.sh"), "--dest", self.data, *self.text_options()]
        for split in ["train", "valid"]:
            command += ["--" + split, self.path("text", split + ".txt")]
        self.execute("data", command)

    def text_jobs(self):
        """The jobs that download and prepare the text."""
        raw = {name: self.path("text", name) for name in ["train.txt", "valid.txt"]}
        return [
            Job("text", (), self.fetch_text, output=raw["train.txt"], leaves=[self.path("text")]),
            Job(
                "data",
                (),
                self.prepare_text,
                output=os.path.join(self.data, "train.json"),
                leaves=[self.data],
                inputs=lambda: raw,
                options=self.text_options,
                needs=["text"],
            ),
        ]

    def data_inputs(self):
        """The files that identify the text: {title: path}. The record of a split has its checksums."""
        names = ["dict.txt"]
        for split in ["train", "valid"]:
            recorded = os.path.exists(os.path.join(self.data, split + ".json"))
            names.append(split + (".json" if recorded else ".bin"))
        return {name: os.path.join(self.data, name) for name in names}

    # The labelled texts

    def fetch_labelled(self, names):
        command = [sys.executable, os.path.join(DATA_PREP, "substitute_datasets.py"), "--dest", self.labelled]
        self.execute("labelled", [*command, "--data", *names])

    def labelled_job(self, names):
        """The job that downloads the labelled texts of some tasks."""
        return Job(
            "labelled texts",
            (),
            lambda: self.fetch_labelled(names),
            output=os.path.join(self.labelled, names[-1], "train.tsv"),
            leaves=[self.labelled],
            options=lambda: list(names),
        )

    # Pretraining

    def command(self, name, options):
        """A fairseq-train command."""
        device = [] if torch.cuda.is_available() else ["--cpu"]
        folders = [self.data, "--user-dir", PLUGIN, "--save-dir", self.path("pretraining", name)]
        return ["fairseq-train", *folders, *options, *device]

    def training_log(self, name):
        """The log of a run."""
        return self.log("pretrain-" + name)

    def model(self, run):
        return self.path("pretraining", run.name, "model.pt")

    def train(self, name, options, updates, kept):
        """Trains a run to its end; keeps checkpoints without the optimizer's state.

        Args:
            name: of the run
            options: of fairseq-train, except folders and devices
            updates: total number of updates
            kept: numbers of updates whose checkpoint is kept too, as model-UPDATES.pt; the last one is model.pt
        Returns:
            the run's folder
        """
        folder = self.path("pretraining", name)
        last, model = os.path.join(folder, "checkpoint_last.pt"), os.path.join(folder, "model.pt")
        if not os.path.exists(model):
            # A run that was stopped at its last update has a checkpoint of it, and no validation.
            if min(updates_of(last), validated_updates(self.training_log(name))) < updates:
                self.execute("pretrain-" + name, self.command(name, options), add_cpu_seconds)
            done = updates_of(last)
            if done < updates:
                raise UsageError(
                    f"{folder}: {done} of {updates} updates; the whole log is in {self.training_log(name)}"
                )
            for update in kept:
                for checkpoint in glob.glob(os.path.join(folder, f"checkpoint_*_{update}.pt")):
                    keep_weights(checkpoint, os.path.join(folder, f"model-{update}.pt"))
            keep_model(folder, model)
        return folder

    # Measuring

    def measure_ranks(self, name, models, options):
        """Measures the effective ranks of models, into ranks/NAME.

        Args:
            models: {name in the tables: path}
            options: of maelm_fairseq.effective_rank, except folders
        """
        partial, final = self.path("ranks", name + ".partial"), self.path("ranks", name)
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", *models.values()]
        command += ["--names", *models, "--data", self.data, "--dest", partial, *options]
        self.execute("ranks-" + name, command)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)

    def evaluate(self, name, model, dest, options, log):
        """Evaluates a model by recipes/evaluate.sh; does not keep its features.

        Args:
            name: of its records in `dest`
            options: of recipes/evaluate.sh, except models and folders
        """
        command = [sys.executable, os.path.join(RECIPES, "evaluate.py"), "--names", name, "--dest", dest]
        command += ["--checkpoint", model, "--data", self.data, "--labelled", self.labelled]
        self.execute(log, [*command, *options])
        shutil.rmtree(os.path.join(dest, "features", name), ignore_errors=True)

    def evaluation_inputs(self, model):
        """What an evaluation reads: {title: path}."""
        files = sorted(glob.glob(os.path.join(glob.escape(self.labelled), "*", "*.tsv")))
        labelled = {os.path.relpath(file, self.labelled): file for file in files}
        vocabulary = {name: os.path.join(self.data, name) for name in ("dict.txt", "sentencepiece.model")}
        return {"model.pt": model, **vocabulary, **labelled}

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
