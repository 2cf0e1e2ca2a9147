#!/usr/bin/env python3
"""Trains a small MLM in bfloat16 on the CPU, and shows how its memory grows, without and with what bounds it.

Two processes, which step in alternation, train the same model on the same batches: one only keeps freed memory; the
other one also keeps few descriptions of matrix products and returns freed memory at times (`maelm_fairseq/memory.py`),
as under fairseq-train. Four layers of width 256, blocks of up to 64 tokens. Reports the resident memory after each
round, and seconds per update: the median over rounds, and of their ratios.
"""

import argparse
import logging
import multiprocessing
import os
import statistics

from bfloat16_loss import SETTINGS
from common import Training, heading, ratios
from maelm_fairseq import memory
from maelm_fairseq.errors import Parser, run

MLM = ["--decoder-layers", "0", "--encoder-mask-fraction", "1"]
BATCHES = 500  # in memory, which they take 25 MiB of


def resident():
    """Resident memory of this process in GiB."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**30


def work(pipe, bounded, data, threads):
    """A process that makes as many updates as it is asked for, and answers with their seconds and its memory."""
    logging.disable(logging.INFO)
    import torch

    torch.set_num_threads(threads)
    memory.keep_freed_memory()
    if bounded:
        memory.keep_few_descriptions()
    options = ["--task", "mae_lm", "--criterion", "mae_lm", "--bf16-autocast", *SETTINGS, *MLM]
    training, done = Training([data, *options], "cpu", BATCHES), 0
    while updates := pipe.recv():
        seconds = 0.0
        for _ in range(updates):
            seconds += training.seconds()
            done += 1
            if bounded and done % memory.RETURN_INTERVAL == 0:
                memory.return_freed_memory()
        pipe.send((seconds / updates, resident()))


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="binarized text from data-prep/prepare.sh")
    parser.add_argument("--rounds", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--updates", type=int, default=50, help="of each in a round (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    args = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"  # in the processes, for fairseq's use of hydra and torch
    print(heading(args.threads))
    context, pipes, seconds = multiprocessing.get_context("spawn"), [], ([], [])
    for bounded in [False, True]:
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(theirs, bounded, args.data, args.threads), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    print("\n| updates | resident memory in GiB, unbounded | bounded |\n|---|---|---|")
    for number in range(1, args.rounds + 1):
        kept = []
        for pipe, times in zip(pipes, seconds):
            pipe.send(args.updates)
            taken, size = pipe.recv()
            times.append(taken)
            kept.append(size)
        print(f"| {number * args.updates:,} | {kept[0]:.2f} | {kept[1]:.2f} |", flush=True)
    for pipe in pipes:
        pipe.send(0)
    unbounded, bounded = map(statistics.median, seconds)
    print(f"\nseconds per update: {unbounded:.3f} unbounded, {bounded:.3f} bounded; ratio {ratios(*seconds[::-1])}")


if __name__ == "__main__":
    run(main)
