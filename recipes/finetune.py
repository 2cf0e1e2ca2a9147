"""What fine-tuning recipes share: settings, search, seeds, a fairseq-train run for each, and the rows of results.

A run has a folder of its own, SAVE_DIR/TASK/pretrained/SETTINGS/seed1 (or scratch/): `run.json` says what it is,
`checkpoint_last.pt` is there while it trains, `model.pt` when it has, `metrics.json` when it is done; `train.log`.
"""

import argparse
import contextlib
import csv
import datetime
import hashlib
import itertools
import json
import logging
import math
import os
import shlex
import statistics
import sys
import warnings
from collections import namedtuple

RECIPES = os.path.dirname(os.path.abspath(__file__))
PLUGIN = os.path.join(os.path.dirname(RECIPES), "maelm_fairseq")
sys.path.insert(0, os.path.dirname(RECIPES))
logging.disable(logging.INFO)  # of this process; fairseq-train's go to train.log
warnings.simplefilter("ignore")

import torch  # noqa: E402

from child_processes import run_and_show  # noqa: E402
from maelm_fairseq.checkpoint import load_model, read_checkpoint  # noqa: E402
from maelm_fairseq.errors import MissingFileError, UsageError  # noqa: E402
from maelm_fairseq.files import save_json  # noqa: E402
from maelm_fairseq.vocabulary import load_dictionary  # noqa: E402

SIZES = [
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "max_positions",
    "relative_position_num_buckets",
    "relative_position_max_distance",
]
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]
SEARCH_SEED = 0  # the scores that are reported are of the others, 1 to --seeds
LARGE_WIDTH = 1024
LEARNING_RATES = {"base": [1e-5, 2e-5, 3e-5, 4e-5], "large": [5e-6, 7e-6, 1e-5, 2e-5]}
COLUMNS = ["date", "task", "metric", "median", "min", "max", "deviation", "seeds", "values", "start", "settings"]


class Settings(namedtuple("Settings", "batch_size lr warmup_ratio epochs")):
    """What a search varies."""

    def __str__(self):
        return "batch{}-lr{:g}-warmup{:g}-epochs{}".format(*self)


def option(name):
    """The option that sets an attribute: --warmup-ratio for warmup_ratio."""
    return "--" + name.replace("_", "-")


def read_settings(task):
    """The row of finetune_settings.tsv for a task: dict of strings; empty where there is none."""
    with open(os.path.join(RECIPES, "finetune_settings.tsv"), encoding="utf-8") as stream:
        rows = csv.DictReader((line for line in stream if not line.startswith("#")), delimiter="\t")
        return next((row for row in rows if row["task"] == task), {})


