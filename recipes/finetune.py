"""Fine-tunes a pretrained encoder on labelled files, in several seeds, and reports the median of their scores.

Each seed is a run of fairseq-train in a folder of its own, SAVE_DIR/NAME/SETTINGS/seed1, whose checkpoint_last.pt is
the result. The same command goes on where it was stopped. Writes SAVE_DIR/results.tsv, and the best seed's predictions
beside the seeds: for GLUE and SQuAD in the form that their servers take.
"""

import datetime
import hashlib
import json
import logging
import math
import os
import sys
from functools import partial
from pathlib import Path
from typing import Dict

import numpy as np
import torch

from finetune_settings import combinations
from further_options import parsed, refuse_own
from jobs import Jobs
from maelm_fairseq import __path__ as plugin
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import Parser, UsageError, run, within
from maelm_fairseq.base.files import atomic_write, one_at_a_time, read_json, save_json
from maelm_fairseq.checkpoints.building import find_checkpoint, read_checkpoint
from maelm_fairseq.config import option
from maelm_fairseq.engine import FairseqConfig, convert_namespace_to_omegaconf
from maelm_fairseq.finetuning.labelled_files import find_file
from maelm_fairseq.finetuning.labelled_task import FROM_CHECKPOINT, SCORES, is_test
from maelm_fairseq.finetuning.prediction import load_task, make_task, predict
from maelm_fairseq.plugin import hooks  # noqa: F401  registers the tasks, also their models
from maelm_fairseq.training.save_folder import set_aside
from maelm_fairseq.vocabulary import fingerprint
from show_progress import Progress

BF16 = "--bf16-autocast"
READER = "maelm_fairseq.finetuning"  # what it says of the labelled files is said once, before training
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]
SEARCH_SEED = 0  # the reported scores are those of seeds 1 to --seeds
COLUMNS = ["date", "task", "metric", "median", "min", "max", "deviation", "seeds", "values", "start", "settings"]
# What the recipe sets: of the sections that say what is read, validated and saved, all but a few.
FREE = ["num_workers", "data_buffer_size", "batch_size_valid", "max_tokens_valid", "validate_interval"]
FREE += ["validate_interval_updates", "best_checkpoint_metric", "maximize_best_checkpoint_metric", "save_interval"]
FREE += ["save_interval_updates", "keep_interval_updates", "keep_last_epochs", "no_epoch_checkpoints"]
OWN = ["task", "criterion", "arch", "data", "labelled", "seed", "update_freq", "max_update", "max_epoch", "tpu"]
OWN += ["stop_time_hours"]
for section in ["dataset", "checkpoint", "distributed_training"]:
    options = FairseqConfig.__dataclass_fields__[section].type.__dataclass_fields__
    OWN += [name for name in options if name not in FREE]
PROGRAMS = dict(mae_lm_sentences="finetune_glue.sh", mae_lm_tokens="finetune_tagging.sh", squad="finetune_squad.sh")
TABLE = "results.tsv"
SERVER_NAMES = {("MNLI", "test"): "MNLI-m", ("MNLI", "test1"): "MNLI-mm", ("MNLI", "test2"): "AX"}


def parse(task, words):
    more = f"All other options go to fairseq-train, such as {BF16} for bfloat16 on CPU or GPU, in place of fp16"
    more += ", and --regression if a column `label` has numbers to predict" * (task == "mae_lm_sentences")
    more += ". docs/finetuning.md says which files are read."
    parser = Parser(prog=PROGRAMS[task], description=__doc__, epilog=more)
    add = parser.add_argument
    add("--labelled", required=True, metavar="DIR", help="folder of the labelled files; its name is the task's")
    add("--checkpoint", required=True, metavar="FILE", help="the pretrained model")
    add("--data", required=True, metavar="DIR", help="folder with its vocabulary")
    add("--save-dir", required=True, metavar="DIR", help="folder for all runs")
    add("--seeds", type=within(1), default=5, metavar="N", help="runs whose median is reported (default: 5)")
    add("--search", action="store_true", help="search the paper's settings first, with a separate seed")
    add("--from-scratch", action="store_true", help="train the same architecture without the pretrained weights")
    at_once = "runs at the same time (default: one on each GPU, or one on the CPU)"
    add("--jobs", type=within(1), metavar="N", help=at_once)
    collects = "only do this one of the --seeds runs, as in a job array; the command without it collects the results"
    add("--only-seed", type=within(1), metavar="N", help=collects)
    group = parser.add_argument_group("settings", "the defaults are in recipes/finetune_settings.py")
    add = partial(group.add_argument, action="store", nargs="+")  # a later one replaces an earlier one, as fairseq's do
    several = "; several with --search"
    add("--batch-size", type=within(1), metavar="N", help="sequences per update" + several)
    add("--lr", type=within(1e-12, 10, float), metavar="LR", help="peak learning rate" + several)
    add("--warmup-ratio", type=within(0, 1, float), metavar="R", help="share of warm-up updates" + several)
    add("--epochs", type=within(1, 10**6), metavar="N", help="passes over the training data" + several)
    args, extra = parser.parse_known_args(words)
    args.save_dir = os.path.abspath(args.save_dir)
    if args.only_seed and args.only_seed > args.seeds:
        raise UsageError(f"--only-seed {args.only_seed} must be from 1 to --seeds, which is {args.seeds}")
    return args, extra


