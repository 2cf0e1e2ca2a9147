#!/usr/bin/env python3
"""Times training steps of MAE-LM, of fairseq's RoBERTa and of Hugging Face's models, in
alternation.

A step is an update as a recipe makes it: forward and backward of --accumulate micro-batches,
gradient clipping and Adam, by fairseq's `Trainer.train_step` or a plain loop (peers.py). Each model
has its own process; only one steps at a time. Blocks are full ones of random tokens or, with
--data, those of a text in their real lengths; all models then get the same blocks. Reports medians
over rounds, the mean of the ratios to the first model with its 95% interval (Student's t), and
memory: on the CPU the process's peak, on a GPU what PyTorch has reserved after a step. On the CPU
all models keep freed memory, as under fairseq-train with the plugin, but for one row of fairseq's
RoBERTa.

FLOP are those that PyTorch counts in the matrix products of a step. The share of the matmul rate is
a step's FLOP/s divided by those of a plain matrix product of a layer's sizes in the same precision,
timed before each step.

With --device meta, nothing is computed: it prints what a GPU has to do for a micro-batch
(counts.py), and how long the host needs for an update (host.py), so that a change can be judged
without a GPU.
"""

import copy
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
from pathlib import Path

import torch
from scipy import stats
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import peers
from common import BATCHES, VOCABULARY, Training, heading, seconds, write_data
from counts import count_operations
from host import BACKWARD, FORWARD, PARTS_OF_REST, REST, HostTime
from maelm_fairseq.base.command_line import Parser, number_in_range
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.running import run_main
from maelm_fairseq.base.signals import end_with_parent
from maelm_fairseq.layers import last_rows
from maelm_fairseq.training.memory import keep_freed_memory, limit_caches
from variants import (
    BFLOAT16,
    STOCK_NAME,
    UNCUT,
    VARIANTS,
    is_of_transformers,
    training_arguments,
    why_skipped,
)

META = "meta"
# Options with which the host's time is measured.
SMALLEST_SIZES = dict(micro_batch=2, tokens=8, mask_prob=0.3, vocabulary=64, data=None)
PRODUCTS = 50  # matrix products timed at a time on a GPU


def matmul_rate(args, dtype):
    """FLOP/s of a plain matrix product with a feed-forward layer's sizes."""
    x = torch.randn(args.micro_batch * args.tokens, args.width, device=args.device).to(dtype)
    w = torch.randn(args.width, 4 * args.width, device=args.device).to(dtype)
    products = [w] * (PRODUCTS if args.device == "cuda" else 1)
    times = [seconds(x.matmul, products, args.device) for _ in range(5)]
    return 2 * x.numel() * w.size(1) / statistics.median(times)


def build_variant(folder, args, variant):
    """Builds the model of this process, with data in a folder."""
    global training
    logging.disable(logging.INFO)
    torch.set_num_threads(1 if args.device == "cuda" else multiprocessing.cpu_count())
    if args.device == "cpu" and variant != STOCK_NAME:
        keep_freed_memory()
        limit_caches()
    if not args.data:
        write_data(folder, BATCHES * args.micro_batch * [args.tokens - 1], args.vocabulary)
    arguments = training_arguments(folder, args, variant)
    if is_of_transformers(variant):
        training = peers.PlainTraining(variant, args, arguments)
    else:
        training = Training(arguments, args.device, args.accumulate)
    if variant.startswith(UNCUT):
        compute_all_rows(training.trainer.model.encoder)


def compute_all_rows(encoder):
    """Makes the encoder's last layer compute all rows, instead of only those that are read."""
    forward = encoder.forward

    def forward_all(x, positions, has_padding, num_output_rows, *others):
        return last_rows(forward(x, positions, has_padding), num_output_rows)

    encoder.forward = forward_all


def count_flops():
    """FLOP in the matrix products of the next step of this process's model."""
    # On the CPU, only this kernel of attention is counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        training.seconds()
    return counter.get_total_flops()


