"""Fine-tunes a pretrained encoder on labelled files, in several seeds, and reports the median of their scores.

Each seed is a run of fairseq-train in a folder of its own, SAVE_DIR/NAME/SETTINGS/seed1, whose checkpoint_last.pt is
the result. The same command resumes. The seed with the best score on the dev file then predicts the test files, and is
scored on those that have labels. For sentences, the recipe also prints the scores of a bag of words, which needs no
encoder.
Writes SAVE_DIR/results.tsv and, beside the seeds, the predictions for test files (for GLUE and SQuAD in the form that
their servers take) and a report with precision, recall and F1 of each class.
"""

import hashlib
import json
import logging
import math
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Dict, List

import torch

from finetune_results import (
    TABLE,
    Result,
    predictions,
    ranked,
    read_table,
    scores_of,
    show,
    still_rises,
    write_file,
    write_table,
)
from finetune_settings import SMALL_LAYER_DECAY, combinations, learns_for_long
from finetune_yardsticks import Measurement
from further_options import parsed, refuse_own
from jobs import Jobs
from maelm_fairseq import __path__ as plugin
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import Parser, UsageError, run, within
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.settings import option
from maelm_fairseq.checkpoints.building import find_checkpoint, read_checkpoint
from maelm_fairseq.engine import FairseqConfig, convert_namespace_to_omegaconf
from maelm_fairseq.finetuning.labelled_files import find_file, is_test
from maelm_fairseq.finetuning.labelled_task import FROM_CHECKPOINT, SCORES
from maelm_fairseq.finetuning.metrics import GROUPS, MOST_GROUPS, standard_errors
from maelm_fairseq.finetuning.prediction import load_task, make_task, predict
from maelm_fairseq.plugin import hooks  # noqa: F401  registers the tasks, also their models
from maelm_fairseq.training.save_folder import set_aside
from maelm_fairseq.vocabulary import fingerprint
from show_progress import Progress
from votes import BAG_OF_WORDS, TOGETHER

BF16 = "--bf16-autocast"
READER = "maelm_fairseq.finetuning"  # what it says of the labelled files is said once, before training
ADAM = ["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--adam-eps", 1e-6, "--weight-decay", 0.01]
SEARCH_SEED = 0  # the reported scores are those of seeds 1 to --seeds
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
LABELLING = {  # how predictors without a model of their own label new texts
    BAG_OF_WORDS: "; recipes/label_texts.py, without --checkpoint, labels new texts with it",
    TOGETHER: "; recipes/label_texts.py labels new texts with both",
}
PATIENCE = 60  # seconds that the bag of words may always take


def parse(task, words):
    more = f"All other options go to fairseq-train, such as {BF16} for bfloat16 on CPU or GPU, in place of fp16"
    more += ", and --regression if a column `label` has numbers to predict" * (task == "mae_lm_sentences")
    more += ", and --conllu-column xpos for another column of CoNLL-U than upos" * (task == "mae_lm_tokens")
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


@dataclass
class RunRecord:
    """What is kept of a run, beside its checkpoints."""

    scores: Dict[str, Dict[str, float]]  # {split: {metric: percent}}, of the model that is reported
    curve: List[float]  # the first metric on the dev file, after each validation
    seconds: float  # of training, since it was last started