def read_record(path, made_by):
    """The JSON record that a program of data-prep writes last."""
    if not os.path.exists(path):
        raise MissingFileError(f"{path}: not found, expected data as {made_by} prepares it")
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, and exit status 1."""

    def error(self, message):
        raise UsageError(f"{message} (--help lists the options)")


def parser(description):
    """A parser of the options that all recipes have."""
    made = Parser(
        description=description,
        allow_abbrev=False,
        epilog="Everything else goes to fairseq-train. Run the same command again to go on where it was stopped.",
    )
    made.add_argument("--checkpoint", required=True, metavar="FILE", help="the pretrained model")
    made.add_argument("--data", required=True, metavar="DIR", help="the prepared data")
    made.add_argument("--save-dir", required=True, metavar="DIR", help="a folder for all runs")
    made.add_argument("--results", metavar="FILE", help="rows are appended to it (default: SAVE_DIR/results.tsv)")
    made.add_argument("--seeds", type=int, default=5, metavar="N", help="runs to take the median of (default: 5)")
    made.add_argument("--search", action="store_true", help="search the paper's space first, with a seed of its own")
    made.add_argument("--from-scratch", action="store_true", help="the same sizes without the pretrained weights")
    made.add_argument("--dry-run", action="store_true", help="print each run's state and command, and stop")
    group = made.add_argument_group("settings", "their defaults are in recipes/finetune_settings.tsv")
    several = "; with --search several to try"
    group.add_argument("--batch-size", type=int, nargs="+", metavar="N", help="sequences in an update" + several)
    group.add_argument("--lr", type=float, nargs="+", metavar="LR", help="the highest learning rate" + several)
    group.add_argument("--warmup-ratio", type=float, nargs="+", metavar="R", help="share of updates to reach it in")
    group.add_argument("--epochs", type=int, nargs="+", metavar="N", help="passes over the training data" + several)
    return made


class Recipe:
    """One task from one checkpoint.

    Args:
        args, extra: what :func:`parser` read, and options left for fairseq-train
        task: name of the task: in finetune_settings.tsv, and of the folder of its runs
        data: the folder for fairseq-train
        record: the file that identifies the data
        examples: how many there are to train on
        max_tokens: of the longest example, at most
        options: of fairseq-train, for this task
        evaluate: function of a model's file -> dict of metrics, in percent; the first is the one to choose by
        epochs: those that a search tries

    Raises:
        UsageError: an option, or a checkpoint that cannot be loaded or does not fit the data
    """

    def __init__(self, args, extra, task, data, record, examples, max_tokens, options, evaluate, epochs):
        self.args, self.extra, self.task, self.data = args, extra, task, data
        self.examples, self.options, self.evaluate = examples, options, evaluate
        self.cfg = load_model(args.checkpoint, load_dictionary(data)).cfg
        if max_tokens > self.cfg.max_positions:
            raise UsageError(
                f"{data}: prepared with --max-tokens {max_tokens}, but {args.checkpoint} has {self.cfg.max_positions} "
                f"positions; prepare it again with --max-tokens {self.cfg.max_positions}"
            )
        if args.seeds < 1:
            raise UsageError(f"--seeds {args.seeds} must be at least 1")
        size = "large" if self.cfg.encoder_embed_dim >= LARGE_WIDTH else "base"
        space = Settings([16, 32], LEARNING_RATES[size], [1 / 16, 1 / 10], epochs)
        values = [self.values(name, getattr(space, name)) for name in Settings._fields]
        self.combinations = [Settings(*combination) for combination in itertools.product(*values)]
        start = None if args.from_scratch else digest(args.checkpoint)
        self.origin = dict(checkpoint=start, data=digest(record))

    def values(self, name, space):
        """The values of a setting to run: those given, else those to search, else the default."""
        flag, given = option(name), getattr(self.args, name)
        if given is None and self.args.search:
            return space
        if given is None:
            default = read_settings(self.task).get(name)
            if default is None:
                raise UsageError(f"{flag}: no default for task {self.task} in finetune_settings.tsv; give it")
            return [type(space[0])(float(default))]
        if len(given) > 1 and not self.args.search:
            raise UsageError(f"{flag} {' '.join(map(str, given))}: give one value, or --search to try them all")
        for value in given:
            if value < 0 or value == 0 and name != "warmup_ratio" or value >= 1 and name == "warmup_ratio":
                raise UsageError(f"{flag} {value} must be {'from 0 to below 1' if '-w' in flag else 'over 0'}")
        return given

    def updates(self, settings):
        return math.ceil(self.examples / settings.batch_size) * settings.epochs

    def fairseq_options(self, settings, seed):
        """Options of fairseq-train that make a run what it is: all but folders and devices."""
        updates = self.updates(settings)
        options = [part for name in SIZES for part in (option(name), getattr(self.cfg, name))]
        options += ["--dropout", 0.1, "--attention-dropout", 0.1, "--pooler-dropout", 0.1, *self.options]
        options += ["--batch-size", settings.batch_size, "--required-batch-size-multiple", 1]  # 8 drops examples
        options += [*ADAM, "--lr-scheduler", "polynomial_decay", "--lr", settings.lr, "--total-num-update", updates]
        options += ["--warmup-updates", round(updates * settings.warmup_ratio), "--max-update", updates]
        options += ["--max-epoch", settings.epochs, "--seed", seed]
        return list(map(str, options)) + self.extra

    def command(self, settings, seed):
        """The fairseq-train command of a run."""
        command = ["fairseq-train", os.path.abspath(self.data), "--user-dir", PLUGIN, "--arch", "mae_lm"]
        command += [
            "--save-dir",
            self.folder(settings, seed),
            "--no-epoch-checkpoints",
            "--distributed-world-size",
            "1",
        ]
        command += ["--save-interval-updates", "5000", "--keep-interval-updates", "1"]
        command += ["--num-workers", "0"]  # ending a worker takes seconds, at the end of every epoch
        command += ["--log-format", "json", "--log-interval", "50"]
        command += ["--fp16"] if torch.cuda.is_available() else ["--cpu"]
        if not self.args.from_scratch:
            command += ["--finetune-from-model", os.path.abspath(self.args.checkpoint)]
        return command + self.fairseq_options(settings, seed)

    def folder(self, settings, seed):
        start = "scratch" if self.args.from_scratch else "pretrained"
        return os.path.join(os.path.abspath(self.args.save_dir), self.task, start, str(settings), f"seed{seed}")

    def identity(self, settings, seed):
        """What a folder's run.json must say for its run to be this one."""
        return dict(self.origin, options=self.fairseq_options(settings, seed))

    def run(self, settings, seed):
        """Trains and evaluates, unless that is done; gives the metrics."""
        folder = self.folder(settings, seed)
        os.makedirs(folder, exist_ok=True)
        identity, identity_file = self.identity(settings, seed), os.path.join(folder, "run.json")
        metrics_file, model_file = os.path.join(folder, "metrics.json"), os.path.join(folder, "model.pt")
        if os.path.exists(identity_file):
            with open(identity_file, encoding="utf-8") as stream:
                found = json.load(stream)
            different = [name for name in identity if found.get(name) != identity[name]]
            if different:
                raise UsageError(
                    f"{folder}: holds a run with other {' and '.join(different)} (run.json); "
                    "give another --save-dir, or remove that folder"
                )
        save_json(identity, identity_file)
        if os.path.exists(metrics_file):
            with open(metrics_file, encoding="utf-8") as stream:
                return json.load(stream)
        if not os.path.exists(model_file):
            self.train(settings, seed, os.path.join(folder, "checkpoint_last.pt"))
            keep_model(folder, model_file)
        metrics = self.evaluate(model_file)
        save_json(metrics, metrics_file)
        return metrics

    def train(self, settings, seed, checkpoint):
        """Runs fairseq-train until `checkpoint` has seen all updates."""
        expected = self.updates(settings)
        if updates_of(checkpoint) < expected:  # fairseq would train a finished run for one more
            command = self.command(settings, seed)
            log = os.path.join(os.path.dirname(checkpoint), "train.log")
            status = run_and_show(command, log)
            if status:
                raise UsageError(f"fairseq-train stopped with exit status {status}; the whole log is in {log}")
            if updates_of(checkpoint) < expected:
                raise UsageError(f"fairseq-train did {updates_of(checkpoint)} of {expected} updates; its log is {log}")

    def search(self):
        """Tries every combination of settings; gives the best."""
        if len(self.combinations) == 1:
            return self.combinations[0]
        scores = {}
        for i, settings in enumerate(self.combinations):
            print(f"search {i + 1} of {len(self.combinations)}: {settings}", flush=True)
            metrics = self.run(settings, SEARCH_SEED)
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.folder(settings, SEARCH_SEED), "model.pt"))
            scores[settings] = next(iter(metrics.values()))
            print("  " + show(metrics), flush=True)
        best = max(self.combinations, key=scores.get)
        print(f"best of {len(self.combinations)}: {best}", flush=True)
        return best

    def main(self):
        """Runs all; prints and appends the results; gives the model file of the best seed."""
        if self.args.dry_run:
            return self.show_runs()
        settings = self.search()
        all_metrics = []
        for seed in range(1, self.args.seeds + 1):
            print(f"{self.task}, {settings}: seed {seed} of {self.args.seeds}", flush=True)
            all_metrics.append(self.run(settings, seed))
            print("  " + show(all_metrics[-1]), flush=True)
        results = self.args.results or os.path.join(self.args.save_dir, "results.tsv")
        append_rows(results, self.rows(settings, all_metrics))
        first = next(iter(all_metrics[0]))
        best = max(range(len(all_metrics)), key=lambda i: all_metrics[i][first]) + 1
        return os.path.join(self.folder(settings, best), "model.pt")

    def show_runs(self):
        runs = [(settings, SEARCH_SEED) for settings in self.combinations]
        if len(runs) == 1:
            runs = [(self.combinations[0], seed) for seed in range(1, self.args.seeds + 1)]
        for settings, seed in runs:
            done = os.path.exists(os.path.join(self.folder(settings, seed), "metrics.json"))
            print("done:" if done else "to do:", " ".join(map(shlex.quote, self.command(settings, seed))))

    def rows(self, settings, all_metrics):
        """A row for each metric; prints them, too."""
        start = "scratch" if self.args.from_scratch else self.args.checkpoint
        for metric in all_metrics[0]:
            values = [metrics[metric] for metrics in all_metrics]
            median, low, high = statistics.median(values), min(values), max(values)
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"{self.task} {metric}: {median:.2f}, median of {len(values)} seeds ({low:.2f} to {high:.2f})")
            numbers = [f"{number:.2f}" for number in (median, low, high, deviation)]
            shown = " ".join(f"{value:.2f}" for value in values)
            today = datetime.date.today().isoformat()
            yield [
                today,
                self.task,
                metric,
                *numbers,
                str(len(values)),
                shown,
                start,
                " ".join([str(settings)] + self.extra),
            ]


