#!/usr/bin/env python3
"""Times training steps of MAE-LM, of fairseq's RoBERTa and of Hugging Face's models, in alternation.

A step is forward, backward, gradient clipping and Adam: fairseq's `Trainer.train_step`, or a plain loop (peers.py).
Each model has its own process; only one steps at a time. Blocks are full ones of random tokens or, with --data, those
of a text in their real lengths; all models then get the same blocks. Reports medians over rounds, the median of the
ratios to the first model, and memory: on the CPU the process's peak, on a GPU what PyTorch has reserved after a step.
On the CPU all models keep freed memory, as under fairseq-train with the plugin, but for one row of fairseq's RoBERTa.

FLOP are those that PyTorch counts in the matrix products of a step. The share of the matmul rate is a step's FLOP/s
divided by those of a plain matrix product of a layer's sizes in the same precision, timed before each step.
"""

import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import peers
from common import BATCHES, VOCABULARY, Training, heading, seconds, size_options, write_data
from maelm_fairseq.base.errors import Parser, UsageError, install, run, within
from maelm_fairseq.base.signals import end_with_parent
from maelm_fairseq.layers import last
from maelm_fairseq.precision import is_fast_in_bfloat16
from maelm_fairseq.training.memory import keep_freed_memory, limit_caches

STOCK = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]
OURS = ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
NO_BIAS = ["--relative-position-num-buckets", 0]
STOCK_NAME, KEEPING, UNCUT = "roberta_base", "roberta_base, freed memory kept", "MLM, uncut"
VARIANTS = {STOCK_NAME: STOCK, KEEPING: STOCK}
MLM = ["--decoder-layers", 0, "--encoder-mask-fraction", 1]
for name, options in {
    "mae_lm_base": [],
    "mae_lm_base, shared": ["--share-decoder-layers"],
    "MLM": MLM,
    UNCUT: MLM,  # its last layer computes all rows, also those that nobody reads
}.items():
    VARIANTS[name] = [*OURS, *options]
    VARIANTS[f"{name}, bfloat16"] = [*OURS, *options, "--bf16-autocast"]
    for ours in [name, f"{name}, bfloat16"]:
        VARIANTS[f"{ours}, no relative bias"] = [*VARIANTS[ours], *NO_BIAS]
VARIANTS.update({f"{name}{more}": None for name in peers.NAMES for more in ["", ", bfloat16"]})
PRODUCTS = 50  # matrix products timed at a time on a GPU


def matmul_rate(args, dtype):
    """FLOP/s of a plain matrix product with a feed-forward layer's sizes."""
    x = torch.randn(args.batch_size * args.tokens, args.width, device=args.device).to(dtype)
    w = torch.randn(args.width, 4 * args.width, device=args.device).to(dtype)
    products = [w] * (PRODUCTS if args.device == "cuda" else 1)
    times = [seconds(x.matmul, products, args.device) for _ in range(5)]
    return 2 * x.numel() * w.size(1) / statistics.median(times)


def training_arguments(folder, args, variant):
    """The options of fairseq-train for a model of VARIANTS."""
    arguments = [args.data or folder, "--tokens-per-sample", args.tokens, *size_options(args)]
    arguments += ["--sample-break-mode", "complete_doc" if args.data else "none"]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.batch_size, "--num-workers", 0, "--lr", 1e-4]
    arguments += ["--dropout", args.dropout, "--attention-dropout", args.attention_dropout]
    arguments += ["--adam-betas", "(0.9, 0.98)", "--clip-norm", 2.0]
    if VARIANTS[variant] is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    if args.device == "cuda" and "bfloat16" not in variant:
        arguments += ["--fp16", "--fp16-init-scale", 128]  # as in the recipes
    return arguments + VARIANTS[variant]


def build(folder, args, variant):
    """Builds the model of this process, with data in a folder."""
    global training
    logging.disable(logging.INFO)
    torch.set_num_threads(1 if args.device == "cuda" else multiprocessing.cpu_count())
    if args.device == "cpu" and variant != STOCK_NAME:
        keep_freed_memory()
        limit_caches()
    if not args.data:
        write_data(folder, BATCHES * args.batch_size * [args.tokens - 1], args.vocabulary)
    if VARIANTS[variant] is None:
        training = peers.PlainTraining(variant, args, training_arguments(folder, args, "MLM"))
    else:
        training = Training(training_arguments(folder, args, variant), args.device)
    if variant.startswith(UNCUT):
        forward = training.trainer.model.encoder.forward
        rows = lambda x, positions, padded, outputs, *more: last(forward(x, positions, padded), outputs)  # noqa: E731
        training.trainer.model.encoder.forward = rows