def step(args, variant):
    """Steps the model of this process.

    Returns: seconds of a step, matmul rate, memory in GiB, and sequences of a step
    """
    if BFLOAT16 in variant:
        dtype = torch.bfloat16
    elif args.device == "cuda":
        dtype = torch.half
    else:
        dtype = torch.float32
    rate = matmul_rate(args, dtype)
    if args.device == "cuda":
        training.seconds()  # allocates memory
    time = training.seconds(args.steps)
    if args.device == "cpu":
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    else:
        memory = torch.cuda.memory_reserved() / 2**30
        torch.cuda.empty_cache()  # so that the next process finds it free
    return time, rate, memory, training.sequences


def time_in_alternation(args, variants):
    """Steps several models in alternation.

    Returns: {variant: (FLOP of a step, list of what `step` returns in each round)}
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        processes = {}
        builds = []
        for variant in variants:
            data = Path(folder) / variant
            data.mkdir()
            spawn = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(1, spawn, initializer=end_with_parent)
            processes[variant] = stack.enter_context(pool)
            builds.append(pool.submit(build_variant, data, args, variant))
        for build_of_one in builds:
            build_of_one.result()
        flop = {name: process.submit(count_flops).result() for name, process in processes.items()}
        rounds = {variant: [] for variant in variants}
        for number in range(args.rounds + 1):
            for variant, process in processes.items():
                rounds[variant].append(process.submit(step, args, variant).result())
            print(f"round {number} of {args.rounds}", file=sys.stderr, flush=True)
        # Round 0 is a warm-up.
        return {variant: (flop[variant], rounds[variant][1:]) for variant in processes}


def chosen(args):
    """The names of the models to compare; says why others are skipped."""
    names = []
    for name in dict.fromkeys(args.only):
        reason = why_skipped(name, args)
        if reason:
            print(f"skipped: {name}; {reason}", file=sys.stderr)
        else:
            names.append(name)
    if not names:
        raise UsageError(f"--only {' '.join(args.only)}: all of them are skipped; choose others")
    return names


def print_comparison(args):
    """Prints a row for each chosen model of VARIANTS, the first of which is the reference."""
    only = chosen(args)
    try:
        measured = time_in_alternation(args, only)
    except BrokenProcessPool:
        fault = "a model's process was ended from outside, perhaps for want of memory"
        raise UsageError(f"{fault}: --only takes fewer") from None
    reference_flop, reference_rounds = measured[only[0]]
    columns = ["model", "sequences per second", f"step time over {only[0]}'s", "FLOP over its"]
    columns += ["peak memory, GiB", "share of matmul rate"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name, (flop, rounds) in measured.items():
        times, rates, memory, sequences = zip(*rounds)
        ratios = []
        for time, (reference_time, *_) in zip(times, reference_rounds):
            ratios.append(time / reference_time)
        shares = [flop / time / rate for time, rate in zip(times, rates)]
        speed = sequences[0] / statistics.median(times)
        cells = [name, f"{speed:.2f}", with_interval(ratios), f"{flop / reference_flop:.2f}"]
        cells += [f"{memory[-1]:.1f}", f"{statistics.median(shares):.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def with_interval(values):
    """The mean of values, with its 95% interval."""
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.2f} (one round)"
    error = statistics.stdev(values) / len(values) ** 0.5
    width = error * stats.t.ppf(0.975, len(values) - 1)
    return f"{mean:.2f} ({mean - width:.2f} to {mean + width:.2f})"


def count_and_time_host(args):
    """Prints what a GPU has to do for a micro-batch of each chosen model, and the host's time."""
    names = chosen(args)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if not args.data:
            write_data(folder, args.micro_batch * [args.tokens - 1], args.vocabulary)
        print("| a micro-batch | kernels | GB | TFLOP |\n|---|---|---|---|")
        for name in names:
            if peers.COMPILED not in name:
                print_counts(name, *count_operations(folder, args, name))
        rounds = time_host(folder, args, [name for name in names if not is_of_transformers(name)])
    parts = [FORWARD, BACKWARD, REST, *PARTS_OF_REST]
    print(f"\n| milliseconds of the host | {' | '.join(parts)} |\n{'|---' * (len(parts) + 1)}|")
    for name, milliseconds in rounds.items():
        medians = []
        for part in parts:
            medians.append(statistics.median(round_times[part] for round_times in milliseconds))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in medians)} |")


