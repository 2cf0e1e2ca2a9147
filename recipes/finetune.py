"""What the fine-tuning recipes share: the search, the seeds, and a run of fairseq-train for each seed.

Each run has its own folder, SAVE_DIR/TASK/pretrained/SETTINGS/seed1 (with --from-scratch, scratch/ in place of
pretrained/): `run.json` identifies the run, `checkpoint_last.pt` exists during training, `model.pt` after training,
`metrics.json` when the run is complete; `train.log` is fairseq's log.
"""

import contextlib
import functools
import math
import os
from dataclasses import dataclass
from typing import Dict, List, Optional

import torch

from child_processes import run_and_show
from devices import DeviceQueue, find_devices
from fairseq_options import ADAM, PLUGIN
from finetune_results import add_rows, best_run, make_rows
from finetune_settings import combinations, search_space
from maelm_fairseq.base import provenance
from maelm_fairseq.base.errors import Parser, UsageError
from maelm_fairseq.base.files import read_json, save_json, sha256
from maelm_fairseq.checkpoints.building import load_model
from maelm_fairseq.config import check_positions, option
from maelm_fairseq.vocabulary import load_dictionary
from trained_model import keep_model, updates_of

BF16 = "--bf16-autocast"
SEARCH_SEED = 0  # the reported scores are those of seeds 1 to --seeds
SIZES = [
    *("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "max_positions"),
    *("relative_position_num_buckets", "relative_position_max_distance", "relative_position_buckets"),
]


def parser(description):
    """A parser for the options of all fine-tuning recipes."""
    made = Parser(
        description=description,
        allow_abbrev=False,
        epilog=f"All other options go to fairseq-train, such as {BF16} for bfloat16 on CPU or GPU, in place of fp16. "
        "To resume a stopped run, repeat the same command.",
    )
    add = made.add_argument
    add("--checkpoint", required=True, metavar="FILE", help="the pretrained model")
    add("--data", required=True, metavar="DIR", help="the prepared data")
    add("--save-dir", required=True, metavar="DIR", help="folder for all runs")
    add("--seeds", type=int, default=5, metavar="N", help="number of runs whose median is reported (default: 5)")
    add("--search", action="store_true", help="search the paper's settings first, with a separate seed")
    add("--from-scratch", action="store_true", help="train the same architecture without the pretrained weights")
    add("--jobs", type=int, metavar="N", help="runs at the same time (default: one on each GPU, or one on the CPU)")
    collects = "only do this one of the --seeds runs, as in a job array; the command without it collects the results"
    add("--only-seed", type=int, metavar="N", help=collects)

    add = made.add_argument_group("settings", "the defaults are in recipes/finetune_settings.py").add_argument
    several = "; several with --search"
    add("--batch-size", type=int, nargs="+", metavar="N", help="sequences per update" + several)
    add("--lr", type=float, nargs="+", metavar="LR", help="peak learning rate" + several)
    add("--warmup-ratio", type=float, nargs="+", metavar="R", help="share of the updates spent warming up" + several)
    add("--epochs", type=int, nargs="+", metavar="N", help="passes over the training data" + several)
    return made


def device_options(extra):
    """What fairseq-train needs to know of the device; `extra` are its other options, among which may be BF16."""
    if not torch.cuda.is_available():
        return ["--cpu"]
    return [] if BF16 in extra else ["--fp16"]


@dataclass
class RunRecord:
    """What a run is made from: SHA-256 of checkpoint and data, and the options of fairseq-train."""

    checkpoint: Optional[str]
    data: str
    options: List[str]

    def parts(self):
        return {"checkpoint": self.checkpoint, "data": self.data, **provenance.by_option(self.options)}


class Recipe:
    """Fine-tuning on one task, from one checkpoint.

    Args:
        args, extra: the options that :func:`parser` read, and those left for fairseq-train
        task: name of the task, in finetune_settings.py and in the path of its runs
        data: data folder for fairseq-train
        record: file that identifies the data
        examples: number of training examples
        max_tokens: upper limit on the length of an example
        options: of fairseq-train, for this task
        evaluate: function of a model file -> dict of metrics in percent; the first one selects the best run
        epochs: the values that a search tries

    Raises:
        UsageError: a wrong option, or a checkpoint that cannot be loaded or does not fit the data
    """

    def __init__(self, args, extra, task, data, record, examples, max_tokens, options, evaluate, epochs):
        self.args, self.extra, self.task, self.data = args, extra, task, data
        self.examples, self.options, self.evaluate = examples, options, evaluate
        self.cfg = load_model(args.checkpoint, load_dictionary(data)).cfg
        prepared, positions = f"{data}: prepared with --max-tokens {max_tokens}", self.cfg.max_positions
        fix = f"prepare it again with --max-tokens {positions}"
        check_positions(max_tokens, positions, prepared, fix, args.checkpoint)
        if args.seeds < 1:
            raise UsageError(f"--seeds {args.seeds} must be over 0")
        if args.only_seed is not None and not 1 <= args.only_seed <= args.seeds:
            raise UsageError(f"--only-seed {args.only_seed} must be from 1 to --seeds, which is {args.seeds}")
        self.devices = DeviceQueue(find_devices(args.jobs))
        self.combinations = combinations(args, task, search_space(self.cfg.encoder_embed_dim, epochs))
        self.start = "scratch" if args.from_scratch else "pretrained"
        self.inputs = None if args.from_scratch else sha256(args.checkpoint), sha256(record)

    def updates(self, settings):
        return math.ceil(self.examples / settings.batch_size) * settings.epochs

    def fairseq_options(self, settings, seed):
        """The options of fairseq-train that identify a run: all but folders and devices."""
        updates = self.updates(settings)
        options = [part for name in SIZES for part in (option(name), getattr(self.cfg, name))]
        if self.cfg.share_decoder_layers:  # says how effective ranks are measured
            options += ["--share-decoder-layers", "--decoder-layers", self.cfg.decoder_layers]
        options += ["--dropout", 0.1, "--attention-dropout", 0.1, "--pooler-dropout", 0.1, *self.options]
        options += ["--batch-size", settings.batch_size, "--required-batch-size-multiple", 1]  # 8 drops examples
        options += [*ADAM, "--lr-scheduler", "polynomial_decay", "--lr", settings.lr, "--total-num-update", updates]
        options += ["--warmup-updates", round(updates * settings.warmup_ratio), "--max-update", updates]
        options += ["--max-epoch", settings.epochs, "--seed", seed]
        return list(map(str, options)) + self.extra

    def command(self, settings, seed):
        """The fairseq-train command of a run."""
        command = ["fairseq-train", os.path.abspath(self.data), "--user-dir", PLUGIN, "--arch", "mae_lm"]
        command += ["--save-dir", self.path(settings, seed), "--no-epoch-checkpoints"]
        command += ["--save-interval-updates", "5000", "--keep-interval-updates", "1", "--distributed-world-size", "1"]
        command += ["--num-workers", "0"]  # stopping a worker takes seconds after every epoch
        command += ["--log-format", "json", "--log-interval", "50", *device_options(self.extra)]
        if not self.args.from_scratch:
            command += ["--finetune-from-model", os.path.abspath(self.args.checkpoint)]
        return command + self.fairseq_options(settings, seed)

    def path(self, settings, seed, *name):
        """Of a run's folder, or of a file in it."""
        save_dir = os.path.abspath(self.args.save_dir)
        return os.path.join(save_dir, self.task, self.start, str(settings), f"seed{seed}", *name)

    def run(self, settings, seed, device):
        """Trains and evaluates on a device, skipping what is done; prints and returns the metrics."""
        name, folder = f"{self.task}, {settings}, seed {seed}", self.path(settings, seed)
        os.makedirs(folder, exist_ok=True)
        files = ["run.json", "metrics.json", "model.pt"]
        record, metrics_file, model_file = (self.path(settings, seed, file) for file in files)
        now = RunRecord(*self.inputs, self.fairseq_options(settings, seed))
        if os.path.exists(record):
            was = read_json(record, RunRecord, "the record of a run of this recipe", f"remove {folder}")
            provenance.check_same(folder, was.parts(), now.parts(), "choose another --save-dir, or remove that folder")
        save_json(vars(now), record)
        if os.path.exists(metrics_file):
            metrics = read_json(metrics_file, Dict[str, float], "the metrics of a finished run of this recipe")
        else:
            if not os.path.exists(model_file):
                print(f"{name}: on {device}", flush=True)
                self.train(settings, seed, device)
                keep_model(folder, model_file)
            metrics = self.evaluate(model_file)
            save_json(metrics, metrics_file)
        print(f"{name}: {', '.join(f'{metric} {value:.2f}' for metric, value in metrics.items())}", flush=True)
        return metrics

    def train(self, settings, seed, device):
        """Runs fairseq-train on a device until the last checkpoint has all updates."""
        checkpoint, log = (self.path(settings, seed, name) for name in ["checkpoint_last.pt", "train.log"])
        expected = self.updates(settings)
        if updates_of(checkpoint) >= expected:  # fairseq would train a finished run for one update more
            return
        name = "" if self.devices.size == 1 else f"{settings}, seed {seed}, on {device}: "
        status = run_and_show(self.command(settings, seed), log, device.environment, name)
        done = updates_of(checkpoint)
        if status or done < expected:
            raise UsageError(
                f"fairseq-train ended with exit status {status} after {done} of {expected} updates; "
                f"the full log is in {log}"
            )

    def search(self):
        """Tries every combination of settings; returns the best."""
        if len(self.combinations) == 1:
            return self.combinations[0]
        finished = [os.path.exists(self.path(settings, SEARCH_SEED, "metrics.json")) for settings in self.combinations]
        if self.args.only_seed is not None and not all(finished):
            raise UsageError("--only-seed with --search: the search is not finished; first run it without --only-seed")

        def score(settings, device):
            metrics = self.run(settings, SEARCH_SEED, device)
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path(settings, SEARCH_SEED, "model.pt"))
            return metrics

        scores = self.devices.run(score, self.combinations)
        best = self.combinations[best_run(scores, self.args.save_dir)]
        print(f"best of {len(self.combinations)}: {best}", flush=True)
        return best

    def main(self):
        """Runs everything; prints and records the results.

        Returns:
            the model file of the best seed; None if not all seeds were run
        """
        settings = self.search()
        run_seed = functools.partial(self.run, settings)
        if self.args.only_seed is not None:
            self.devices.run(run_seed, [self.args.only_seed])
            return None
        all_metrics = self.devices.run(run_seed, range(1, self.args.seeds + 1))
        best = best_run(all_metrics, self.args.save_dir) + 1
        start = "scratch" if self.args.from_scratch else self.args.checkpoint
        rows = make_rows(self.task, all_metrics, start, " ".join([str(settings)] + self.extra))
        add_rows(os.path.join(self.args.save_dir, "results.tsv"), rows)
        return self.path(settings, best, "model.pt")
