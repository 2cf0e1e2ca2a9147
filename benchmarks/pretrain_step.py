#!/usr/bin/env python3
"""Times one training step of MAE-LM and of fairseq's RoBERTa, in alternation.

A step is fairseq's `Trainer.train_step`: forward, backward, gradient clipping and Adam, on blocks of `--tokens` random
tokens. Each model has its own process; only one of them steps at a time. Reports medians over rounds, the median of the
ratios to the first model, and memory: on the CPU the process's peak, on a GPU what PyTorch holds of it after a step.
On the CPU the plugin's models keep freed memory, as under fairseq-train; fairseq's RoBERTa does so in a row of its own.

The share of the matmul rate is the FLOP/s of a step, in matrix products as experiments/flops.py counts them, divided by
those of a plain matrix product of a layer's sizes in the same precision, timed in the same process before each step.
"""

import argparse
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch

from common import FP16, ROOT, VOCABULARY, Training, add_device, check_device, heading, ratios, synchronize, write_data
from maelm_fairseq.base.errors import Parser, UsageError, run
from maelm_fairseq.precision import is_fast_in_bfloat16
from maelm_fairseq.training.memory import keep_freed_memory

sys.path.append(str(ROOT / "experiments"))
import flops  # noqa: E402

STOCK = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]
OURS = ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
KEEPING = "roberta_base, freed memory kept"  # as fairseq-train does with the plugin, on the CPU
NO_BIAS = ["--relative-position-num-buckets", 0]
VARIANTS = {"roberta_base": STOCK, KEEPING: STOCK}
for name, options in {
    "mae_lm_base": [],
    "mae_lm_base, bfloat16": ["--bf16-autocast"],
    "mae_lm_base, shared": ["--share-decoder-layers"],
    "mae_lm_base, shared, bfloat16": ["--share-decoder-layers", "--bf16-autocast"],
    "mae_lm_base, compiled": ["--compile"],
}.items():
    VARIANTS[name] = [*OURS, *options]
    VARIANTS[f"{name}, no relative bias"] = [*OURS, *options, *NO_BIAS]
VARIANTS["MLM, no relative bias"] = [*OURS, *NO_BIAS, "--decoder-layers", 0, "--encoder-mask-fraction", 1]
SIZES = dict(layers=12, embed_dim=768, ffn_embed_dim=3072, attention_heads=12)  # of base
PRODUCTS = 50  # matrix products timed at a time on a GPU


def operations(args, variant):
    """Operations in the matrix products of one step."""
    sees_masks = "mae_lm" not in variant
    predicted = round(args.mask_prob * (args.tokens - 1)) / (args.tokens - 1)
    model = SimpleNamespace(
        masks=SimpleNamespace(mask_prob=predicted, encoder_mask_fraction=float(sees_masks)),
        decoder_layers=0 if sees_masks else args.decoder_layers,
        shared="shared" in variant,
    )
    size = SimpleNamespace(**{f"encoder_{name}": value for name, value in args.sizes.items()})
    return args.batch_size * round(flops.training_flops(model, size, args.tokens, args.vocabulary))


def matmul_rate(args, dtype):
    """Operations per second of a plain matrix product with a feed-forward layer's sizes."""
    C, F = args.sizes["embed_dim"], args.sizes["ffn_embed_dim"]
    x = torch.randn(args.batch_size * args.tokens, C, device=args.device).to(dtype)
    w = torch.randn(C, F, device=args.device).to(dtype)
    count, times = PRODUCTS if args.device == "cuda" else 1, []
    for _ in range(5):
        synchronize(args.device)
        start = time.perf_counter()
        for _ in range(count):
            x @ w
        synchronize(args.device)
        times.append((time.perf_counter() - start) / count)
    return 2 * x.numel() * F / statistics.median(times)


def training_arguments(folder, args, variant):
    """The options of fairseq-train for a model of VARIANTS."""
    arguments = [folder, "--sample-break-mode", "none", "--tokens-per-sample", args.tokens]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.batch_size]
    arguments += ["--attention-dropout", args.attention_dropout, "--adam-betas", "(0.9, 0.98)"]
    arguments += ["--lr", 1e-4, "--clip-norm", 2.0, "--num-workers", 0]
    for name, size in args.sizes.items():
        arguments += ["--encoder-" + name.replace("_", "-"), size]
    if VARIANTS[variant] is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    if args.precision == "fp16" and "bfloat16" not in variant:
        arguments += FP16
    return arguments + VARIANTS[variant]


class Model:
    """A process with a model of VARIANTS and data of its own in a folder; `memory` is its peak in GiB."""

    def __init__(self, folder, args, variant):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, folder, args, variant), daemon=True)
        self.process.start()
        other.close()  # so that the end of the process is noticed
        self.pipe.recv()

    def step(self):
        """Seconds of a step, and the rate of a matrix product in the same precision."""
        self.pipe.send("step")
        seconds, rate, self.memory = self.pipe.recv()
        return seconds, rate

    def __del__(self):
        self.process.terminate()


