#!/usr/bin/env python3
"""What each lever of fine-tuning gives to small encoders; TUNING.md is made from the records.

    python tuning.py measure small-1 --run RUN --seed 1   measures what has no record, into small-1-1.csv
    python tuning.py bag_of_words --run RUN               measures a bag of words, into bag_of_words.csv
    python tuning.py page                                 remakes the tables of TUNING.md

Records are in records/tuning. A setting differs from DEFAULT in the lever that LEVERS has. Dev and test files are never
read: of each training file, a half is trained on and a quarter scored, chosen by hashes of the texts. The recipe does
not have all of the levers: only those that give something are worth an option.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from classifier import LAYERS, MEAN, Classifier, Examples, Settings, predict, train
from maelm_fairseq.base.errors import Parser, UsageError, run, within
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.checkpoints.building import read_checkpoint
from maelm_fairseq.evaluation.bag_of_words import Counts
from maelm_fairseq.evaluation.bag_of_words import predict as bag_of_words
from maelm_fairseq.evaluation.report import markdown
from maelm_fairseq.evaluation.votes import BAG_OF_WORDS, answer
from maelm_fairseq.finetuning.labelled_files import SENTENCE_FILES, find_file, read_sentences
from maelm_fairseq.finetuning.metrics import scores_of
from maelm_fairseq.training.memory import keep_freed_memory
from maelm_fairseq.vocabulary import read_vocabulary
from measure import NATURAL
from page import with_blocks

PAGE = Path(__file__).with_name("TUNING.md")
RECORDS = Path(__file__).with_name("records") / "tuning"
COLUMNS = ["encoder", "seed", "lever", "task", "metric", "value"]
PARTS, SCORED, TRAINED = 4, [0], [1, 2]  # of the training sentences


DEFAULT = "the defaults"
LEVERS = {  # those that promise most come first
    DEFAULT: {},
    "rate times 0.7 for each layer below": {"layer_decay": 0.7},
    "rate times 0.5 for each layer below": {"layer_decay": 0.5},
    "rate times 0.7 for each layer below, 1e-3": {"layer_decay": 0.7, "lr": 1e-3},
    "rate times 0.7 for each layer below, 20 epochs": {"layer_decay": 0.7, "epochs": 20},
    "labels smoothed by 0.1": {"smoothing": 0.1},
    "rate 2e-4": {"lr": 2e-4},
    "rate 1e-3": {"lr": 1e-3},
    "5 epochs": {"epochs": 5},
    "20 epochs": {"epochs": 20},
    "weights averaged over the last quarter": {"averaged": 0.25},
    "head on the mean of tokens": {"pooling": MEAN},
    "head on the mean of tokens and layers": {"pooling": LAYERS},
    "dropout 0": {"dropout": 0.0},
    "dropout 0.3": {"dropout": 0.3},
    "10% of the input tokens left out": {"dropped": 0.1},
    "weight decay 0.1": {"weight_decay": 0.1},
    "16 sentences in a batch": {"batch": 16},
    "64 sentences in a batch": {"batch": 64},
    "2% warm-up": {"warmup": 0.02},
    "30% warm-up": {"warmup": 0.3},
}


def part(text):
    """Which of the PARTS a text is in."""
    return int(hashlib.md5(text.encode()).hexdigest(), 16) % PARTS


class Trial:
    """The sentences of a training file, those to train on and those to score."""

    def __init__(self, folder, tokenizer, positions):
        table = read_sentences(find_file(folder, "train", SENTENCE_FILES))
        labels, texts = [example.label for example in table.examples], [example.texts[0] for example in table.examples]
        classes = sorted(set(labels))
        is_regression = table.form.is_regression
        targets = np.array(labels, float) if is_regression else np.array([classes.index(label) for label in labels])
        self.texts, self.examples = texts, Examples(texts, targets, tokenizer, positions)
        parts = np.array([part(text) for text in texts])
        self.train, self.scored = (np.flatnonzero(np.isin(parts, chosen)) for chosen in (TRAINED, SCORED))
        self.metric = "pearson" if is_regression else "accuracy"


def score(answers, trial):
    """The score of answers for the part that is scored, in percent."""
    return scores_of([trial.metric], trial.examples.targets[trial.scored], answers)[trial.metric]


def write(path, rows):
    with atomic_write(path) as stream:
        pd.DataFrame(rows, columns=COLUMNS).to_csv(stream, index=False, lineterminator="\n")


def measure_bag_of_words(folder):
    """Records the scores of a bag of words, trained and scored on the same parts."""
    tokenizer, rows = read_vocabulary(str(folder / "data"))[1], []
    for task in NATURAL:
        trial = Trial(str(folder / "labelled" / task), tokenizer, positions=1)
        counts = Counts([(text,) for text in trial.texts])
        answers = bag_of_words(counts, trial.examples.targets, trial.train, trial.scored)
        rows.append([BAG_OF_WORDS, "", DEFAULT, task, trial.metric, round(score(answers, trial), 4)])
    write(RECORDS / "bag_of_words.csv", rows)


def measure(name, folder, seed):
    """Records the score of every setting and task that has none."""
    path = RECORDS / f"{name}-{seed}.csv"
    rows = pd.read_csv(path).values.tolist() if path.exists() else []
    known = {(lever, task) for _, _, lever, task, *_ in rows}
    missing = [(lever, task) for lever in LEVERS for task in NATURAL if (lever, task) not in known]
    dictionary, tokenizer = read_vocabulary(str(folder / "data"))
    checkpoint, trials = str(folder / name / "checkpoint_best.pt"), {}
    positions = read_checkpoint(checkpoint)["cfg"]["model"]["max_positions"]
    for lever, task in tqdm(missing, name, unit="run", disable=None):
        if task not in trials:
            trials[task] = Trial(str(folder / "labelled" / task), tokenizer, positions)
        trial, settings = trials[task], replace(Settings(), **LEVERS[lever])
        torch.manual_seed(seed)
        model = Classifier(checkpoint, dictionary, trial.examples.outputs, settings)
        train(model, trial.examples, trial.train, settings, np.random.default_rng(seed))
        value = score(answer(predict(model, trial.examples, trial.scored)), trial)
        rows.append([name, seed, lever, task, trial.metric, round(value, 4)])
        write(path, rows)
        tqdm.write(f"{name}, seed {seed}, {lever}, {task}: {value:.2f}")


# The page ----------------------------------------------------------------------------------------------------------


class Page:
    """The tables of TUNING.md, from the records in a folder."""

    def __init__(self, folder=RECORDS):
        records = pd.concat(map(pd.read_csv, sorted(folder.glob("*.csv"))), ignore_index=True)
        records = records.fillna({"seed": 0})  # the bag of words has none
        self.scores = records.pivot(index=["encoder", "seed", "lever"], columns="task", values="value")
        self.scores = self.scores.reindex(columns=NATURAL).dropna()  # of settings that are finished
        defaults, changed = self.scores.xs(DEFAULT, level="lever"), self.scores.drop(DEFAULT, level="lever")
        self.gains = (changed - defaults.reindex(changed.index.droplevel("lever")).values).dropna()

    def levers(self, table):
        """The levers that a table has, in their order."""
        return [lever for lever in LEVERS if lever in table.index]

    def defaults(self):
        """The scores of the defaults, and of a bag of words: by tasks."""
        table = self.scores.xs(DEFAULT, level="lever").groupby("encoder").mean()
        return markdown(table.assign(mean=table.mean(axis=1)))

    def gain_by_task(self):
        """What each lever adds to the scores, over all encoders and seeds: levers by tasks, and the standard error."""
        rows, means = self.gains.groupby("lever"), self.gains.mean(axis=1).groupby("lever")
        table = rows.mean().assign(mean=means.mean(), error=means.sem(), runs=means.size())
        table = table.rename(columns={"error": "standard error of the mean"})
        return markdown(table.loc[self.levers(table)])

    def gain_by_encoder(self):
        """What each lever adds to the mean score: levers by encoders."""
        table = self.gains.mean(axis=1).groupby(["lever", "encoder"]).mean().unstack()
        return markdown(table.loc[self.levers(table)])


def main():
    parser = Parser("tuning.py", description=__doc__)
    parser.add_argument("what", choices=["measure", "bag_of_words", "page"])
    parser.add_argument("name", nargs="?", metavar="ENCODER", help="folder in RUN with its checkpoint_best.pt")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data, labelled files and encoders")
    parser.add_argument("--seed", type=within(1), default=1, help="of fine-tuning")
    args = parser.parse_args()
    if args.what == "page":
        if not any(RECORDS.glob("*.csv")):
            raise UsageError(f"{RECORDS}: found no records, expected those of trials; make them by `tuning.py measure`")
        text = with_blocks(PAGE.read_text(encoding="utf-8"), Page())
        with atomic_write(PAGE) as stream:
            stream.write(text)
        return None
    RECORDS.mkdir(parents=True, exist_ok=True)
    if args.what == "bag_of_words":
        return measure_bag_of_words(args.run)
    if args.name is None:
        raise UsageError("measure: expected the name of an encoder, such as small-1")
    keep_freed_memory()
    return measure(args.name, args.run, args.seed)


if __name__ == "__main__":
    run(main)
