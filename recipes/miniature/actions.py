"""What the jobs do: the programs that they run, and the files that they read and write."""

import concurrent.futures
import glob
import os
import sys

from experiment_folder import DATA_PREP, ExperimentFolder
from fairseq_options import RECIPES
from maelm_fairseq.errors import InstallationError
from maelm_fairseq.files import read_json, save_json
from maelm_fairseq.records import positive
from training_log import pretraining_record, training_log

try:
    from evaluation import outcomes
    from results import MADE_BY
except ImportError as error:
    raise InstallationError(f"{error}: pip install scikit-learn scipy (the extra `evaluate`)") from None


class Actions(ExperimentFolder):
    """What the jobs do, and the files that they read and write.

    Args:
        experiment: :class:`~experiment.Experiment`
        dest, data, tasks, at_a_time: as for :class:`~experiment_folder.ExperimentFolder`
        updates: of every run of pretraining; None for as many as fit into `minutes`
        minutes: of pretraining for each model
    """

    def __init__(self, experiment, dest, data, tasks, updates, minutes, at_a_time):
        super().__init__(dest, data, experiment.text, tasks, at_a_time)
        self.experiment = experiment
        self.given_updates, self.minutes = updates, minutes

    # Pretraining

    def updates(self):
        """The number of updates of every run; known when the speed is."""
        return self.given_updates or read_json(self.path("speed.json"), MADE_BY, {"updates": positive})["updates"]

    @staticmethod
    def speed_name(run):
        return f"speed-{run.model.name}"

    def speed_options(self, run):
        return [*run.options(self.experiment.speed_updates), "--no-save", "--disable-validation"]

    def measure_speed(self):
        """Trains the compared models briefly, side by side as later, to see how many updates fit into the minutes."""
        commands = {self.speed_name(run): self.speed_options(run) for run in self.experiment.compared_once()}
        commands = {name: self.command(name, options) for name, options in commands.items()}
        with concurrent.futures.ThreadPoolExecutor(min(self.at_a_time, len(commands))) as pool:
            list(pool.map(self.execute, commands, commands.values()))
        rates, parts = [training_log(self.log(name))[-1]["ups"] for name in commands], self.experiment.parts
        updates = max(parts, round(self.minutes * 60 * min(map(float, rates)) / parts) * parts)
        save_json(dict(updates_a_second=rates, updates=updates), self.path("speed.json"))

    def pretrain(self, run):
        """Trains a run; keeps its checkpoints without the optimizer's state, and its validations."""
        updates = self.updates()
        kept = [*self.experiment.part_updates(updates).values(), updates]
        folder = self.train(run.name, run.options(updates), updates, kept)
        save_json(pretraining_record(self.training_log(run.name)), os.path.join(folder, "record.json"))

    # Measuring

    def rank_options(self):
        return ["--tokens", str(self.experiment.rank_tokens)]

    def evaluation_options(self, baselines):
        return ["--tasks", *self.experiment.tasks, "--draws", "0", *["--baselines"] * baselines]

    def evaluate_model(self, name, model, baselines):
        """Evaluates a model.

        Args:
            baselines: whether to evaluate random weights and counts of pieces, too
        """
        options = self.evaluation_options(baselines)
        self.evaluate(name, model, self.path("evaluation"), options, "evaluate-" + name)

    def evaluation_records(self, name):
        """What an evaluation writes, in this order: {task: path}."""
        return {task: outcomes.record_path(self.path("evaluation"), name, task) for task in self.experiment.tasks}

    def part_model(self, run, number):
        return self.path("pretraining", run.name, f"model-{self.experiment.part_updates(self.updates())[number]}.pt")

    # Fine-tuning, for the ranks after it

    def encoding_options(self):
        return ["--task", self.experiment.tasks[0], "--max-tokens", str(self.experiment.text.tokens_per_sample)]

    def encode_task(self):
        """Encodes the first task with the vocabulary of the data."""
        folders = ["--input", self.labelled, "--vocabulary", self.data, "--dest", self.path("encoded")]
        self.execute("encoded", [os.path.join(DATA_PREP, "glue.sh"), *folders, *self.encoding_options()])

    def task_record(self):
        """The file that identifies the encoded task."""
        return self.path("encoded", self.experiment.tasks[0], "task.json")

    def finetuning_results(self, run):
        """The table that fine-tuning a run's model ends with."""
        return self.path("finetuning", run.name, "results.tsv")

    def finetune(self, run):
        """Fine-tunes a run's model on the first task."""
        command = [sys.executable, os.path.join(RECIPES, "finetune_glue.py"), "--data", self.path("encoded")]
        command += ["--checkpoint", self.model(run), "--save-dir", self.path("finetuning", run.name)]
        command += ["--results", self.finetuning_results(run), *self.experiment.finetune_options()]
        self.execute("finetune-" + run.name, command)

    def finetuned_model(self, run):
        """The model that :meth:`finetune` kept."""
        pattern = self.path("finetuning", run.name, self.experiment.tasks[0], "*", "*", "seed1", "model.pt")
        return next(iter(glob.glob(pattern)), pattern)
