"""What the jobs of the comparison do, and the files that they read and write."""

import os
import statistics
from dataclasses import fields

from arithmetic import operations
from comparison import GATE_ROTTEN_TOMATOES, GATE_TREC
from experiment_folder import ExperimentFolder
from maelm_fairseq.errors import InstallationError, UsageError
from maelm_fairseq.files import read_json, save_json
from maelm_fairseq.vocabulary import load_dictionary
from pretraining import Optimization
from training_log import VALIDATIONS, pretraining_record, training_log

try:
    from evaluation import outcomes
    from evaluation.fine_tuning import KINDS
except ImportError as error:
    raise InstallationError(f"{error}: pip install scikit-learn scipy (the extra `evaluate`)") from None

MADE_BY = "a result of recipes/scores.sh"
CHOSEN = {"losses": {str: float}, "chosen": {field.name: float for field in fields(Optimization)}}


class ComparisonFolder(ExperimentFolder):
    """The files of a comparison, and what makes them.

    Args:
        comparison: :class:`~comparison.Comparison`
        dest, data, tasks, at_a_time: as for :class:`~experiment_folder.ExperimentFolder`
    """

    def __init__(self, comparison, dest, data, tasks, at_a_time):
        super().__init__(dest, data, comparison.text, tasks, at_a_time)
        self.comparison = comparison

    def record(self, name):
        """The file of what was recorded of a run."""
        return self.path("pretraining", name, "record.json")

    # Pretraining

    def options(self, run):
        """The options of fairseq-train for a run; known when the pilots have decided, or do not matter."""
        chosen = None
        if not run.optimization:
            chosen = Optimization(**read_json(self.path("chosen.json"), MADE_BY, CHOSEN)["chosen"])
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
        losses = {run.name: read_json(self.record(run.name), MADE_BY, VALIDATIONS)[-1]["loss"] for run in pilots}
        best = min(pilots, key=lambda run: losses[run.name])
        save_json(dict(losses=losses, chosen=vars(best.optimization)), self.path("chosen.json"))

    # Measuring

    def checkpoints(self, run):
        """The models of a run that are kept: {updates: path}, the final one last."""
        folder = self.path("pretraining", run.name)
        kept = {updates: os.path.join(folder, f"model-{updates}.pt") for updates in self.comparison.kept_updates(run)}
        return {**kept, self.comparison.final(run): self.model(run)}

    def rank_options(self):
        taus = map(str, self.comparison.taus)
        return ["--tokens", str(self.comparison.rank_tokens), "--tau", *taus]

    def measure_ranks_of(self, run):
        """Measures the effective ranks of all models of a run; their names in the tables are numbers of updates."""
        models = {str(updates): path for updates, path in self.checkpoints(run).items()}
        self.measure_ranks(run.name, models, self.rank_options())

    def evaluation(self, run, updates):
        """The folder of the evaluations after so many updates, in which that of a run has its name."""
        final = updates == self.comparison.final(run)
        return self.path("evaluation", "final" if final else f"after-{updates}")

    def evaluation_options(self, run, updates):
        """Few-shot probes are for the final models only."""
        draws = self.comparison.draws if updates == self.comparison.final(run) else 0
        return ["--tasks", *self.comparison.tasks, "--draws", str(draws)]

    def evaluate_run(self, run, updates, options=None):
        """Evaluates a model of a run; `options` take the place of :meth:`evaluation_options`."""
        dest, options = self.evaluation(run, updates), options or self.evaluation_options(run, updates)
        log = f"evaluate-{run.name}-{updates}"
        self.evaluate(run.name, self.checkpoints(run)[updates], dest, options, log)

    def finetuning_options(self):
        comparison = self.comparison
        options = ["--tasks", *comparison.fine_tuned_tasks, "--draws", str(comparison.draws)]
        return [*options, "--fine-tune", *comparison.fine_tuned]

    def finetune(self, run):
        """Fine-tunes the final model of a run, which is evaluated, on the folds of some tasks."""
        self.evaluate_run(run, self.comparison.final(run), self.finetuning_options())

    def evaluation_records(self, run, updates, kind=outcomes.FROZEN):
        """The records that an evaluation writes, in this order: {task: path}.

        Args:
            kind: of the record, for fine-tuning one of evaluation.fine_tuning.KINDS
        """
        dest = self.evaluation(run, updates)
        tasks = self.comparison.tasks if kind == outcomes.FROZEN else self.comparison.fine_tuned_tasks
        return {task: outcomes.record_path(dest, run.name, task, kind) for task in tasks}

    def outcomes(self, run, updates=None):
        """The outcomes of a model of a run: {task: (record, {kind: Outcome})}; None if it is not evaluated.

        Args:
            updates: None for its final model
        """
        updates = self.comparison.final(run) if updates is None else updates
        records = self.evaluation_records(run, updates)
        if not all(map(os.path.exists, records.values())):
            return None
        found = {task: outcomes.read(path) for task, path in records.items()}
        for kind in KINDS.values():
            for task, path in self.evaluation_records(run, updates, kind).items():
                if os.path.exists(path):
                    found[task][1].update(outcomes.read(path)[1])
        return found

    def check_gate(self):
        """Looks whether pretraining teaches enough; see :mod:`comparison`.

        Raises:
            UsageError: it does not
        """
        trained = list(map(self.outcomes, self.comparison.gate()))
        scratch = self.outcomes(self.comparison.untrained()[0])
        best = max(found["rotten_tomatoes"][1]["mean"].hindsight()[0] for found in trained)
        trec = [found["trec"][1]["mean"].score() for found in [*trained, scratch]]
        gain = max(trec[:-1]) - trec[-1]
        save_json(dict(rotten_tomatoes=best, trec_gain=gain), self.path("gate.json"))
        if best < GATE_ROTTEN_TOMATOES and gain < GATE_TREC:
            raise UsageError(
                f"{self.dest}: the first models reach {best:.1f} on rotten_tomatoes and gain {gain:+.1f} on trec, "
                f"expected {GATE_ROTTEN_TOMATOES:g} or {GATE_TREC:+g}; find out why before the other runs"
            )
