"""The runs of a fine-tuning recipe: one for each seed or setting, in a folder of its own.

A run is trained unless its folder has the result already.
The folder is SAVE_DIR/NAME/SETTINGS-CHECKSUM/seed1, and its checkpoint_last.pt the result.
"""

import math
import os
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Dict, List, Tuple

from ..base import provenance
from ..base.checkpoint_names import LAST_CHECKPOINT, RUN_RECORD
from ..base.errors import UsageError
from ..base.files import set_aside
from ..base.json_files import read_json, save_json
from ..base.option_fields import option_name
from ..base_task import make_task
from ..checkpoints.building import read_checkpoint
from ..finetuning.finetuning_task import SCORES_ENTRY
from ..finetuning.labelled_files import is_test_split
from ..vocabulary import fingerprint
from .finetune_options import Run
from .finetune_results import rank_runs
from .log_report import LogReport, read_validations

# The logger that reports on the labelled files: it does so once, before training.
FILE_LOGGER = "maelm_fairseq.finetuning"
SEARCH_SEED = 0  # the reported scores come from seeds 1 to --seeds


@dataclass
class RunRecord:
    """What is kept of a run, beside its checkpoints."""

    scores: Dict[str, Dict[str, float]]  # {split: {metric: percent}}, of the model that is reported
    curve: List[Tuple[int, float]]  # update and first metric on the dev file, of each validation
    seconds: float  # of training
    checkpoint: str = LAST_CHECKPOINT  # whose scores these are