def flops():
    """FLOP in the matrix products of the next step of this process's model."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # others are not counted on the CPU
        training.seconds()
    return counter.get_total_flops()


def step(args, variant):
    """Steps the model of this process: seconds of a step, matmul rate, and memory in GiB."""
    dtype = torch.half if args.device == "cuda" else torch.float32
    rate = matmul_rate(args, torch.bfloat16 if "bfloat16" in variant else dtype)
    if args.device == "cuda":
        training.seconds()  # allocates
    time = training.seconds(args.steps)
    if args.device == "cpu":
        return time, rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    memory = torch.cuda.memory_reserved() / 2**30
    torch.cuda.empty_cache()  # for the next process
    return time, rate, memory


def measure(args, variants):
    """Steps several models in alternation: {variant: (FLOP of a step, list of what :func:`step` returns)}."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes, building = {}, []
        for variant in variants:
            data = Path(folder) / variant
            data.mkdir()
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=end_with_parent)
            processes[variant] = stack.enter_context(pool)
            building.append(pool.submit(build, data, args, variant))
        for built in building:
            built.result()
        measured = {variant: (process.submit(flops).result(), []) for variant, process in processes.items()}
        for number in range(args.rounds + 1):
            for variant, process in processes.items():
                measured[variant][1].append(process.submit(step, args, variant).result())
            print(f"round {number} of {args.rounds}", file=sys.stderr, flush=True)
        return {variant: (count, rounds[1:]) for variant, (count, rounds) in measured.items()}  # the first is warm-up


def compare(args):
    """Prints a row for each chosen model of VARIANTS, the first of which is the reference."""
    text = f"{args.data}, blocks of up to {args.tokens} tokens" if args.data else f"{args.tokens} tokens"
    precision = "fp16" if args.device == "cuda" else "float32"
    print(f"{args.batch_size} x {text}, {args.layers} layers of width {args.width}, {precision}, "
          f"{args.mask_prob:.0%} predicted, vocabulary {'of the data' if args.data else args.vocabulary}, "
          f"{args.decoder_layers} decoder layers, dropout {args.dropout}, of attention {args.attention_dropout}, "
          f"{args.rounds} rounds of {args.steps} steps\n")  # fmt: skip
    only = []
    for name in dict.fromkeys(args.only):
        if "bfloat16" in name and not is_fast_in_bfloat16(args.device):  # it would compute in float32
            print(f"skipped: {name}; bfloat16 is slow here", file=sys.stderr)
        elif VARIANTS[name] is None and not find_spec("transformers"):
            print(f"skipped: {name}; {install('benchmarks')} for it", file=sys.stderr)
        else:
            only.append(name)
    if not only:
        raise UsageError(f"--only {' '.join(args.only)}: all of them are skipped; choose others")
    try:
        measured = measure(args, only)
    except BrokenProcessPool:
        fault = "a model's process was ended from outside, perhaps for want of memory"
        raise UsageError(f"{fault}: --only takes fewer") from None
    print(f"| model | sequences per second | step time over {only[0]}'s | FLOP over its | peak memory, GiB | share of "
          "matmul rate |\n|---|---|---|---|---|---|")  # fmt: skip
    first, reference = measured[only[0]]
    for name, (count, rounds) in measured.items():
        times, rates, memory = zip(*rounds)
        ratios = [ours / theirs for ours, (theirs, _, _) in zip(times, reference)]
        shares = [count / time / rate for time, rate in zip(times, rates)]
        print(f"| {name} | {args.batch_size / statistics.median(times):.2f} | "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {count / first:.2f} | "
              f"{memory[-1]:.1f} | {statistics.median(shares):.2f} |", flush=True)  # fmt: skip


def main():
    os.environ["PYTHONWARNINGS"] = "ignore"  # in the models' processes, for fairseq's use of hydra and torch
    parser = Parser(description=__doc__)
    add = parser.add_argument
    sizes = [("layers", 12, 1), ("width", 768, 1), ("heads", 12, 1), ("decoder-layers", 4, 0), ("tokens", 512, 2)]
    for name, default, least in [*sizes, ("batch-size", 4, 1), ("rounds", 5, 1), ("steps", 1, 1)]:
        add(f"--{name}", type=within(least), default=default, metavar="N", help="(default: %(default)s)")
    symbols = "symbols of the vocabulary (default: %(default)s)"
    add("--vocabulary", type=within(6, 2**16), default=VOCABULARY, metavar="N", help=symbols)
    add("--data", metavar="DIR", help=f"binarized text, from which the first {BATCHES} batches are taken")
    add("--mask-prob", type=float, default=0.15, help="share of predicted tokens (default: %(default)s)")
    for name in ["--dropout", "--attention-dropout"]:
        add(name, type=float, default=0.0, help="of all models (default: %(default)s)")
    models = "the first is the reference (default: all); those of transformers are skipped without it"
    add("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="MODEL", help=models)
    add("--device", choices=["cpu", "cuda"], default="cpu", help="(default: %(default)s); a GPU computes in fp16")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device cuda: PyTorch {torch.__version__} finds no GPU; use a machine that has one")
    print(heading(multiprocessing.cpu_count(), args.device))
    compare(args)


if __name__ == "__main__":
    run(main)