class Recipe:
    """Fine-tuning on one task, by fairseq's name, from one checkpoint; `extra` are options for fairseq-train."""

    def __init__(self, task, args, extra):
        self.kind, self.args, self.extra = task, args, extra
        self.checkpoint = os.path.abspath(find_checkpoint(args.checkpoint))
        self.labelled = os.path.abspath(args.labelled)
        self.name = os.path.basename(self.labelled)
        if self.name == TABLE:
            fix = "rename it, as the table of results has that name"
            raise UsageError(f"--labelled {args.labelled}: found a folder called {TABLE}; {fix}")
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
        options += self.layer_decay()
        in_float32 = {BF16, "--cpu"} & {*self.extra}
        device = ["--fp16", "--fp16-no-flatten-grads"] * (not in_float32) if torch.cuda.is_available() else ["--cpu"]
        program = ["fairseq-train", "--user-dir", plugin[0], os.path.abspath(self.args.data)]
        return [*program, *map(str, [*options, *device]), *self.extra]

    def layer_decay(self):
        """Options: lower rates for lower layers of a small encoder, unless they have nothing to keep."""
        small = learns_for_long(self.kind, self.name, self.model["encoder_embed_dim"])
        return ["--lr-layer-decay", SMALL_LAYER_DECAY] * (small and not self.args.from_scratch)

    def made_from(self):
        """A checksum of what results are made from beside the settings: files, vocabulary and further options."""
        files = [find_file(self.labelled, split, self.task.files) for split in self.splits if not is_test(split)]
        self.files = provenance.checksums([*files, self.checkpoint, self.task.tokenizer.path])
        made_from = [*self.files.values(), fingerprint(self.task.dictionary), self.args.from_scratch]
        made_from += map(str, self.layer_decay())
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
        """Trains, unless that is done; prints the scores, and returns the `RunRecord`."""
        folder, name = self.folder(settings, seed), f"{self.name}, {settings}, seed {seed}"
        record = self.record(settings, seed)
        if not self.is_done(settings, seed):
            record.unlink(missing_ok=True)  # of a model that is gone
            provenance.check_unchanged(self.files)
            os.makedirs(folder, exist_ok=True)
            print(f"{name}: {folder}", flush=True)
            log, prefix = os.path.join(folder, "train.log"), "  " if self.jobs.count == 1 else f"{name}: "
            command = self.command(settings, seed, self.updates(settings))
            metrics = self.task.datasets["valid"].metrics
            unit = " (squared error, in variances)" if "spearman" in metrics else " bits"
            began = time.monotonic()
            status = self.jobs.run(command, log, environment, shown(prefix, unit))
            seconds = time.monotonic() - began
            if status:
                raise UsageError(f"fairseq-train ended with exit status {status}; the full log is {log}")
            try:
                provenance.check_unchanged(self.files)
            except UsageError:
                set_aside(folder, ".changed")
                raise
            state = read_checkpoint(self.result(settings, seed))
            scores = {split: state["task_state"][SCORES][split] for split in self.scored()}
            save_json(asdict(RunRecord(scores, curve(log, metrics[0]), seconds)), record)
        if seed == SEARCH_SEED:  # the models of all settings would be hundreds of gigabytes
            for path in Path(folder).glob("checkpoint*.pt"):
                path.unlink()
        kept = read_json(record, RunRecord, "the scores of this run")
        for split in self.scored():
            scores = kept.scores.get(split, {})
            if scores.keys() != {*self.task.datasets[split].metrics}:
                raise UsageError(f"{record}: found no scores of this run for {split}; remove it, and run again")
            text = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
            print(f"{name}, {self.file_name(split)}: {text}\n", end="", flush=True)
        return kept

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
        records = self.jobs.map(lambda settings, device: self.run(settings, SEARCH_SEED, device), self.settings)
        best = self.settings[self.ranked(records)[0]]
        print(f"best of {len(self.settings)}: {best}", flush=True)
        return best

    def ranked(self, records):
        """The places of the records of runs, best first, by the dev file."""
        metric = self.cfg.checkpoint.best_checkpoint_metric
        return ranked([record.scores["valid"] for record in records], metric)

    def file_name(self, split):
        """What the user calls a split: the name of its file."""
        return os.path.basename(find_file(self.labelled, split, self.task.files))

    def main(self):
        """Runs everything; prints and records the results, and writes what the best seed predicts."""
        settings = self.search()
        seeds = [self.args.only_seed] if self.args.only_seed else range(1, self.args.seeds + 1)
        records = self.jobs.map(lambda seed, device: self.run(settings, seed, device), seeds)
        if self.args.only_seed:
            return
        folder = os.path.dirname(self.folder(settings, 1))
        best = seeds[self.ranked(records)[0]]
        results, answered = self.finish(records, settings, best, folder)
        results += self.yardsticks(sum(record.seconds for record in records), results, answered)
        show(results)
        if len({result.start for result in results}) > 1:
            print(highest([result for result in results if result.split == self.file_name("valid")]))
        metric = self.task.datasets["valid"].metrics[0]
        rise = still_rises([record.curve for record in records], results[0].error)
        if rise is not None:
            where = f"{metric} on {self.file_name('valid')} rose by {rise:.2f} over the last quarter of training"
            print(f"not finished: {where}; try more --epochs than {settings.epochs}")
        write_table(self.args.save_dir, results)
        print(f"model of the best seed: {self.result(settings, best)}")

    def finish(self, records, settings, best, folder):
        """Has the model of the best seed predict every split; writes its predictions and its report.

        Returns: a `finetune_results.Result` for each split and metric; {split: answers}
        """
        logging.getLogger(READER).setLevel(logging.WARNING)  # what files were read was said before training
        task, model = load_task(self.result(settings, best), labelled=self.labelled, data=self.args.data)
        start = "scratch" if self.args.from_scratch else self.checkpoint
        options = " ".join([os.path.basename(folder), *self.extra])
        results, reports, answered = [], [], {}
        for split in self.splits:
            if split == "train":
                continue
            answers, name = predict(task, model, split), self.file_name(split)
            answered[split] = answers
            dataset = task.datasets[split]
            if is_test(split) or (split, self.kind) == ("valid", "squad"):
                place, text = predictions(task, answers, split, self.name)
                write_file(os.path.join(folder, place), text, f"predictions for {name}")
            if not dataset.metrics:
                continue
            report = task.report(dataset, answers)
            if report:
                reports.append(f"{name}, seed {best}\n{report}")
            groups = MOST_GROUPS if self.kind == "mae_lm_sentences" else GROUPS  # others take longer to score
            errors = standard_errors(partial(scores_of, task, dataset, answers), answers, groups)
            note = ", from scratch" if self.args.from_scratch else ""
            if split in self.scored():
                scores = [record.scores[split] for record in records]
            else:
                scores = [task.scores(dataset, answers)]
                note += f", seed {best}"
            for metric, error in errors.items():
                values = [each[metric] for each in scores]
                results.append(Result(self.name, name, metric, values, error, start, options, note))
        if reports:
            path = os.path.join(folder, f"{self.name}.report.txt")
            write_file(path, "\n".join(reports), "precision, recall and F1 of each class")
        return results, answered

    def yardsticks(self, seconds, results, answered):
        """The results of a bag of words on files of sentences, unless it takes longer than the `seconds` of training.

        Args:
            results, answered: of the encoder; see `Measurement.results`
        """
        if self.kind != "mae_lm_sentences":
            return []
        files = {split: find_file(self.labelled, split, self.task.files) for split in self.splits}
        measurement = Measurement(self.task, self.labelled, files, os.path.join(self.args.save_dir, self.name))
        found = measurement.run(self.jobs, limit=max(PATIENCE, seconds))
        return measurement.results(found, results, answered) if found else []