class Recipe:
    """Fine-tuning on one task, by fairseq's name, from one checkpoint; `extra` are options for fairseq-train."""

    def __init__(self, task, args, extra):
        self.kind, self.args, self.extra = task, args, extra
        self.checkpoint = os.path.abspath(find_checkpoint(args.checkpoint))
        self.labelled = os.path.abspath(args.labelled)
        self.name = os.path.basename(self.labelled)
        read_table(args.save_dir)
        self.model = read_checkpoint(self.checkpoint)["cfg"]["model"]
        self.settings = combinations(args, task, self.name, self.model["encoder_embed_dim"])
        self.splits, self.digest, self.files = ["valid"], "", {}  # until the options are checked, and the files read
        self.cfg = self.check_options()
        self.task = self.read_task()
        self.digest = self.made_from()
        self.jobs = Jobs(args.jobs)

    def check_options(self):
        """fairseq's configuration with the further options, which must not change what the recipe itself sets."""
        command = self.command(self.settings[0], 1, updates=1)
        ours, theirs = (parsed(words[3:]) for words in (command[: len(command) - len(self.extra)], command))
        refuse_own(OWN, ours, theirs)
        return convert_namespace_to_omegaconf(theirs)

    def read_task(self):
        """Reads all labelled files, and says what they are, before anything is trained."""
        task = make_task(self.kind, **self.cfg.task)
        task.positions = self.model["max_positions"]
        task.prepare()
        needed = ("train", "valid")
        self.splits = [s for s in task.files if find_file(self.labelled, s, task.files, required=s in needed)]
        for split in self.splits:
            task.load_dataset(split)
        return task

    # Runs

    def scored(self):
        return [split for split in self.splits if split.startswith("valid")]

    def updates(self, settings):
        return math.ceil(len(self.task.datasets["train"]) / settings.batch_size) * settings.epochs

    def command(self, settings, seed, updates):
        """The command of a run."""
        options = ["--task", self.kind, "--criterion", self.kind, "--arch", "mae_lm", "--labelled", self.labelled]
        if self.args.from_scratch:
            flags = ["share_decoder_layers", "relative_position_local_init"]
            options += [option(name) for name in flags if self.model.get(name)]
            sizes = [name for name in FROM_CHECKPOINT if name not in flags]
            options += [part for name in sizes for part in (option(name), self.model[name])]
        else:
            options += ["--finetune-from-model", self.checkpoint]
        options += ["--save-dir", self.folder(settings, seed), "--valid-subset", ",".join(self.scored())]
        options += ["--ignore-unused-valid-subsets"]  # those of the text in --data
        options += ["--dropout", 0.1, "--attention-dropout", 0.1, "--pooler-dropout", 0.1]
        options += ["--batch-size", settings.batch_size, "--required-batch-size-multiple", 1, "--seed", seed]
        options += [*ADAM, "--lr-scheduler", "polynomial_decay", "--lr", settings.lr, "--total-num-update", updates]
        options += ["--warmup-updates", round(updates * settings.warmup_ratio), "--max-update", updates]
        options += ["--no-epoch-checkpoints", "--save-interval-updates", 5000, "--keep-interval-updates", 1]
        options += ["--num-workers", 0, "--distributed-world-size", 1, "--log-format", "json", "--log-interval", 50]
        in_float32 = {BF16, "--cpu"} & {*self.extra}
        device = ["--fp16"] * (not in_float32) if torch.cuda.is_available() else ["--cpu"]
        program = ["fairseq-train", "--user-dir", plugin[0], os.path.abspath(self.args.data)]
        return [*program, *map(str, [*options, *device]), *self.extra]

    def made_from(self):
        """A checksum of what results are made from beside the settings: files, vocabulary and further options."""
        files = [find_file(self.labelled, split, self.task.files) for split in self.splits if not is_test(split)]
        self.files = provenance.checksums([*files, self.checkpoint, self.task.tokenizer.path])
        made_from = [*self.files.values(), fingerprint(self.task.dictionary), self.args.from_scratch]
        return hashlib.sha256(repr([*made_from, *self.extra]).encode()).hexdigest()[:8]

    def folder(self, settings, seed):
        """Of a run. What it is made from is in its name, so that nothing is taken for the result of something else."""
        return os.path.join(self.args.save_dir, self.name, f"{settings}-{self.digest}", f"seed{seed}")

    def record(self, settings, seed):
        """The file with the scores of a run, which fairseq-train has then completed."""
        return Path(self.folder(settings, seed), "scores.json")

    def is_done(self, settings, seed):
        """Whether a run is complete; of a search, the scores are enough."""
        model = self.result(settings, seed)
        return self.record(settings, seed).exists() and (seed == SEARCH_SEED or os.path.isfile(model))

    def run(self, settings, seed, environment):
        """Trains, unless that is done; prints and returns the scores: {metric: percent}."""
        folder, name = self.folder(settings, seed), f"{self.name}, {settings}, seed {seed}"
        record = self.record(settings, seed)
        if not self.is_done(settings, seed):
            record.unlink(missing_ok=True)  # of a model that is gone
            provenance.check_unchanged(self.files)
            os.makedirs(folder, exist_ok=True)
            print(f"{name}: {folder}", flush=True)
            log, prefix = os.path.join(folder, "train.log"), "  " if self.jobs.count == 1 else f"{name}: "
            command = self.command(settings, seed, self.updates(settings))
            unit = " (squared error)" if "spearman" in self.task.datasets["valid"].metrics else " bits"
            status = self.jobs.run(command, log, environment, shown(prefix, unit))
            if status:
                raise UsageError(f"fairseq-train ended with exit status {status}; the full log is {log}")
            try:
                provenance.check_unchanged(self.files)
            except UsageError:
                set_aside(folder, ".changed")
                raise
            kept = read_checkpoint(self.result(settings, seed))["task_state"][SCORES]
            save_json({split: kept[split] for split in self.scored()}, record)
        if seed == SEARCH_SEED:  # the models of all settings would be hundreds of gigabytes
            for path in Path(folder).glob("checkpoint*.pt"):
                path.unlink()
        kept, scores = read_json(record, Dict[str, Dict[str, float]], "the scores of this run"), {}
        for split in self.scored():
            if kept.get(split, {}).keys() != {*self.task.datasets[split].metrics}:
                raise UsageError(f"{record}: found no scores of this run for {split}; remove it, and run again")
            scores.update({metric + "_mismatched" * (split != "valid"): v for metric, v in kept[split].items()})
        print(f"{name}: {', '.join(f'{metric} {value:.2f}' for metric, value in scores.items())}\n", end="", flush=True)
        return scores

    def result(self, settings, seed):
        """The checkpoint that a run is reported by: the last one, or the best if the options say by what."""
        kind = "last" if self.cfg.checkpoint.best_checkpoint_metric == "loss" else "best"
        return os.path.join(self.folder(settings, seed), f"checkpoint_{kind}.pt")

    def search(self):
        """Tries every combination of settings; returns the best."""
        if len(self.settings) == 1:
            return self.settings[0]
        if self.args.only_seed and not all(self.is_done(settings, SEARCH_SEED) for settings in self.settings):
            raise UsageError("--only-seed with --search: the search is not finished; first run it with --seeds 1")
        print(f"searching {len(self.settings)} settings", flush=True)
        scores = self.jobs.map(lambda settings, device: self.run(settings, SEARCH_SEED, device), self.settings)
        best = self.settings[ranked(scores, self.cfg.checkpoint.best_checkpoint_metric)[0]]
        print(f"best of {len(self.settings)}: {best}", flush=True)
        return best

    def main(self):
        """Runs everything; prints and records the results, and writes the predictions of the best seed."""
        settings = self.search()
        seeds = [self.args.only_seed] if self.args.only_seed else range(1, self.args.seeds + 1)
        scores = self.jobs.map(lambda seed, device: self.run(settings, seed, device), seeds)
        if self.args.only_seed:
            return
        start = "scratch" if self.args.from_scratch else self.checkpoint
        folder = os.path.dirname(self.folder(settings, 1))
        write_table(self.args.save_dir, self.name, scores, start, " ".join([os.path.basename(folder), *self.extra]))
        first = ranked(scores, self.cfg.checkpoint.best_checkpoint_metric)[0]
        best = self.result(settings, seeds[first])
        predicted = [split for split in self.splits if is_test(split) or (split, self.kind) == ("valid", "squad")]
        if predicted:
            task, model = load_task(best, labelled=self.labelled, data=self.args.data)
        for split in predicted:
            name, text = predictions(task, predict(task, model, split), split, self.name)
            path, contents = os.path.join(folder, name), text.encode()
            if os.path.exists(path) and Path(path).read_bytes() != contents:
                print(f"the earlier {path} is now called {set_aside(path, '.earlier')}")
            with atomic_write(path, "wb") as stream:
                stream.write(contents)
            print(f"predictions for {os.path.basename(find_file(self.labelled, split, task.files))}: {path}")
        print(f"model of the best seed: {best}")


