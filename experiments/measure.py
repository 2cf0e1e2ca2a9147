#!/usr/bin/env python3
"""Measures one encoder of arms.py with the programs that a user calls, and records one row a measurement.

    python measure.py A-1 --run RUN --dest records

reads RUN/A-1/model.pt and its train.log, and writes records/A-1.csv, with the columns of COLUMNS, and records/A-1.npz,
what was predicted for every example. The csv is written last.
"""

import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from arms import FINE_TUNING_RATE, FINE_TUNING_RATES, PILOT_SEEDS, TIMED, keeps_trajectory, options, split
from maelm_fairseq.base.errors import Parser, run
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.checkpoints.building import build_model, read_checkpoint, updates_of
from maelm_fairseq.checkpoints.reading import read_file
from maelm_fairseq.checkpoints.writing import save
from maelm_fairseq.engine import init_bert_params
from maelm_fairseq.evaluation import bag_of_words
from maelm_fairseq.evaluation.outcomes import CHOSEN, LAST, Records
from maelm_fairseq.evaluation.probe_tasks import PRIMARY
from maelm_fairseq.vocabulary import load_dictionary

RECIPES = Path(__file__).resolve().parent.parent / "recipes"

COLUMNS = ["arm", "seed", "updates", "layer", "task", "feature", "metric", "value"]
ORDER = ["bigram_shift", "replaced_word"]  # made by swapping or replacing words
NATURAL = [task for task in PRIMARY if task not in ORDER]
TASKS = [*PRIMARY, "agreement"]
RANK_TOKENS = 100_000
EPOCHS, BATCH = 3, 32  # of fine-tuning
FINE_TUNING = ["--seeds", 1, "--batch-size", BATCH, "--warmup-ratio", 0.1, "--epochs", EPOCHS]
FEATURES = ["mean", "first", "side_by_side"]  # of which the outcomes of examples are kept
TEXT = "held-out text"
FEW_SHOT_REPEATS = 10  # of pilots
PARTS = 10  # of fine-tuning, at whose ends ranks are measured
ROUNDS, PART = 8, 5  # of timings: how often, and updates of a part
TRAJECTORY_TASKS = ["trec", "rotten_tomatoes"]  # the largest two with different texts


def call(*command):
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def losses(log):
    """The validations of a training log: (updates, loss in bits), and the bits that token frequencies alone give."""
    found = {}  # a run that was stopped repeats some
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            if '"valid_loss"' in line:
                row = json.loads(line[line.index("{") :])
                found[int(row["valid_num_updates"]), "bits"] = float(row["valid_loss"])
            elif "unigram_bits" in line:
                found[0, "unigram bits"] = float(line.split("unigram_bits ")[1].split(":")[0])
    return [(*key, value) for key, value in found.items()]


def scores(name, folder, run):
    """The rows of probes, (task, feature, layer, metric, value); keeps the outcomes of examples."""
    command = ["--checkpoint", folder / "model.pt", "--names", name, "--data", run / "data"]
    command += ["--dest", folder / "probes", "--labelled", run / "labelled", "--tasks", *TASKS]
    repeats = FEW_SHOT_REPEATS if split(name)[1] in PILOT_SEEDS else 0
    command += ["--few-shot-repeats", repeats, "--side-by-side"]
    call(sys.executable, RECIPES / "evaluate.py", *command)
    for row in pd.read_csv(folder / "probes" / "scores.csv", dtype=str).itertuples():
        yield row.task, row.feature, row.layer, row.metric, row.value


def outcomes(path):
    """What was predicted for each example, from the last layer and the chosen one, in few bytes: {name: array}."""
    records, arrays = Records(path), {}
    for task, feature in (key.split("/") for key in records.arrays if key.count("/") == 1):
        values = {"": records.arrays[f"{task}/{feature}"]}
        if feature in FEATURES:
            values = {f"/{layer}": records.answers(task, feature, layer) for layer in (LAST, CHOSEN)}
        for end, each in values.items():
            kind = np.float16 if each.dtype.kind == "f" else np.int8
            arrays[f"{task}/{feature}{end}"] = each.astype(kind)
    return arrays