def work(pipe, folder, args, variant):
    """The process of a :class:`Model`, which makes steps whenever asked."""
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)
    if args.device == "cpu" and variant != "roberta_base":
        keep_freed_memory()
    dtype = torch.half if args.precision == "fp16" else torch.float32
    if "bfloat16" in variant:
        dtype = torch.bfloat16
    write_data(folder, 8 * args.batch_size * [args.tokens - 1], args.vocabulary)
    training = Training(training_arguments(folder, args, variant), args.device)
    pipe.send("ready")
    while True:
        pipe.recv()
        rate = matmul_rate(args, dtype)
        if args.device == "cpu":
            seconds = training.seconds(args.steps)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        else:
            training.seconds()  # allocates
            seconds = training.seconds(args.steps)
            memory = torch.cuda.memory_reserved() / 2**30
            torch.cuda.empty_cache()  # for the next process
        pipe.send((seconds, rate, memory))


def measure(models, rounds):
    """Times the steps of several models in alternation.

    Args:
        models: {name: (settings, variant)}
        rounds: number of timed rounds, in each of which each model makes `settings.steps` steps
    Returns:
        seconds of a step in each round and shares of the matmul rate, {name: list}; peak memory in GiB, {name: float}
    """
    with tempfile.TemporaryDirectory() as folder:
        workers, seconds, shares = {}, {name: [] for name in models}, {name: [] for name in models}
        for number, (name, (args, variant)) in enumerate(models.items()):
            data = Path(folder) / str(number)
            data.mkdir()
            workers[name] = Model(data, args, variant)
        for number in range(rounds + 1):
            for name, worker in workers.items():
                taken, rate = worker.step()
                if number:  # the first round is warm-up
                    seconds[name].append(taken)
                    shares[name].append(operations(*models[name]) / taken / rate)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        return seconds, shares, {name: worker.memory for name, worker in workers.items()}


def compare(args):
    """Prints a row for roberta_base and for each chosen model of VARIANTS."""
    print(f"{args.batch_size} x {args.tokens} tokens, {args.precision}, {args.mask_prob:.0%} predicted, "
          f"vocabulary {args.vocabulary}, {args.decoder_layers} decoder layers, "
          f"attention dropout {args.attention_dropout}, {args.rounds} rounds\n")  # fmt: skip
    only = args.only or [name for name in VARIANTS if "compiled" not in name]
    if not is_fast_in_bfloat16(args.device):  # they would compute in float32
        only = [name for name in only if "bfloat16" not in name]
    first = args.over
    chosen = [first, *(name for name in VARIANTS if name != first and name in only)]
    seconds, shares, memory = measure({name: (args, name) for name in chosen}, args.rounds)
    print(f"| model | sequences per second | step time over {first}'s | peak memory, GiB | share of matmul rate |")
    print("|---|---|---|---|---|")
    for name in chosen:
        print(f"| {name} | {args.batch_size / statistics.median(seconds[name]):.2f} | "
              f"{ratios(seconds[name], seconds[first])} | {memory[name]:.1f} | "
              f"{statistics.median(shares[name]):.2f} |", flush=True)  # fmt: skip


def main():
    os.environ["PYTHONWARNINGS"] = "ignore"  # in the models' processes, for fairseq's use of hydra and torch
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    add = parser.add_argument
    precision = "of all models but those in bfloat16; fp16 needs a GPU (default: %(default)s)"
    add("--precision", choices=["float32", "fp16"], default="float32", help=precision)
    add("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    add("--steps", type=int, default=1, help="steps of each model in a round (default: %(default)s)")
    add("--batch-size", type=int, default=4, help="sequences per step (default: %(default)s)")
    add("--tokens", type=int, default=512, help="tokens per sequence (default: %(default)s)")
    add("--mask-prob", type=float, default=0.15, help="share of predicted tokens (default: %(default)s)")
    add("--decoder-layers", type=int, default=4, help="decoder layers of MAE-LM (default: %(default)s)")
    add("--attention-dropout", type=float, default=0.0, help="of all models (default: %(default)s)")
    first = "first model (default: %(default)s)"
    add("--over", choices=VARIANTS, default="roberta_base", metavar="MODEL", help=first)
    add("--only", nargs="+", choices=VARIANTS, metavar="MODEL", help="the others (default: all but compiled ones)")
    add("--vocabulary", type=int, default=VOCABULARY, help="number of symbols (default: %(default)s)")
    add("--threads", type=int, default=multiprocessing.cpu_count(), help="(default: all cores)")
    args = parser.parse_args(namespace=argparse.Namespace(sizes=SIZES))
    check_device(args.device)
    if args.precision == "fp16" and args.device == "cpu":
        raise UsageError("--precision fp16 needs --device cuda")
    print(heading(args.threads, args.device))
    compare(args)


if __name__ == "__main__":
    run(main)