def time_host(folder, args, names):
    """The host's time for updates of the plugin's models, in alternation.

    Returns: {name: list of the milliseconds by part, a dict for each round}
    """
    tiny = copy.copy(args)
    vars(tiny).update(SMALLEST_SIZES)
    write_data(folder, BATCHES * tiny.micro_batch * [tiny.tokens - 1], tiny.vocabulary)
    torch.set_num_threads(1)
    models = {name: HostTime(folder, tiny, name) for name in names}
    rounds = {name: [] for name in names}
    for _ in range(args.rounds):
        for name, model in models.items():
            rounds[name].append(model.milliseconds(args.steps))
    return rounds


def print_counts(name, kernels, traffic, flop):
    """Prints a row for all operations of a model, then one for each kind, most bytes first."""
    print(f"| {name} | {kernels.total():,} | {traffic.total() / 1e9:.1f} | {flop / 1e12:.2f} |")
    for kind, amount in traffic.most_common():
        print(f"| - {kind} | {kernels[kind]:,} | {amount / 1e9:.1f} | |")


def parse_args():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    sizes = [("layers", 12, 1), ("width", 768, 1), ("heads", 12, 1)]
    sizes += [("decoder-layers", 4, 0), ("tokens", 512, 2), ("rounds", 5, 1)]
    for name, default, least in sizes:
        size = "(default: %(default)s)"
        add(f"--{name}", type=number_in_range(least), default=default, metavar="N", help=size)
    add(
        "--micro-batch",
        type=number_in_range(1),
        default=4,
        metavar="N",
        help="sequences at a time (default: %(default)s)",
    )
    add(
        "--accumulate",
        type=number_in_range(1, BATCHES),
        default=1,
        metavar="N",
        help="micro-batches of an update (default: %(default)s)",
    )
    add(
        "--steps",
        type=number_in_range(1),
        metavar="N",
        help="updates in a round (default: 1 on the CPU, elsewhere 100)",
    )
    add(
        "--vocabulary",
        type=number_in_range(6, 2**16),
        default=VOCABULARY,
        metavar="N",
        help="symbols of the vocabulary (default: %(default)s)",
    )
    add(
        "--data",
        metavar="DIR",
        help=f"binarized text, from which the first {BATCHES} batches are taken",
    )
    add(
        "--mask-prob",
        type=float,
        default=0.15,
        help="share of predicted tokens (default: %(default)s)",
    )
    for name in ["--dropout", "--attention-dropout"]:
        add(name, type=float, default=0.0, help="of all models (default: %(default)s)")
    add(
        "--only",
        action="extend",
        nargs="+",
        choices=VARIANTS,
        metavar="MODEL",
        help="the first is the reference (default: all); those of transformers are skipped "
        "without it",
    )
    add(
        "--device",
        choices=["cpu", "cuda", META],
        default="cpu",
        help="(default: %(default)s); a GPU computes in fp16; meta counts and times the host only",
    )
    args = parser.parse_args()
    args.only = args.only or list(VARIANTS)
    if args.steps is None:
        args.steps = 1 if args.device == "cpu" else 100
    if args.device == "cuda" and not torch.cuda.is_available():
        fault = f"PyTorch {torch.__version__} finds no GPU"
        raise UsageError(f"--device cuda: {fault}; use a machine that has one")
    return args


def main():
    # For the processes of the models: fairseq's use of hydra and torch gives warnings.
    os.environ["PYTHONWARNINGS"] = "ignore"
    args = parse_args()
    print(heading(multiprocessing.cpu_count(), args.device))
    print(describe(args) + "\n")
    if args.device == META:
        count_and_time_host(args)
    else:
        print_comparison(args)


def describe(args):
    """What is measured, in a line."""
    sequence = f"{args.tokens} tokens"
    vocabulary = args.vocabulary
    if args.data:
        sequence = f"{args.data}, blocks of up to {args.tokens} tokens"
        vocabulary = "of the data"
    precision = "float32" if args.device == "cpu" else "fp16"
    return (
        f"{args.accumulate} x {args.micro_batch} x {sequence}, "
        f"{args.layers} layers of width {args.width}, {precision}, "
        f"{args.mask_prob:.0%} predicted, vocabulary {vocabulary}, "
        f"{args.decoder_layers} decoder layers, dropout {args.dropout}, "
        f"of attention {args.attention_dropout}, {args.rounds} rounds of {args.steps} steps"
    )


if __name__ == "__main__":
    run_main(main)