def ranks(checkpoint, dest, run):
    """The effective ranks of held-out text, and the dimensions of [MASK] alone."""
    command = ["--checkpoint", checkpoint, "--data", run / "data", "--dest", dest, "--tokens", RANK_TOKENS]
    if not (dest / "ranks.csv").exists():
        call(sys.executable, "-m", "maelm_fairseq.effective_rank", *command)
    for row in pd.read_csv(dest / "ranks.csv", dtype=str).itertuples():
        yield TEXT, row.family, row.layer, "rank", row.rank
    for row in pd.read_csv(dest / "mask_dimensions.csv", dtype=str).itertuples():
        yield TEXT, "mask_tokens", row.layer, "dimensions outside real tokens", row.mask_outside_real


def fine_tuned(checkpoint, dest, run, tasks, rate=FINE_TUNING_RATE, more=()):
    """The dev score of one fine-tuning run for each task, head on `<s>`."""
    for task in tasks:
        command = [RECIPES / "finetune.py", "mae_lm_sentences", "--labelled", run / "labelled" / task, "--lr", rate]
        command += ["--checkpoint", checkpoint, "--data", run / "data", "--save-dir", dest, *FINE_TUNING]
        call(sys.executable, *command, *more)
    results = pd.read_csv(dest / "results.tsv", sep="\t", dtype=str)
    for row in results[(results.split == "dev.tsv") & (results.start == str(checkpoint))].itertuples():
        yield row.task, "fine-tuned", "last", row.metric, row.median


def bag_of_words_rows(run):
    """The dev scores of a bag of words, and of the most frequent class, on the same examples as those of encoders."""
    for task in NATURAL:
        labelled = bag_of_words.Labelled(run / "labelled" / task)
        for score in bag_of_words.scores(labelled, bag_of_words.of_all(labelled)):
            if score.file == "dev.tsv":
                yield score.predictor, "", "", "", task, "fine-tuned", score.metric, round(score.value, 4)