def highest(results):
    """A line about which predictor has the highest score; `results` are of the dev file, the encoder's first one first.

    Args:
        results: list of `finetune_results.Result`
    """
    first = [result for result in results if result.metric == results[0].metric]
    best = max(first, key=lambda result: statistics.median(result.bounded))
    name = "the encoder" if best is first[0] else best.start
    return f"highest on {best.split}: {name}{LABELLING.get(name, '')}"


def curve(log, metric):
    """A score on the dev file after each validation that a log of fairseq-train has."""
    values = {}
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if f'"valid_{metric}"' in line:
                stats = json.loads(line[line.index("{") :])
                values[int(stats["valid_num_updates"])] = float(stats[f"valid_{metric}"])
    return [values[update] for update in sorted(values)]


def shown(prefix, unit):
    """A function that prints the progress in a line of fairseq-train's log, the loss with its unit."""
    progress = Progress()
    progress.unit = unit

    def show(line):
        text = None if READER in line or "Saved checkpoint" in line else progress.line(line)
        if text:
            print(prefix + text, flush=True)

    return show


def main():
    import sklearn  # noqa: F401  reports need it: now, not after training

    logging.disable(logging.NOTSET)
    logging.getLogger(READER).setLevel(logging.INFO)
    logging.getLogger(READER).addHandler(logging.StreamHandler(sys.stdout))
    task, *words = sys.argv[1:]
    recipe = Recipe(task, *parse(task, words))
    recipe.jobs.listen()
    recipe.main()


if __name__ == "__main__":
    run(main)