def shown(prefix, unit):
    """A function that prints the progress in a line of fairseq-train's log, the loss with its unit."""
    progress = Progress()
    progress.unit = unit

    def show(line):
        text = None if READER in line or "Saved checkpoint" in line else progress.line(line)
        if text:
            print(prefix + text, flush=True)

    return show


# Results


def ranked(scores, metric=None):
    """The places of scores, a dict for each run, best first, by a metric or else the first; undefined is worst."""
    first = metric if metric in scores[0] else next(iter(scores[0]))
    return sorted(range(len(scores)), key=lambda i: math.inf if math.isnan(scores[i][first]) else -scores[i][first])


def read_table(folder):
    """The lines of the table of results in a folder, with the header; refuses another table of that name."""
    path, header = Path(folder, TABLE), "\t".join(COLUMNS).encode()
    lines = path.read_bytes().splitlines() if path.exists() else [header]
    if lines[:1] != [header]:
        raise UsageError(f"{path}: found another table, expected one of this recipe; choose another --save-dir")
    return lines


def write_table(folder, name, scores, start, settings):
    """Prints the median of each metric of `scores`, {metric: percent} for each seed, and adds it to the table, once."""
    rows = []
    for metric in scores[0]:
        values = np.array([row[metric] for row in scores])
        defined, bounded = values[~np.isnan(values)], np.nan_to_num(values, nan=-math.inf)  # undefined is worst
        deviation = defined.std(ddof=1) if len(defined) > 1 else 0.0
        numbers = [np.median(bounded), bounded.min(), bounded.max()]
        median, low, high = (f"{number:.2f}".replace("-inf", "nan") for number in numbers)
        undefined = ", ".join(f"seed {i + 1}" for i in np.flatnonzero(np.isnan(values)))
        why = "all predictions or all labels are equal, or there is one example"
        note = f"; undefined for {undefined}: {why}" * bool(undefined)
        spread = f", median of {len(values)} seeds ({low} to {high})" * (len(values) > 1)
        print(f"{name} {metric}: {median}{spread}{note}")
        row = [datetime.date.today().isoformat(), name, metric, median, low, high, f"{deviation:.2f}"]
        row += [str(len(values)), " ".join(f"{value:.2f}" for value in values), start, settings]
        rows.append("\t".join(map(printable, row)).encode())
    path = Path(folder, TABLE)
    with one_at_a_time(folder):
        lines = read_table(folder)
        known = {line.partition(b"\t")[2] for line in lines}  # with any date
        lines += [row for row in rows if row.partition(b"\t")[2] not in known]
        with atomic_write(path, "wb") as stream:
            stream.write(b"\n".join([*lines, b""]))
    print(f"results: {path}")