def append_rows(path, rows):
    """Appends rows to a table of results, but for those that it has (of whatever date)."""
    rows = ["\t".join(row) for row in rows]
    there = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            there = stream.read().splitlines()
    new = [row for row in rows if row.split("\t", 1)[1] not in (line.partition("\t")[2] for line in there)]
    if new:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("\n".join(([] if there else ["\t".join(COLUMNS)]) + new) + "\n")
    print(f"results: {path}")


def updates_of(checkpoint):
    """How many updates a checkpoint of fairseq has seen; 0 where there is none."""
    if not os.path.exists(checkpoint):
        return 0
    return read_checkpoint(checkpoint)["optimizer_history"][-1]["num_updates"]


def keep_weights(checkpoint, model_file):
    """Copies a checkpoint without the optimizer's state."""
    state = read_checkpoint(checkpoint)
    state.pop("last_optimizer_state", None)
    partial = model_file + ".partial"
    torch.save(state, partial)
    os.replace(partial, model_file)


def keep_model(folder, model_file):
    """Of a finished run keeps the model alone, without the optimizer's state."""
    keep_weights(os.path.join(folder, "checkpoint_last.pt"), model_file)
    for name in os.listdir(folder):
        if name.startswith("checkpoint_"):
            os.remove(os.path.join(folder, name))


def digest(path):
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        for part in iter(lambda: stream.read(1 << 20), b""):
            found.update(part)
    return found.hexdigest()


def show(metrics):
    return ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
