"""What the jobs of the comparison do, and the files that they read and write."""

import os
import shutil
import statistics
import sys

from arithmetic import operations
from comparison import SCRATCH
from experiment_folder import ExperimentFolder
from maelm_fairseq.files import read_json, save_json
from maelm_fairseq.vocabulary import load_dictionary
from pretraining import Optimization
from training_log import pretraining_record, training_log

MADE_BY = "a result of recipes/scores.sh"


class ComparisonFolder(ExperimentFolder):
    """The files of a comparison, and what makes them.

    Args:
        comparison: :class:`~comparison.Comparison`
        dest, data, at_a_time: as for :class:`~experiment_folder.ExperimentFolder`
    """

    def __init__(self, comparison, dest, data, at_a_time):
        super().__init__(dest, data, comparison.text, at_a_time)
        self.comparison = comparison

    def record(self, run):
        """The file of what was recorded of a run."""
        return self.path("pretraining", run.name, "record.json")

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run; known when the pilots have decided, or do not matter."""
        chosen = None if run.optimization else Optimization(**read_json(self.path("chosen.json"), MADE_BY)["chosen"])
        return run.options(self.comparison.text, chosen)

    def pretrain(self, run):
        """Trains a run; keeps some checkpoints without the optimizer's state, and a record."""
        folder = self.train(run.name, self.options(run), run.updates, self.comparison.kept_updates(run))
        save_json(self.recorded(run), os.path.join(folder, "record.json"))

    def recorded(self, run):
        """The validations of a run, each with the arithmetic and CPU seconds so far: list of dicts."""
        log = self.training_log(run.name)
        rows = training_log(log)
        tokens = statistics.mean(float(row["wpb"]) for row in rows) / statistics.mean(float(row["bsz"]) for row in rows)
        vocabulary = len(load_dictionary(self.data))
        once = operations(run.model, run.size, tokens, vocabulary) * self.comparison.text.batch_size / 1e9
        return [dict(row, gflop=round(once * row["update"], 3)) for row in pretraining_record(log)]

    def choose(self):
        """Chooses the pilot whose last validation loss is lowest; the first of equal ones."""
        pilots = self.comparison.pilots()
        losses = {run.name: read_json(self.record(run), MADE_BY)[-1]["loss"] for run in pilots}
        best = min(pilots, key=lambda run: losses[run.name])
        save_json(dict(losses=losses, chosen=vars(best.optimization)), self.path("chosen.json"))

    # Measuring

    def checkpoints(self, run):
        """The models of a run that are kept: {updates: path}, the final one last."""
        folder = self.path("pretraining", run.name)
        kept = {updates: os.path.join(folder, f"model-{updates}.pt") for updates in self.comparison.kept_updates(run)}
        kept[0 if run.model.name.startswith(SCRATCH.name) else run.updates] = self.model(run)
        return kept

    def rank_options(self):
        taus = map(str, self.comparison.taus)
        return ["--tokens", str(self.comparison.rank_tokens), "--tau", *taus]

    def measure_ranks(self, run):
        """Measures the effective ranks of all models of a run; their names in the tables are numbers of updates."""
        partial, final = self.path("ranks", run.name + ".partial"), self.path("ranks", run.name)
        kept = self.checkpoints(run)
        command = [sys.executable, "-m", "maelm_fairseq.effective_rank", "--checkpoint", *kept.values()]
        command += ["--names", *map(str, kept), "--data", self.data, "--dest", partial, *self.rank_options()]
        self.execute("ranks-" + run.name, command)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(partial, final)
