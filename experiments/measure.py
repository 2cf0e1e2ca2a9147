#!/usr/bin/env python3
"""Measures one encoder of arms.py with the programs that a user calls, and records one row a
measurement.

    python measure.py A-1 --run RUN --dest records

reads RUN/A-1/model.pt and its train.log, and writes records/A-1.csv, a `Measurement` a row, and
records/A-1.npz, what was predicted for every example. The csv is written last.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from arms import (
    FINE_TUNING_RATE,
    FINE_TUNING_RATES,
    PILOT_SEEDS,
    arm_and_seed,
    keeps_trajectory,
)
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines import bag_of_words
from maelm_fairseq.checkpoints.building import build_model, num_updates_of, read_checkpoint
from maelm_fairseq.checkpoints.reading import read_torch_file
from maelm_fairseq.checkpoints.writing import save_state
from maelm_fairseq.evaluation.model_record import CHOSEN_LAYER, LAST_LAYER, ModelRecord
from maelm_fairseq.evaluation.probe_tasks import PRIMARY_TASKS
from maelm_fairseq.fairseq_api import init_bert_params
from maelm_fairseq.runs.finetune_results import ENCODER
from maelm_fairseq.runs.log_report import read_validations
from maelm_fairseq.vocabulary import load_dictionary
from measurements import HELD_OUT_TEXT, Measurement, write_record
from programs import RECIPES, run_quietly
from update_times import read_timings

WORD_ORDER_TASKS = ["bigram_shift", "replaced_word"]  # made by swapping or replacing words
NATURAL_TASKS = [task for task in PRIMARY_TASKS if task not in WORD_ORDER_TASKS]
PROBED_TASKS = [*PRIMARY_TASKS, "agreement"]
RANK_TOKENS = 100_000
FINE_TUNING_EPOCHS = 3
BATCH = 32  # of fine-tuning
FINE_TUNING = [
    "--seeds",
    1,
    "--batch-size",
    BATCH,
    "--warmup-ratio",
    0.1,
    "--epochs",
    FINE_TUNING_EPOCHS,
]
FINE_TUNED = "fine-tuned"  # a feature
KEPT_FEATURES = ["mean", "first", "side_by_side"]  # those whose outcomes of examples are kept
FEW_SHOT_REPEATS = 10  # for pilots
PARTS_OF_FINE_TUNING = 10  # of a run of fine-tuning; ranks are measured at the end of each
TRAJECTORY_TASKS = ["trec", "rotten_tomatoes"]  # the largest two with different texts


def read_losses(log):
    """What a training log says of validations: list of `Measurement`s.

    The metrics are "bits", the loss, and "unigram bits", which token frequencies alone give.
    """
    measured = []
    on_text = Measurement(task=HELD_OUT_TEXT)
    unigram_bits = re.search(r"unigram_bits ([\d.]+):", Path(log).read_text(encoding="utf-8"))
    if unigram_bits:
        value = float(unigram_bits[1])
        measured.append(on_text._replace(updates=0, metric="unigram bits", value=value))
    for updates, stats in read_validations(log).items():
        value = float(stats["valid_loss"])
        measured.append(on_text._replace(updates=updates, metric="bits", value=value))
    return measured


def scores_of_probes(name, folder, run_folder):
    """Yields the `Measurement`s of probes.

    The outcomes of examples are kept in a file of the encoder's folder.
    """
    command = ["--checkpoint", folder / "model.pt", "--names", name, "--data", run_folder / "data"]
    command += ["--dest", folder / "probes", "--labelled", run_folder / "labelled"]
    command += ["--tasks", *PROBED_TASKS]
    repeats = FEW_SHOT_REPEATS if arm_and_seed(name)[1] in PILOT_SEEDS else 0
    command += ["--few-shot-repeats", repeats, "--side-by-side"]
    run_quietly(sys.executable, RECIPES / "evaluate.py", *command)
    for row in pd.read_csv(folder / "probes" / "scores.csv", dtype=str).itertuples():
        yield Measurement(
            task=row.task,
            feature=row.feature,
            layer=row.layer,
            metric=row.metric,
            value=row.value,
        )


def kept_predictions(path):
    """What was predicted for each example, in few bytes: {name: array}.

    Probes of layers are those of the last layer and of the chosen one.
    """
    records = ModelRecord(path)
    arrays = {}
    for key in records.arrays:
        if key.count("/") != 1:
            continue
        task, feature = key.split("/")
        if feature in KEPT_FEATURES:
            for layer in (LAST_LAYER, CHOSEN_LAYER):
                predictions = records.predictions(task, feature, layer)
                arrays[f"{key}/{layer}"] = to_small_type(predictions, np.float16)
        else:
            arrays[key] = to_small_type(records.arrays[key], np.float16)
    return arrays


def to_small_type(values, float_type):
    """Values as floats of a type, indices of classes in one byte each."""
    return values.astype(float_type if values.dtype.kind == "f" else np.int8)


def measure_ranks(checkpoint, dest, run_folder):
    """Yields the effective ranks of held-out text, and the dimensions of [MASK] alone."""
    command = ["--checkpoint", checkpoint, "--data", run_folder / "data"]
    command += ["--dest", dest, "--tokens", RANK_TOKENS]
    if not (dest / "ranks.csv").exists():
        run_quietly(sys.executable, "-m", "maelm_fairseq.effective_rank", *command)
    rank = Measurement(task=HELD_OUT_TEXT, metric="rank")
    for row in pd.read_csv(dest / "ranks.csv", dtype=str).itertuples():
        yield rank._replace(feature=row.token_group, layer=row.layer, value=row.rank)
    dimensions = rank._replace(feature="mask_tokens", metric="dimensions outside real tokens")
    for row in pd.read_csv(dest / "mask_dimensions.csv", dtype=str).itertuples():
        yield dimensions._replace(layer=row.layer, value=row.mask_outside_real)


def scores_of_fine_tuning(checkpoint, dest, run_folder, tasks, rate=FINE_TUNING_RATE, more=()):
    """Yields the dev score of one fine-tuning run for each task, with the head on `<s>`.

    `more` are further options of recipes/finetune.py.
    """
    for task in tasks:
        command = [RECIPES / "finetune.py", "mae_lm_sentences"]
        command += ["--labelled", run_folder / "labelled" / task, "--lr", rate]
        command += ["--checkpoint", checkpoint, "--data", run_folder / "data"]
        command += ["--save-dir", dest, *FINE_TUNING, *more]
        run_quietly(sys.executable, *command)
    results = pd.read_csv(dest / "results.tsv", sep="\t", dtype=str)
    is_wanted = (results.file == "dev.tsv") & (results.predictor == ENCODER)
    results = results[is_wanted & (results.start == os.path.abspath(checkpoint))]
    missing = set(tasks) - set(results.task)
    if missing:
        fault = f"found no score of {checkpoint} for {', '.join(sorted(missing))}, expected one"
        raise UsageError(f"{dest}/results.tsv: {fault}")
    for row in results.itertuples():
        yield Measurement(
            task=row.task,
            feature=FINE_TUNED,
            layer="last",
            metric=row.metric,
            value=row.median,
        )


def measurements_of_bag_of_words(run_folder):
    """Yields the dev scores of a bag of words, and of the most frequent class.

    The examples are those that encoders are scored on.
    """
    for task in NATURAL_TASKS:
        labelled = bag_of_words.LabelledExamples(run_folder / "labelled" / task)
        outputs = bag_of_words.baseline_predictions(labelled)
        for score in bag_of_words.score_files(labelled, outputs):
            if score.file == "dev.tsv":
                yield Measurement(
                    arm=score.predictor,
                    task=task,
                    feature=FINE_TUNED,
                    metric=score.metric,
                    value=round(score.value, 4),
                )


def ranks_while_tuning(folder, run_folder):
    """Fine-tunes on trec, and yields the ranks of held-out text without [MASK] after each tenth.

    The task of a row says which tenth.
    """
    training_file = run_folder / "labelled" / "trec" / "train.tsv"
    examples = len(training_file.read_text(encoding="utf-8").splitlines()) - 1
    examples_of_part = BATCH * PARTS_OF_FINE_TUNING
    updates_of_part = -(-examples * FINE_TUNING_EPOCHS // examples_of_part)  # rounded up
    more = ["--save-interval-updates", updates_of_part, "--keep-interval-updates", -1]
    list(
        scores_of_fine_tuning(
            folder / "model.pt", folder / "tuned", run_folder, ["trec"], more=more
        )
    )
    (tuned,) = (folder / "tuned" / "trec").glob("*/seed1")
    parts = {}
    for path in tuned.glob("checkpoint_*_*.pt"):
        updates = int(path.stem.split("_")[-1])
        parts[updates // updates_of_part] = path
    parts[PARTS_OF_FINE_TUNING] = tuned / "checkpoint_last.pt"
    for part, checkpoint in parts.items():
        for measured in measure_ranks(checkpoint, folder / f"ranks-tuning-{part}", run_folder):
            if measured.feature == "without_mask":
                yield measured._replace(task=f"fine-tuning {part}/{PARTS_OF_FINE_TUNING}")


def measurements_of_arm(name, run_folder, dest):
    """Yields the `Measurement`s of an encoder, without its arm and seed."""
    arm, _, variant = arm_and_seed(name)
    folder = run_folder / name.removesuffix("-rates")
    model = folder / "model.pt"
    updates = num_updates_of(read_checkpoint(str(model)))
    if variant == "rates":
        for rate in FINE_TUNING_RATES:
            dest = folder / f"tuned-{rate}"
            for measured in scores_of_fine_tuning(model, dest, run_folder, NATURAL_TASKS, rate):
                yield measured._replace(updates=updates, feature=f"{FINE_TUNED}, {rate}")
        return
    if not variant:
        yield from read_losses(folder / "train.log")
    if "-lr" in arm:  # of these pilots, only losses are compared
        return
    tracked = keeps_trajectory(name)
    final_measurements = []
    tasks = NATURAL_TASKS
    if tracked:
        final_measurements += ranks_while_tuning(folder, run_folder)
        tasks = [task for task in NATURAL_TASKS if task != "trec"]  # which it has fine-tuned on
    final_measurements += scores_of_fine_tuning(model, folder / "tuned", run_folder, tasks)
    final_measurements += scores_of_probes(name, folder, run_folder)
    write_outcomes(dest / f"{name}.npz", folder / "probes" / f"{name}.npz")
    if not variant:
        final_measurements += measure_ranks(model, folder / "ranks", run_folder)
    if tracked:
        yield from scores_within_run(folder, run_folder, updates)
    for measured in final_measurements:
        yield measured._replace(updates=updates)


def write_outcomes(path, records):
    """Writes the `kept_predictions` of probes, and the commit of the code that found them."""
    with atomic_write(path, "wb") as stream:
        command = ["git", "rev-parse", "HEAD"]
        git = subprocess.run(command, cwd=RECIPES, capture_output=True, text=True)
        np.savez_compressed(stream, commit=git.stdout.strip(), **kept_predictions(records))


def scores_within_run(folder, run_folder, updates):
    """Yields fine-tuned scores of checkpoints before the last, as `measurements_of_arm` does."""
    for checkpoint in folder.glob("checkpoint_*_*.pt"):
        saved_at = int(checkpoint.stem.split("_")[-1])
        if saved_at < updates:
            dest = folder / f"tuned-{saved_at}"
            for measured in scores_of_fine_tuning(checkpoint, dest, run_folder, TRAJECTORY_TASKS):
                yield measured._replace(updates=saved_at)


def reinitialize_layers(source, dest):
    """Writes a checkpoint again, with its trained embeddings and newly initialised layers.

    An encoder must score higher than this.
    """
    state = read_torch_file(source)
    model = build_model(state, load_dictionary(state["cfg"]["task"]["data"]), source)
    torch.manual_seed(state["cfg"]["common"]["seed"])
    for module in model.encoder.layers.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.reset_parameters()
        init_bert_params(module)
    save_state({**state, "model": model.state_dict()}, dest)


def parse_args():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("name", nargs="?", metavar="ARM-SEED")
    add("--run", type=Path, default=Path("run"), help="folder of data and models (default: run)")
    add("--dest", type=Path, default=Path("records"), help="folder of records (default: records)")
    add("--list-tasks", action="store_true", help="print the names of the tasks")
    add("--seconds", action="store_true", help="time updates instead, into seconds.csv")
    add(
        "--bag-of-words",
        action="store_true",
        help="score a bag of words instead, which needs no encoder, into bag_of_words.csv",
    )
    add(
        "--reset",
        nargs=2,
        metavar="FILE",
        help="write the first checkpoint with new layers instead",
    )
    return parser.parse_args()


def main():
    args = parse_args()
    if args.reset:
        return reinitialize_layers(*map(os.path.abspath, args.reset))
    if args.list_tasks:
        return print(*PROBED_TASKS)
    os.makedirs(args.dest, exist_ok=True)
    if args.seconds:
        return write_record(args.dest / "seconds.csv", read_timings(args.run))
    if args.bag_of_words:
        measured = measurements_of_bag_of_words(args.run)
        return write_record(args.dest / "bag_of_words.csv", measured)
    arm, seed, variant = arm_and_seed(args.name)
    if variant == "reset":
        arm += "-reset"
    measurements = []
    for measured in measurements_of_arm(args.name, args.run, args.dest):
        measurements.append(measured._replace(arm=arm, seed=seed))
    write_record(args.dest / f"{args.name}.csv", measurements)


if __name__ == "__main__":
    run_main(main)
