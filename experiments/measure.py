#!/usr/bin/env python3
"""Measures one encoder of arms.py with the programs that a user calls, and records one row a measurement.

    python measure.py A-1 --run RUN --dest records

reads RUN/A-1/model.pt and its train.log, and writes records/A-1.csv, with the columns of COLUMNS, and records/A-1.npz,
the outcome of every example (see recipes/evaluation/outcomes.py). The csv is written last.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from arms import ARMS, keeps_trajectory, split
from maelm_fairseq.base.errors import Parser, run
from maelm_fairseq.base.files import atomic_write

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
COLUMNS = ["arm", "seed", "updates", "layer", "task", "feature", "metric", "value"]
NATURAL = ["trec", "trec_fine", "rotten_tomatoes", "tweets", "nyt_editorials", "amazon_reviews"]
REGRESSION = ["tweets", "nyt_editorials", "amazon_reviews"]
ORDER = ["bigram_shift", "replaced_word"]  # made by swapping or replacing words
TASKS = [*NATURAL, *ORDER, "agreement"]
RANK_TOKENS = 100_000
FINE_TUNING = "--seeds 1 --batch-size 32 --lr 5e-4 --warmup-ratio 0.1 --epochs 3".split()
TEXT = "held-out text"
TRAJECTORY_TASKS = ["trec", "rotten_tomatoes"]  # the largest two with different texts


def call(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def read_csv(path, delimiter=","):
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter=delimiter))


def losses(log):
    """The validations of a training log: (updates, loss in bits), and the bits that token frequencies alone give."""
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            if '"valid_loss"' in line:
                row = json.loads(line[line.index("{") :])
                yield int(row["valid_num_updates"]), "bits", float(row["valid_loss"])
            elif "unigram_bits" in line:
                yield 0, "unigram bits", float(line.split("unigram_bits ")[1].split(":")[0])


def scores(name, folder, run):
    """The rows of probes, (task, feature, layer, metric, value); keeps the outcomes of examples."""
    command = [
        "--checkpoint",
        folder / "model.pt",
        "--names",
        name,
        "--data",
        run / "data",
        "--dest",
        folder / "probes",
    ]
    command += ["--labelled", run / "labelled", "--tasks", *TASKS, "--few-shot-repeats", 0, "--side-by-side"]
    call(sys.executable, RECIPES / "evaluate.py", *command)
    for row in read_csv(folder / "probes" / "scores.csv"):
        yield row["task"], row["feature"], row["layer"], row["metric"], row["value"]


def ranks(folder, run):
    """The effective ranks of held-out text, and the dimensions of [MASK] alone."""
    command = ["--checkpoint", folder / "model.pt", "--data", run / "data", "--dest", folder / "ranks"]
    call(sys.executable, "-m", "maelm_fairseq.effective_rank", *command, "--tokens", RANK_TOKENS)
    for row in read_csv(folder / "ranks" / "ranks.csv"):
        yield TEXT, row["family"], row["layer"], "rank", row["rank"]
    for row in read_csv(folder / "ranks" / "mask_dimensions.csv"):
        yield TEXT, "mask_tokens", row["layer"], "dimensions outside real tokens", row["mask_outside_real"]


def fine_tuned(checkpoint, dest, run, tasks=NATURAL):
    """The dev score of one fine-tuning run for each task, head on `<s>`."""
    for task in tasks:
        command = [RECIPES / "finetune.py", "mae_lm_sentences", "--labelled", run / "labelled" / task, *FINE_TUNING]
        command += ["--checkpoint", checkpoint, "--data", run / "data", "--save-dir", dest]
        call(sys.executable, *command, *["--regression"] * (task in REGRESSION))
    for row in read_csv(dest / "results.tsv", "\t"):
        yield row["task"], "fine-tuned", "last", row["metric"], row["median"]


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", metavar="ARM-SEED")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models (default: run)")
    parser.add_argument("--dest", type=Path, default=Path("records"), help="folder of records (default: records)")
    parser.add_argument("--list-tasks", action="store_true", help="print the names of the tasks")
    args = parser.parse_args()
    if args.list_tasks:
        return print(*TASKS)
    folder, (arm, seed) = args.run / args.name, split(args.name.removesuffix("-reset"))
    is_reset = args.name.endswith("-reset")
    rows = [] if is_reset else [(u, "", TEXT, "", metric, value) for u, metric, value in losses(folder / "train.log")]
    measured = [*scores(args.name, folder, args.run), *fine_tuned(folder / "model.pt", folder / "tuned", args.run)]
    if not is_reset:
        measured += ranks(folder, args.run)
    updates = ARMS[arm].updates
    rows += [(updates, layer, task, feature, metric, value) for task, feature, layer, metric, value in measured]
    if not is_reset and keeps_trajectory(args.name):
        for checkpoint in folder.glob("checkpoint_*_*.pt"):
            at = int(checkpoint.stem.split("_")[-1])
            found = fine_tuned(checkpoint, folder / f"tuned-{at}", args.run, TRAJECTORY_TASKS) if at < updates else []
            rows += [(at, layer, task, feature, metric, value) for task, feature, layer, metric, value in found]
    os.makedirs(args.dest, exist_ok=True)
    shutil.copyfile(folder / "probes" / f"{args.name}.npz", args.dest / f"{args.name}.npz")
    with atomic_write(args.dest / f"{args.name}.csv") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows([arm + "-reset" * is_reset, seed, *row] for row in rows)


if __name__ == "__main__":
    run(main)
