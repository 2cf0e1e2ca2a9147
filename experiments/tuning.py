#!/usr/bin/env python3
"""What each change of the settings of fine-tuning gives to small encoders; TUNING.md is made from
the records.

    python tuning.py measure small-1 --run RUN --seed 1
        measures what has no record, into small-1-1.csv
    python tuning.py bag_of_words --run RUN
        measures a bag of words, into bag_of_words.csv
    python tuning.py page
        remakes the tables of TUNING.md

Records are in records/tuning. A setting differs from DEFAULT in the change that TRIED_CHANGES has.
Dev and test files are never read: of each training file, a half is trained on and a quarter scored,
chosen by hashes of the texts. The recipe does not have all of these settings: only those
that give something are worth an option.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from classifier import (
    READ_LAYERS,
    READ_MEAN,
    Classifier,
    Examples,
    Settings,
    predict_outputs,
    train_classifier,
)
from maelm_fairseq.base.command_line import Parser, number_in_range
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.baselines.bag_of_words_model import NgramCounts, train_and_predict
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.evaluation.report import frame_to_markdown
from maelm_fairseq.finetuning.labelled_files import find_file
from maelm_fairseq.finetuning.sentence_files import SENTENCE_FILES, read_sentences
from maelm_fairseq.metrics import argmax_or_value, compute_scores
from maelm_fairseq.preparation.stable_hash import stable_number
from maelm_fairseq.training.memory import keep_freed_memory
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer
from measure import NATURAL_TASKS
from page_blocks import with_blocks

TUNING_PAGE = Path(__file__).with_name("TUNING.md")
TUNING_RECORDS = Path(__file__).with_name("records") / "tuning"
TRIAL_COLUMNS = ["encoder", "seed", "change", "task", "metric", "value"]
NUMBER_OF_PARTS = 4  # of the training sentences
SCORED = [0]  # parts that are scored
TRAINED = [1, 2]  # parts that are trained on

DEFAULT = "the defaults"
SMOOTHED_LABELS = "labels smoothed by 0.1"  # of classes: where values are predicted, it is DEFAULT
TRIED_CHANGES = {  # those that promise most come first
    DEFAULT: {},
    "rate times 0.7 for each layer below": {"lr_layer_decay": 0.7},
    "rate times 0.5 for each layer below": {"lr_layer_decay": 0.5},
    "rate times 0.7 for each layer below, 1e-3": {"lr_layer_decay": 0.7, "lr": 1e-3},
    "rate times 0.7 for each layer below, 20 epochs": {"lr_layer_decay": 0.7, "epochs": 20},
    SMOOTHED_LABELS: {"label_smoothing": 0.1},
    "rate 2e-4": {"lr": 2e-4},
    "rate 1e-3": {"lr": 1e-3},
    "5 epochs": {"epochs": 5},
    "20 epochs": {"epochs": 20},
    "weights averaged over the last quarter": {"averaged_share": 0.25},
    "head on the mean of tokens": {"pooling": READ_MEAN},
    "head on the mean of tokens and layers": {"pooling": READ_LAYERS},
    "dropout 0": {"dropout": 0.0},
    "dropout 0.3": {"dropout": 0.3},
    "10% of the input tokens left out": {"token_dropout": 0.1},
    "weight decay 0.1": {"weight_decay": 0.1},
    "16 sentences in a batch": {"batch_size": 16},
    "64 sentences in a batch": {"batch_size": 64},
    "2% warm-up": {"warmup_ratio": 0.02},
    "30% warm-up": {"warmup_ratio": 0.3},
}


def part_of_text(text):
    """The number of the part that a text is in, from 0 to NUMBER_OF_PARTS - 1."""
    return stable_number(text) % NUMBER_OF_PARTS


class Trial:
    """The sentences of a training file, those to train on and those to score."""

    def __init__(self, folder, tokenizer, positions):
        table = read_sentences(find_file(folder, "train", SENTENCE_FILES))
        labels = [example.label for example in table.examples]
        self.texts = [example.texts[0] for example in table.examples]
        if table.schema.is_regression:
            self.metric = "pearson"
            targets = np.array(labels, float)
        else:
            self.metric = "accuracy"
            classes = sorted(set(labels))
            targets = np.array([classes.index(label) for label in labels])
        self.examples = Examples(self.texts, targets, tokenizer, positions)
        parts = np.array([part_of_text(text) for text in self.texts])
        self.train = np.flatnonzero(np.isin(parts, TRAINED))
        self.scored = np.flatnonzero(np.isin(parts, SCORED))


def score_of_part(predictions, trial):
    """The score of predictions for the part that is scored, in percent."""
    targets = trial.examples.targets[trial.scored]
    return compute_scores([trial.metric], targets, predictions)[trial.metric]


def write_trials(path, rows):
    with atomic_write(path) as stream:
        pd.DataFrame(rows, columns=TRIAL_COLUMNS).to_csv(stream, index=False, lineterminator="\n")


def measure_bag_of_words(folder):
    """Records the scores of a bag of words, trained and scored on the same parts."""
    _, tokenizer = load_dictionary_and_tokenizer(str(folder / "data"))
    rows = []
    for task in NATURAL_TASKS:
        trial = Trial(str(folder / "labelled" / task), tokenizer, positions=1)
        counts = NgramCounts([(text,) for text in trial.texts])
        predictions = train_and_predict(counts, trial.examples.targets, trial.train, trial.scored)
        value = round(score_of_part(predictions, trial), 4)
        rows.append([BAG_OF_WORDS, "", DEFAULT, task, trial.metric, value])
    write_trials(TUNING_RECORDS / "bag_of_words.csv", rows)


def measure_settings(name, folder, seed):
    """Records the score of every setting and task that has none."""
    path = TUNING_RECORDS / f"{name}-{seed}.csv"
    rows = pd.read_csv(path).values.tolist() if path.exists() else []
    recorded = {(change, task) for _, _, change, task, *_ in rows}
    missing = [
        pair for pair in itertools.product(TRIED_CHANGES, NATURAL_TASKS) if pair not in recorded
    ]
    dictionary, tokenizer = load_dictionary_and_tokenizer(str(folder / "data"))
    checkpoint = str(folder / name / "checkpoint_best.pt")
    positions = read_checkpoint(checkpoint)["cfg"]["model"]["max_positions"]
    trials = {}
    for change, task in tqdm(missing, name, unit="run", disable=None):
        if task not in trials:
            trials[task] = Trial(str(folder / "labelled" / task), tokenizer, positions)
        trial = trials[task]
        if change == SMOOTHED_LABELS and trial.metric != "accuracy":
            continue
        settings = replace(Settings(), **TRIED_CHANGES[change])
        torch.manual_seed(seed)
        model = Classifier(checkpoint, dictionary, trial.examples.num_outputs, settings)
        train_classifier(model, trial.examples, trial.train, settings, np.random.default_rng(seed))
        outputs = predict_outputs(model, trial.examples, trial.scored)
        value = score_of_part(argmax_or_value(outputs), trial)
        rows.append([name, seed, change, task, trial.metric, round(value, 4)])
        write_trials(path, rows)
        tqdm.write(f"{name}, seed {seed}, {change}, {task}: {value:.2f}")


# The page


class Page:
    """The tables of TUNING.md, from the records in a folder."""

    def __init__(self, folder=TUNING_RECORDS):
        records = pd.concat(map(pd.read_csv, sorted(folder.glob("*.csv"))), ignore_index=True)
        records = records.fillna({"seed": 0})  # the bag of words has no seed
        index = ["encoder", "seed", "change"]
        scores = records.pivot(index=index, columns="task", values="value")
        of_values = records.loc[records.metric != "accuracy", "task"].unique()
        for encoder, seed, change in scores.index:
            if change == SMOOTHED_LABELS:
                defaults_of_run = scores.loc[(encoder, seed, DEFAULT), of_values]
                scores.loc[(encoder, seed, change), of_values] = defaults_of_run
        self.scores = scores.reindex(columns=NATURAL_TASKS).dropna()  # of finished settings
        defaults = self.scores.xs(DEFAULT, level="change")
        changed = self.scores.drop(DEFAULT, level="change")
        defaults_of_changed = defaults.reindex(changed.index.droplevel("change"))
        self.gains = (changed - defaults_of_changed.values).dropna()

    def changes(self, table):
        """The changes that a table has, in their order."""
        return [change for change in TRIED_CHANGES if change in table.index]

    def defaults(self):
        """The scores of the defaults, and of a bag of words: by tasks."""
        table = self.scores.xs(DEFAULT, level="change").groupby("encoder").mean()
        return frame_to_markdown(table.assign(mean=table.mean(axis=1)))

    def gain_by_task(self):
        """What each change adds to the scores, over all encoders and seeds: changes by tasks.

        The last columns are the mean over tasks, its standard error, and the number of runs.
        """
        by_change = self.gains.groupby("change")
        means = self.gains.mean(axis=1).groupby("change")
        table = by_change.mean().assign(mean=means.mean(), error=means.sem(), runs=means.size())
        table = table.rename(columns={"error": "standard error of the mean"})
        return frame_to_markdown(table.loc[self.changes(table)])

    def gain_by_encoder(self):
        """What each change adds to the mean score: changes by encoders."""
        table = self.gains.mean(axis=1).groupby(["change", "encoder"]).mean().unstack()
        return frame_to_markdown(table.loc[self.changes(table)])


def remake_page():
    """Writes TUNING.md with new tables."""
    if not any(TUNING_RECORDS.glob("*.csv")):
        fault = "found no records, expected those of trials; make them by `tuning.py measure`"
        raise UsageError(f"{TUNING_RECORDS}: {fault}")
    page = Page()
    text = with_blocks(TUNING_PAGE.read_text(encoding="utf-8"), lambda name: getattr(page, name)())
    with atomic_write(TUNING_PAGE) as stream:
        stream.write(text)


def main():
    parser = Parser("tuning.py", description=__doc__)
    parser.add_argument("what", choices=["measure", "bag_of_words", "page"])
    parser.add_argument(
        "name", nargs="?", metavar="ENCODER", help="folder in RUN with its checkpoint_best.pt"
    )
    parser.add_argument(
        "--run", type=Path, default=Path("run"), help="folder of data, labelled files and encoders"
    )
    parser.add_argument("--seed", type=number_in_range(1), default=1, help="of fine-tuning")
    args = parser.parse_args()
    if args.what == "page":
        return remake_page()
    TUNING_RECORDS.mkdir(parents=True, exist_ok=True)
    if args.what == "bag_of_words":
        return measure_bag_of_words(args.run)
    if args.name is None:
        raise UsageError("measure: expected the name of an encoder, such as small-1")
    keep_freed_memory()
    return measure_settings(args.name, args.run, args.seed)


if __name__ == "__main__":
    run_main(main)
