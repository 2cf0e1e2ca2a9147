"""What the jobs do: the programs that they run, and the files that they read and write."""

import concurrent.futures
import glob
import os
import shutil
import sys

from experiment import SCRATCH
from experiment_folder import DATA_PREP, ExperimentFolder
from fairseq_options import RECIPES
from finetune_results import metrics_in_percent
from maelm_fairseq.files import read_json, save_json
from maelm_fairseq.records import positive
from results import MADE_BY
from training_log import pretraining_record, training_log


class Actions(ExperimentFolder):
    """What the jobs do, and the files that they read and write.

    Args:
        experiment: :class:`~experiment.Experiment`
        dest: the folder of the reproduction
        data, tasks: folders of text and labelled texts; None for those that are downloaded
        updates: of every run of pretraining; None for as many as fit into `minutes`
        minutes: of pretraining for each model
        at_a_time: number of jobs that run at the same time
    """

    def __init__(self, experiment, dest, data, tasks, updates, minutes, at_a_time):
        super().__init__(dest, data, experiment.text, at_a_time)
        self.experiment = experiment
        self.tasks = os.path.abspath(tasks) if tasks else self.path("tasks")
        self.given_updates, self.minutes = updates, minutes

    # The labelled texts

    def task_options(self):
        """For the tasks with classes, then for those with values: lists of options of data-prep/glue.sh."""
        tasks, tokens = self.experiment.tasks, ["--max-tokens", str(self.experiment.text.tokens_per_sample)]
        return [
            ["--task", *(task.name for task in tasks if not task.regression), *tokens],
            ["--task", *(task.name for task in tasks if task.regression), "--regression", *tokens],
        ]

    def fetch_tasks(self):
        """Downloads the labelled texts and encodes them with the vocabulary of the data."""
        raw, names = self.path("labelled"), [task.name for task in self.experiment.tasks]
        command = [sys.executable, os.path.join(DATA_PREP, "substitute_datasets.py"), "--dest", raw, "--data", *names]
        self.execute("labelled", command)
        folders = ["--input", raw, "--vocabulary", self.data, "--dest", self.tasks]
        for options in self.task_options():
            self.execute("tasks", [os.path.join(DATA_PREP, "glue.sh"), *folders, *options])
        save_json(names, self.path("tasks", "done"))

    def task_record(self, task):
        """The file that identifies a task's data."""
        return os.path.join(self.tasks, task.name, "task.json")

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

    def measure_ranks(self, name, checkpoint):
        partial, final = self.path("ranks", name + ".partial"), self.path("ranks", name)
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", checkpoint, "--names", name]
        self.execute("ranks-" + name, command + ["--data", self.data, "--dest", partial, *self.rank_options()])
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)

    def finetune_options(self, name, task, seeds):
        return self.experiment.finetune_options(task, seeds) + ["--from-scratch"] * (name == SCRATCH)

    def finetune(self, name, checkpoint, task, seeds):
        """Fine-tunes on a task for several seeds; keeps the scores, and the first seed's model."""
        folder = self.path("finetuning", name)
        command = [sys.executable, os.path.join(RECIPES, "finetune_glue.py"), "--data", self.tasks]
        command += ["--checkpoint", checkpoint, "--save-dir", folder]
        command += ["--results", os.path.join(folder, task.name, "results.tsv")]
        self.execute(f"finetune-{name}-{task.name}", command + self.finetune_options(name, task, seeds))
        files = sorted(glob.glob(f"{folder}/{task.name}/*/*/*/metrics.json"))
        save_json(
            [read_json(file, MADE_BY, metrics_in_percent) for file in files], os.path.join(folder, task.name + ".json")
        )
        for model in glob.glob(f"{folder}/{task.name}/*/*/seed*/model.pt"):
            if not model.endswith("seed1/model.pt"):
                os.remove(model)

    def finetuned_model(self, run):
        """The first task's model of a run's first seed of fine-tuning."""
        pattern = self.path("finetuning", run.name, self.experiment.tasks[0].name, "*", "*", "seed1", "model.pt")
        return next(iter(glob.glob(pattern)), pattern)

    def part_model(self, run, number):
        return self.path("pretraining", run.name, f"model-{self.experiment.part_updates(self.updates())[number]}.pt")