class FineTuningRuns:
    """The runs of one task from one checkpoint.

    Args:
        command: `finetune_options.FineTuningCommand`
        cfg: fairseq's configuration of such a run
        jobs: `jobs.Jobs`

    Attributes:
        task: the `FineTuningTask`, which has read all files
        splits: of these files
    """

    def __init__(self, command, cfg, jobs):
        self.command = command
        self.cfg = cfg
        self.jobs = jobs
        self.task, self.splits = build_task_with_datasets(command, cfg)
        files = [self.path(split) for split in self.splits if not is_test_split(split)]
        files += [command.checkpoint_file, self.task.tokenizer.path]
        self.files = provenance.compute_sha256s(files)
        self.checksum = self.checksum_of_inputs()

    def path(self, split):
        """The file of a split."""
        return self.task.path(split)

    def file_sha256(self, split):
        """The first digits of the SHA-256 of the file of a split, which tell files apart."""
        return provenance.sha256(self.path(split))[:8]

    def file_name(self, split):
        """What the user calls a split."""
        return os.path.basename(self.path(split))

    def validation_splits(self):
        """The splits that a run is validated on."""
        return [split for split in self.splits if split.startswith("valid")]

    def checksum_of_inputs(self):
        """A checksum of what results are made from, apart from the settings.

        That is files, vocabulary and further options.
        """
        inputs = [*self.files.values(), fingerprint(self.task.dictionary)]
        inputs.append(self.command.args.from_scratch)
        for name, value in self.command.layer_decay_settings().items():
            inputs += [option_name(name), str(value)]
        inputs += self.command.fairseq_args
        return provenance.short_checksum(inputs)

    def seeds_folder(self, hyperparameters):
        """The folder of the runs of all seeds.

        Its name includes the checksum of what they are made from, so that nothing is taken for the
        result of something else.
        """
        name = f"{hyperparameters}-{self.checksum}"
        return os.path.join(self.command.args.save_dir, self.command.name, name)

    def folder(self, run):
        return os.path.join(self.seeds_folder(run.hyperparameters), f"seed{run.seed}")

    def checkpoint_path(self, run):
        """The checkpoint that is reported: the last one, or the best if the options say by what."""
        chosen = "last" if self.cfg.checkpoint.best_checkpoint_metric == "loss" else "best"
        return os.path.join(self.folder(run), f"checkpoint_{chosen}.pt")

    def record_path(self, run):
        """The file with the scores of a run; it exists once fairseq-train has completed the run."""
        return Path(self.folder(run), RUN_RECORD)

    def is_done(self, run):
        """Whether a run is complete; of a search, the scores are enough."""
        has_model = run.seed == SEARCH_SEED or os.path.isfile(self.checkpoint_path(run))
        return has_model and self.record_path(run).exists()

    def num_updates(self, hyperparameters):
        batches = math.ceil(len(self.task.datasets["train"]) / hyperparameters.batch_size)
        return batches * hyperparameters.epochs

    def run_seeds(self, hyperparameters, seeds):
        """The `RunRecord` of each seed; trains where it is missing, several at the same time."""
        self.report_earlier_runs(hyperparameters)
        missing = [seed for seed in seeds if not self.is_done(Run(hyperparameters, seed))]

        def run_seed(seed, environment):
            start = time.monotonic()
            record = self.load_or_train(Run(hyperparameters, seed), environment)
            further_rounds = math.ceil(len(missing) / self.jobs.count) - 1
            if seed in missing[:1] and further_rounds:
                # Starting fairseq-train takes time, too.
                left = timedelta(seconds=round((time.monotonic() - start) * further_rounds))
                others = "seed takes" if len(missing) == 2 else "seeds take"
                print(f"the other {others} about {left}", flush=True)
            return record

        return self.jobs.map(run_seed, seeds)

    def report_earlier_runs(self, hyperparameters):
        """Says why there is more to do if there are runs of the same settings from other inputs."""
        folder = Path(self.seeds_folder(hyperparameters))
        if folder.exists() or not folder.parent.exists():
            return
        prefix = f"{hyperparameters}-"
        names = [path.name for path in folder.parent.iterdir() if path.name.startswith(prefix)]
        if names:
            print(
                f"{self.command.name}: training again, as the checkpoint, a labelled file, the "
                f"vocabulary or an option differs from {', '.join(sorted(names))}",
                flush=True,
            )

    def search(self, candidates):
        """Tries all candidates, a list of `Hyperparameters`; returns the best."""
        if len(candidates) == 1:
            return candidates[0]
        is_finished = all(self.is_done(Run(candidate, SEARCH_SEED)) for candidate in candidates)
        if self.command.args.only_seed and not is_finished:
            raise UsageError(
                "--only-seed with --search: the search is not finished; first run it with --seeds 1"
            )
        print(f"searching {len(candidates)} settings", flush=True)

        def run_candidate(candidate, environment):
            run = Run(candidate, SEARCH_SEED)
            record = self.load_or_train(run, environment)
            # The models of all settings would be hundreds of gigabytes.
            for path in Path(self.folder(run)).glob("checkpoint*.pt"):
                path.unlink()
            return record

        records = self.jobs.map(run_candidate, candidates)
        best = candidates[self.rank_by_dev_score(records)[0]]
        print(f"best of {len(candidates)}: {best}", flush=True)
        return best

    def rank_by_dev_score(self, records):
        """The indices of the records of runs, best first, by the dev file."""
        metric = self.cfg.checkpoint.best_checkpoint_metric
        return rank_runs([record.scores["valid"] for record in records], metric)

    def load_or_train(self, run, environment):
        """Trains, unless that is done; prints the scores, and returns the `RunRecord`."""
        name = f"{self.command.name}, {run.hyperparameters}, seed {run.seed}"
        if not self.is_done(run):
            self.train(run, environment, name)
        path = self.record_path(run)
        record = read_json(path, RunRecord, "the scores of this run")
        for split in self.validation_splits():
            scores = record.scores.get(split, {})
            if scores.keys() != {*self.task.datasets[split].metrics}:
                raise UsageError(
                    f"{path}: found no scores of this run for {split}; remove it, and run again"
                )
            text = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
            # One string with its end of line, as several runs print at the same time.
            print(f"{name}, {self.file_name(split)}: {text}\n", end="", flush=True)
        return record

    def train(self, run, environment, name):
        """Runs fairseq-train, and keeps the scores.

        The variables in `environment` limit it to its device; `name` is what the user calls it.
        """
        folder = self.folder(run)
        record_path = self.record_path(run)
        record_path.unlink(missing_ok=True)  # the scores of a model that is gone
        provenance.check_unchanged(self.files)
        os.makedirs(folder, exist_ok=True)
        print(f"{name}: {folder}", flush=True)
        log = os.path.join(folder, "train.log")
        metrics = self.task.datasets["valid"].metrics
        prefix = "  " if self.jobs.count == 1 else f"{name}: "
        show = progress(prefix, self.task.loss_unit())
        splits = self.validation_splits()
        argv = self.command.argv(run, self.num_updates(run.hyperparameters), folder, splits)
        status = self.jobs.execute(argv, log, environment, show)
        if status:
            raise UsageError(
                f"fairseq-train ended with exit status {status}; the full log is {log}"
            )
        try:
            provenance.check_unchanged(self.files)
        except UsageError:
            set_aside(folder, ".changed")
            raise
        checkpoint = read_checkpoint(self.checkpoint_path(run))
        scores = {split: checkpoint["task_state"][SCORES_ENTRY][split] for split in splits}
        first = f"valid_{metrics[0]}"
        seconds = checkpoint["extra_state"]["previous_training_time"]  # also before a resumption
        curve = []
        for update, stats in read_validations(log).items():
            if first in stats:
                curve.append((update, float(stats[first])))
        name = os.path.basename(self.checkpoint_path(run))
        save_json(asdict(RunRecord(scores, curve, seconds, name)), record_path)


def build_task_with_datasets(command, cfg):
    """Reads all labelled files, and says what they are, before anything is trained.

    Returns: the task, and the splits of the files
    """
    task = make_task(command.task_class, **cfg.task)
    task.max_tokens = command.model_options["max_positions"]
    task.prepare_state()
    splits = []
    for split in task.files:
        if task.path(split, required=split in ("train", "valid")):
            splits.append(split)
    for split in splits:
        task.load_dataset(split)
    return task, splits


def progress(prefix, unit):
    """A function that prints the progress that a line of fairseq-train's log reports.

    Args:
        prefix: prefix of the printed lines
        unit: unit of the loss
    """
    report = LogReport(unit)

    def show(line):
        if FILE_LOGGER in line or "Saved checkpoint" in line:
            return
        text = report.format_line(line)
        if text:
            print(prefix + text, flush=True)

    return show
