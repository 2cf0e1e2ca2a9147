#!/usr/bin/env python3
"""Times masking and collating: the plugin's dataset and that of fairseq's `masked_lm` task, in alternation.

Both read the same binarized data, with line lengths as in text, in blocks of --tokens. `items` are masked in one
process; `batches` come from fairseq's iterator with the given number of workers. Reports medians over rounds, and the
median of the ratios of the rates.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from common import configuration, heading, ratios, write_data
from maelm_fairseq.errors import Parser, run

LINES = 60_000
ITEMS = 1000
TASKS = {"masked_lm": "fairseq's masked_lm", "mae_lm": "mae_lm"}


def build(name, folder, tokens):
    """The task with its training set loaded."""
    from fairseq import tasks

    options = [folder, "--task", name, "--arch", "roberta_base", "--tokens-per-sample", tokens]
    options += ["--sample-break-mode", "complete", "--mask-prob", 0.15]
    cfg = configuration([*options, "--leave-unmasked-prob", 0, "--random-token-prob", 0])
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    return task


def items_per_second(task):
    """Masked items per second, in this process."""
    dataset = task.dataset("train")
    dataset.set_epoch(1)
    indices = dataset.ordered_indices()[-ITEMS:]
    start = time.perf_counter()
    for index in indices:
        dataset[index]
    return len(indices) / (time.perf_counter() - start)


def batches_per_second(task, batch_size, workers, epoch):
    """Collated batches per second, from worker processes."""
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_sentences=batch_size, seed=1, num_workers=workers, epoch=epoch
    ).next_epoch_itr()
    next(iterator)  # starts the workers
    start = time.perf_counter()
    count = sum(1 for _ in iterator)  # all of them: workers that are stopped early complain
    return count / (time.perf_counter() - start)


def measure(rounds, tokens, batch_size, lines=LINES):
    """Prints a table of the rates of both tasks, on data of random tokens."""
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        lengths = np.clip(np.exp(np.random.default_rng(1).normal(np.log(25), 0.6, lines)), 2, 400).astype(int)
        write_data(Path(folder), lengths)
        tasks = {name: build(name, folder, tokens) for name in TASKS}
        for number in range(rounds + 1):
            for name, task in tasks.items():
                found = {"items": items_per_second(task)}
                for workers in [1, 2]:
                    rate = batches_per_second(task, batch_size, workers, number + 1)
                    found[f"batches, {workers} worker{'s' * (workers > 1)}"] = rate
                if number:  # the first round is warm-up
                    for what, rate in found.items():
                        rates.setdefault(what, {}).setdefault(name, []).append(rate)
    print(f"\n| per second | {' | '.join(TASKS.values())} | ratio |\n|---|---|---|---|")
    for what, of in rates.items():
        medians = [f"{statistics.median(of[name]):.1f}" for name in TASKS]
        print(f"| {what} | {' | '.join(medians)} | {ratios(of['mae_lm'], of['masked_lm'])} |")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=512, help="tokens per block (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="blocks per batch (default: %(default)s)")
    args = parser.parse_args()

    print(heading(multiprocessing.cpu_count()))
    print(f"blocks of {args.tokens} tokens, batches of {args.batch_size}, 15% masked")
    measure(args.rounds, args.tokens, args.batch_size)


if __name__ == "__main__":
    run(main)