def ranks_while_tuning(folder, run):
    """Fine-tunes on trec: the ranks of held-out text without [MASK] at each tenth of it; the task says which."""
    examples = len((run / "labelled" / "trec" / "train.tsv").read_text(encoding="utf-8").splitlines()) - 1
    every = -(-examples * EPOCHS // (BATCH * PARTS))
    more = ["--save-interval-updates", every, "--keep-interval-updates", -1]
    list(fine_tuned(folder / "model.pt", folder / "tuned", run, ["trec"], more=more))
    (tuned,) = (folder / "tuned" / "trec").glob("*/seed1")
    parts = {int(path.stem.split("_")[-1]) // every: path for path in tuned.glob("checkpoint_*_*.pt")}
    for part, checkpoint in {**parts, PARTS: tuned / "checkpoint_last.pt"}.items():
        for _, family, layer, metric, value in ranks(checkpoint, folder / f"ranks-tuning-{part}", run):
            if family == "without_mask":
                yield f"fine-tuning {part}/{PARTS}", family, layer, metric, value


def seconds(arm, run):
    """The seconds of an update of pretraining, the median of parts of a short run but the first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        short = ["--max-update", 5 * PART, "--log-interval", PART, "--log-file", log, "--no-save"]
        short += ["--disable-validation", "--encoder-mask-fade-updates", 0]  # as it is for most of a run
        device = ["--user-dir", RECIPES.parent / "maelm_fairseq", *["--cpu"] * (not torch.cuda.is_available())]
        call("fairseq-train", run / "data", *options(f"{arm}-1"), *short, *device, "--save-dir", folder)
        return 1 / statistics.median(map(float, re.findall(r'"ups": "([\d.]+)"', log.read_text(encoding="utf-8"))[1:]))


def write(path, rows):
    with atomic_write(path) as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])


def measurements(name, run, dest):
    """Yields what is measured of an encoder: (updates, task, feature, layer, metric, value)."""
    (arm, _, kind), folder = split(name), run / name.removesuffix("-rates")
    model = folder / "model.pt"
    updates = updates_of(read_checkpoint(str(model)))
    if kind == "rates":
        for rate in FINE_TUNING_RATES:
            for task, feature, *row in fine_tuned(model, folder / f"tuned-{rate}", run, NATURAL, rate):
                yield updates, task, f"{feature}, {rate}", *row
        return
    if not kind:
        yield from ((at, TEXT, "", "", *row) for at, *row in losses(folder / "train.log"))
    if "-lr" in arm:  # of those, losses are compared
        return
    tracked = keeps_trajectory(name)
    found = list(ranks_while_tuning(folder, run)) if tracked else []
    found += fine_tuned(model, folder / "tuned", run, [task for task in NATURAL if not (tracked and task == "trec")])
    found += scores(name, folder, run)
    with atomic_write(dest / f"{name}.npz", "wb") as stream:
        git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=RECIPES, capture_output=True, text=True)
        arrays = outcomes(folder / "probes" / f"{name}.npz")
        np.savez_compressed(stream, commit=git.stdout.strip(), **arrays)
    if not kind:
        found += ranks(model, folder / "ranks", run)
    if tracked:
        for checkpoint in folder.glob("checkpoint_*_*.pt"):
            at = int(checkpoint.stem.split("_")[-1])
            if at < updates:
                yield from ((at, *row) for row in fine_tuned(checkpoint, folder / f"tuned-{at}", run, TRAJECTORY_TASKS))
    yield from ((updates, *row) for row in found)


def reset(source, dest):
    """Writes a checkpoint with its trained embeddings and newly initialised layers: an encoder must do better."""
    state = read_file(source)
    model = build_model(state, load_dictionary(state["cfg"]["task"]["data"]), source)
    torch.manual_seed(state["cfg"]["common"]["seed"])
    for module in model.encoder.layers.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.reset_parameters()
        init_bert_params(module)
    save({**state, "model": model.state_dict()}, dest)


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("name", nargs="?", metavar="ARM-SEED")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models (default: run)")
    parser.add_argument("--dest", type=Path, default=Path("records"), help="folder of records (default: records)")
    parser.add_argument("--list-tasks", action="store_true", help="print the names of the tasks")
    parser.add_argument("--seconds", action="store_true", help="time updates instead, into seconds.csv")
    without = "score a bag of words instead, which needs no encoder, into bag_of_words.csv"
    parser.add_argument("--bag-of-words", action="store_true", help=without)
    parser.add_argument("--reset", nargs=2, metavar="FILE", help="write the first checkpoint with new layers instead")
    args = parser.parse_args()
    if args.reset:
        return reset(*map(os.path.abspath, args.reset))
    if args.list_tasks:
        return print(*TASKS)
    os.makedirs(args.dest, exist_ok=True)
    if args.seconds:
        timed = ((arm, number, seconds(arm, args.run)) for number in range(ROUNDS) for arm in TIMED)
        rows = ([arm, number, "", "", "update", "", "seconds", round(value, 3)] for arm, number, value in timed)
        return write(args.dest / "seconds.csv", rows)
    if args.bag_of_words:
        return write(args.dest / "bag_of_words.csv", bag_of_words_rows(args.run))
    arm, seed, kind = split(args.name)
    arm += "-reset" * (kind == "reset")
    rows = [[arm, seed, at, layer, task, feature, metric, value]
            for at, task, feature, layer, metric, value in measurements(args.name, args.run, args.dest)]  # fmt: skip
    write(args.dest / f"{args.name}.csv", rows)


if __name__ == "__main__":
    run(main)
