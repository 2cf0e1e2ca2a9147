"""What the jobs of the comparison do, and the files that they read and write."""

import os
import statistics

from arithmetic import operations
from comparison import LEARNING_RATES
from comparison_records import Records
from experiment_folder import ExperimentFolder
from fairseq_options import PLUGIN
from maelm_fairseq.errors import InstallationError
from maelm_fairseq.files import read_json, save_json
from maelm_fairseq.vocabulary import load_dictionary
from training_log import VALIDATIONS, pretraining_record, training_log

try:
    from evaluation import outcomes
    from evaluation.fine_tuning import KINDS
except ImportError as error:
    raise InstallationError(f"{error}: pip install scikit-learn scipy (the extra `evaluate`)") from None

MADE_BY = "a result of recipes/scores.sh"
VARIANTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variants")
FINE_TUNED = "mean"  # what the heads read


class ComparisonFolder(ExperimentFolder):
    """The files of a comparison, and what makes them.

    Args:
        comparison: :class:`~comparison.Comparison`
        dest, data, tasks, at_a_time: as for :class:`~experiment_folder.ExperimentFolder`
        records: the folder of the records that are kept, and reported
    """

    def __init__(self, comparison, dest, data, tasks, at_a_time, records):
        super().__init__(dest, data, comparison.text, tasks, at_a_time)
        self.comparison, self.kept = comparison, Records(comparison, records)

    def record(self, name):
        """The file of what was recorded of the training of a run."""
        return self.path("pretraining", name, "record.json")

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run; known when the pilots have decided, or do not matter."""
        chosen = run.pilots and read_json(self.chosen(run.pilots), MADE_BY, {"lr": float})["lr"]
        return self.comparison.options(run, chosen)

    def command(self, name, options):
        """A fairseq-train command; variants of the method are a plugin of their own."""
        command = super().command(name, options)
        variant = any(option.startswith("mae_lm_") and option != "mae_lm_tiny" for option in options)
        return [VARIANTS if variant and part == PLUGIN else part for part in command]

    def pilot(self, run):
        """Trains a run; keeps its last checkpoint without the optimizer's state, and a record, which it returns."""
        self.train(run.name, self.options(run), run.updates or 2, [])
        rows = self.recorded(run)
        save_json(rows, self.record(run.name))
        return rows

    def pretrain(self, run):
        """Trains a run as :meth:`pilot` does; its record is among those that are kept, too."""
        self.kept.begin(run, options=self.options(run), validations=self.pilot(run))

    def recorded(self, run):
        """The validations of a run, each with the arithmetic and CPU seconds so far: list of dicts."""
        log = self.training_log(run.name)
        rows = training_log(log)
        tokens = statistics.mean(float(row["wpb"]) for row in rows) / statistics.mean(float(row["bsz"]) for row in rows)
        vocabulary, size = len(load_dictionary(self.data)), self.comparison.size
        once = operations(run.model, size, tokens, vocabulary) * self.comparison.text.batch_size / 1e9
        return [dict(row, gflop=round(once * row["update"], 3)) for row in pretraining_record(log)]

    def chosen(self, model):
        """The file of what the pilots of a model decided, among the records that are kept."""
        return self.kept.path(f"chosen-{model.name}.json")

    def choose(self, model):
        """Chooses the learning rate whose pilot's last validation loss is lowest; the first of equal ones."""
        records = [self.record(run.name) for run in self.comparison.pilot_runs(model)]
        losses = [read_json(path, MADE_BY, VALIDATIONS)[-1]["loss"] for path in records]
        lr = LEARNING_RATES[losses.index(min(losses))]
        os.makedirs(self.kept.folder, exist_ok=True)
        save_json(dict(lr=lr, losses=dict(zip(map(str, LEARNING_RATES), losses))), self.chosen(model))

    # Measuring

    def rank_options(self):
        taus = map(str, self.comparison.taus)
        return ["--tokens", str(self.comparison.rank_tokens), "--tau", *taus]

    def ranks(self, run):
        """Measures the effective ranks of a run's model."""
        self.measure_ranks(run.name, {run.name: self.model(run)}, self.rank_options())
        self.kept.add_ranks(run, self.path("ranks", run.name))

    def evaluation_options(self):
        return ["--tasks", *self.comparison.tasks, "--draws", str(self.comparison.draws)]

    def evaluate_run(self, run):
        """Evaluates the model of a run on frozen features."""
        log = f"evaluate-{run.name}"
        self.evaluate(run.name, self.model(run), self.path("evaluation"), self.evaluation_options(), log)
        self.kept.add_outcomes(run, self.evaluation_records(run))

    def finetuning_options(self):
        comparison = self.comparison
        options = ["--tasks", *comparison.fine_tuned_tasks, "--draws", str(comparison.draws)]
        return [*options, "--fine-tune", FINE_TUNED]

    def finetune(self, run):
        """Fine-tunes the model of a run, which is evaluated, on the folds of some tasks."""
        log = f"finetune-{run.name}"
        self.evaluate(run.name, self.model(run), self.path("evaluation"), self.finetuning_options(), log)
        self.kept.add_outcomes(run, self.finetuning_records(run))

    def evaluation_records(self, run):
        """The records that an evaluation writes, in this order: {task: path}."""
        dest, kind = self.path("evaluation"), outcomes.FROZEN
        return {task: outcomes.record_path(dest, run.name, task, kind) for task in self.comparison.tasks}

    def finetuning_records(self, run):
        """The records that fine-tuning writes, in this order: {task: path}."""
        dest, kind = self.path("evaluation"), KINDS[FINE_TUNED]
        return {task: outcomes.record_path(dest, run.name, task, kind) for task in self.comparison.fine_tuned_tasks}