def printable(text):
    """A text without tabs, line breaks and what is not Unicode, such as bytes of a file's name."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def predictions(task, answers, split, name):
    """The name and the contents of a file of predictions: a label or value, tags, or a text for each example."""
    dataset = task.datasets[split]
    if task.head == "span":
        texts = {dataset.questions[i].id: text for i, text in task.texts(dataset, answers).items()}
        return f"{name}.{split}.json", json.dumps(texts, ensure_ascii=False, indent=1) + "\n"
    if task.head == "tokens":
        sentences = [zip(sentence.words, tags) for sentence, tags in task.tagged(dataset, answers)]
        return f"{name}.txt", "".join("".join(map("{0[0]}\t{0[1]}\n".format, pairs)) + "\n" for pairs in sentences)
    lines, labels = ["index\tprediction\n"], task.state.labels
    for i, number in enumerate(dataset.numbers):
        value = labels[max(range(len(labels)), key=answers[i].__getitem__)] if labels else answers[i][0]
        if name == "STS-B" and not labels:
            value = f"{min(max(value, 0), 5):.3f}"  # the server accepts only 0 to 5
        lines.append(f"{number}\t{value}\n")
    return server_name(name, split) + ".tsv", "".join(lines)


def server_name(name, split):
    """What the predictions for a split of a task are called, as far as GLUE's server says."""
    return SERVER_NAMES.get((name, split), name + {"test1": "_mismatched", "test2": "_diagnostic"}.get(split, ""))


def main():
    logging.disable(logging.NOTSET)
    logging.getLogger(READER).setLevel(logging.INFO)
    logging.getLogger(READER).addHandler(logging.StreamHandler(sys.stdout))
    task, *words = sys.argv[1:]
    recipe = Recipe(task, *parse(task, words))
    recipe.jobs.listen()
    recipe.main()


if __name__ == "__main__":
    run(main)
