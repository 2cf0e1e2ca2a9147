#!/usr/bin/env python3
"""Times training steps of MAE-LM and of fairseq's RoBERTa, in alternation.

A step is fairseq's `Trainer.train_step`: forward, backward, gradient clipping and Adam, on blocks of 512 random
tokens. Each model has its own process; only one steps at a time. Reports medians over rounds, the median of the ratios
to the first model, and memory: on the CPU the process's peak, on a GPU what PyTorch has reserved after a step. On the
CPU the plugin's models keep freed memory, as under fairseq-train; fairseq's RoBERTa does so in a row of its own.

The share of the matmul rate is the FLOP/s of a step, in matrix products as experiments/pretraining.py counts them,
divided by those of a plain matrix product of a layer's sizes in the same precision, timed in the same process before
each step.
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
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import torch

from common import ROOT, VOCABULARY, Training, heading, size_options, synchronize, write_data
from maelm_fairseq.base.errors import Parser, run
from maelm_fairseq.masking import MaskSettings
from maelm_fairseq.precision import is_fast_in_bfloat16
from maelm_fairseq.training.memory import keep_freed_memory

sys.path.append(str(ROOT / "experiments"))
from pretraining import Model, Size, training_flops  # noqa: E402

STOCK = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]
OURS = ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
KEEPING = "roberta_base, freed memory kept"  # as fairseq-train does with the plugin, on the CPU
NO_BIAS = ["--relative-position-num-buckets", 0]
STOCK_NAME = "roberta_base"
VARIANTS = {STOCK_NAME: STOCK, KEEPING: STOCK}
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
SETTINGS = dict(device="cpu", precision="float32", threads=multiprocessing.cpu_count(), steps=1)  # steps of a round
SETTINGS.update(tokens=512, vocabulary=VOCABULARY, sizes=SIZES, decoder_layers=4)
PRODUCTS = 50  # matrix products timed at a time on a GPU


def step_flops(args, variant):
    """FLOP in the matrix products of one step."""
    sees_masks = "mae_lm" not in variant
    predicted = round(args.mask_prob * (args.tokens - 1)) / (args.tokens - 1)
    masks = MaskSettings(mask_prob=predicted, encoder_mask_fraction=float(sees_masks))
    layers = 0 if sees_masks else args.decoder_layers
    model = Model(variant, variant, layers, masks, shared="shared" in variant)
    size = Size(**{f"encoder_{name}": value for name, value in args.sizes.items()})
    return args.batch_size * round(training_flops(model, size, args.tokens, args.vocabulary))


def matmul_rate(args, dtype):
    """FLOP/s of a plain matrix product with a feed-forward layer's sizes."""
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
    arguments = [folder, "--sample-break-mode", "none", "--tokens-per-sample", args.tokens, *size_options(args.sizes)]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.batch_size, "--num-workers", 0, "--lr", 1e-4]
    arguments += ["--attention-dropout", args.attention_dropout, "--adam-betas", "(0.9, 0.98)", "--clip-norm", 2.0]
    if VARIANTS[variant] is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    if args.precision == "fp16" and "bfloat16" not in variant:
        arguments += ["--fp16", "--fp16-init-scale", 128]  # as in the recipes
    return arguments + VARIANTS[variant]


def build(folder, args, variant):
    """Builds the model of this process, with data in a folder."""
    global training
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)
    if args.device == "cpu" and variant != STOCK_NAME:
        keep_freed_memory()
    write_data(folder, 8 * args.batch_size * [args.tokens - 1], args.vocabulary)
    training = Training(training_arguments(folder, args, variant), args.device)


def step(args, variant):
    """Steps the model of this process: seconds of a step, share of the matmul rate, and memory in GiB."""
    dtype = torch.half if args.precision == "fp16" else torch.float32
    rate = matmul_rate(args, torch.bfloat16 if "bfloat16" in variant else dtype)
    if args.device == "cpu":
        seconds = training.seconds(args.steps)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    else:
        training.seconds()  # allocates
        seconds = training.seconds(args.steps)
        memory = torch.cuda.memory_reserved() / 2**30
        torch.cuda.empty_cache()  # for the next process
    return seconds, step_flops(args, variant) / seconds / rate, memory


def measure(args, variants):
    """Steps several models in alternation: {variant: list of what :func:`step` returns in each round}."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes, measured = {}, {variant: [] for variant in variants}
        for variant in variants:
            data = Path(folder) / variant
            data.mkdir()
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            processes[variant] = stack.enter_context(pool)
            pool.submit(build, data, args, variant).result()
        for number in range(args.rounds + 1):
            for variant, process in processes.items():
                measured[variant].append(process.submit(step, args, variant).result())
            print(f"round {number} of {args.rounds}", file=sys.stderr, flush=True)
        return {variant: rounds[1:] for variant, rounds in measured.items()}  # the first one is warm-up


def compare(args):
    """Prints a row for roberta_base and for each chosen model of VARIANTS."""
    print(f"{args.batch_size} x {args.tokens} tokens, {args.precision}, {args.mask_prob:.0%} predicted, "
          f"vocabulary {args.vocabulary}, {args.decoder_layers} decoder layers, "
          f"attention dropout {args.attention_dropout}, {args.rounds} rounds\n")  # fmt: skip
    only = args.only or [name for name in VARIANTS if "compiled" not in name]
    if not is_fast_in_bfloat16(args.device):  # they would compute in float32
        only = [name for name in only if "bfloat16" not in name]
    measured = measure(args, [STOCK_NAME, *(name for name in VARIANTS if name != STOCK_NAME and name in only)])
    print(f"| model | sequences per second | step time over {STOCK_NAME}'s | peak memory, GiB | share of matmul rate |")
    print("|---|---|---|---|---|")
    for name, rounds in measured.items():
        seconds, shares, memory = zip(*rounds)
        ratios = [ours / theirs for ours, (theirs, _, _) in zip(seconds, measured[STOCK_NAME])]
        print(f"| {name} | {args.batch_size / statistics.median(seconds):.2f} | "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | "
              f"{memory[-1]:.1f} | {statistics.median(shares):.2f} |", flush=True)  # fmt: skip


def main():
    os.environ["PYTHONWARNINGS"] = "ignore"  # in the models' processes, for fairseq's use of hydra and torch
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    add("--batch-size", type=int, default=4, help="sequences per step (default: %(default)s)")
    add("--mask-prob", type=float, default=0.15, help="share of predicted tokens (default: %(default)s)")
    add("--attention-dropout", type=float, default=0.0, help="of all models (default: %(default)s)")
    models = f"beside {STOCK_NAME} (default: all but compiled ones)"
    add("--only", nargs="+", choices=VARIANTS, metavar="MODEL", help=models)
    args = parser.parse_args(namespace=argparse.Namespace(**SETTINGS))
    print(heading(args.threads))
    compare(args)


if __name__ == "__main__":
    run(main)
