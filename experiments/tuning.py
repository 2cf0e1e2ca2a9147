#!/usr/bin/env python3
"""What each lever of fine-tuning gives to small encoders; TUNING.md is made from the records.

    python tuning.py measure small-1 --run RUN --seed 1   measures what has no record, into records/tuning/small-1-1.csv
    python tuning.py page                                 remakes the tables of TUNING.md

A setting differs from DEFAULT in the lever that LEVERS has. Dev and test files are never read: of each training file, a
half is trained on and a quarter scored, chosen by hashes of the texts. The loop here is the recipe's in short, with
levers that the recipe does not have: only those that give something are worth an option.

Letters in shapes: B sentences, T tokens, C width, L layers.
"""

import hashlib
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from maelm_fairseq.base.errors import Parser, UsageError, run, within
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.subwords import sequence
from maelm_fairseq.checkpoints.building import build_model, read_checkpoint
from maelm_fairseq.finetuning.labelled_files import SENTENCE_FILES, find_file, read_sentences
from maelm_fairseq.finetuning.metrics import scores_of
from maelm_fairseq.heads import SequenceClassificationHead
from maelm_fairseq.masking import NO_POSITION
from maelm_fairseq.training.memory import keep_freed_memory
from maelm_fairseq.vocabulary import read_vocabulary
from measure import NATURAL, RECIPES
from page import with_blocks

sys.path.append(str(RECIPES))
from evaluation.report import markdown  # noqa: E402
from votes import answer  # noqa: E402

PAGE = Path(__file__).with_name("TUNING.md")
RECORDS = Path(__file__).with_name("records") / "tuning"
COLUMNS = ["encoder", "seed", "lever", "task", "metric", "value"]
BETAS, EPS = (0.9, 0.98), 1e-6
SORTED = 512  # random sentences that are sorted by length, so that batches need little padding
PARTS, SCORED, TRAINED = 4, [0], [1, 2]  # of the training sentences
FIRST, MEAN, LAYERS = "<s>", "mean of tokens", "mean of tokens and layers"


@dataclass(frozen=True)
class Settings:
    lr: float = 5e-4  # at its peak; then it falls linearly to 0
    epochs: int = 12
    warmup: float = 0.1  # share of the updates
    batch: int = 32
    dropout: float = 0.1  # of the encoder
    pooling: str = FIRST  # what the head reads
    weight_decay: float = 0.01
    layer_decay: float = 1.0  # of the rate, for each layer below the head; the embeddings are below the first
    smoothing: float = 0.0  # of labels, where they are classes
    dropped: float = 0.0  # share of the input tokens that each update leaves out
    averaged: float = 0.0  # share of the updates at the end over which the weights are averaged


DEFAULT = "the defaults"
LEVERS = {
    DEFAULT: {},
    "rate 2e-4": {"lr": 2e-4},
    "rate 1e-3": {"lr": 1e-3},
    "5 epochs": {"epochs": 5},
    "20 epochs": {"epochs": 20},
    "weights averaged over the last quarter": {"averaged": 0.25},
    "rate times 0.7 for each layer below": {"layer_decay": 0.7},
    "head on the mean of tokens": {"pooling": MEAN},
    "head on the mean of tokens and layers": {"pooling": LAYERS},
    "dropout 0": {"dropout": 0.0},
    "dropout 0.3": {"dropout": 0.3},
    "10% of the input tokens left out": {"dropped": 0.1},
    "labels smoothed by 0.1": {"smoothing": 0.1},
    "weight decay 0.1": {"weight_decay": 0.1},
    "16 sentences in a batch": {"batch": 16},
    "64 sentences in a batch": {"batch": 64},
    "2% warm-up": {"warmup": 0.02},
    "30% warm-up": {"warmup": 0.3},
}


def part(text):
    """Which of the PARTS a text is in."""
    return int(hashlib.md5(text.encode()).hexdigest(), 16) % PARTS


class Examples:
    """Sentences as tokens, with what they are to be answered.

    Args:
        texts: N strings
        targets: (N,), numbers of classes, or values
        tokenizer: :class:`~maelm_fairseq.base.subwords.Subwords`
        positions: of the encoder: longer sentences are cut
    """

    def __init__(self, texts, targets, tokenizer, positions):
        self.tokens = [torch.tensor(sequence([tokens], positions)[0]) for tokens in tokenizer.encode_all(texts)]
        self.is_regression = targets.dtype.kind == "f"
        self.targets = (targets - targets.mean()) / targets.std() if self.is_regression else targets
        self.outputs = 1 if self.is_regression else int(targets.max()) + 1

    def batches(self, rows, size, rng=None):
        """Batches of the sentences with numbers `rows`, of similar length; in random order if `rng` is given."""
        order = rows if rng is None else rng.permutation(rows)
        lengths = np.array([len(self.tokens[row]) for row in order])
        groups = np.arange(len(order)) // (SORTED if rng is not None else len(order))
        order = order[np.lexsort([lengths, groups])]
        found = [order[i : i + size] for i in range(0, len(order), size)]
        return found if rng is None else [found[i] for i in rng.permutation(len(found))]


class Trial:
    """The sentences of a training file, those to train on and those to score."""

    def __init__(self, folder, tokenizer, positions):
        table = read_sentences(find_file(folder, "train", SENTENCE_FILES))
        labels, texts = [example.label for example in table.examples], [example.texts[0] for example in table.examples]
        classes = sorted(set(labels))
        is_regression = table.form.is_regression
        targets = np.array(labels, float) if is_regression else np.array([classes.index(label) for label in labels])
        self.examples = Examples(texts, targets, tokenizer, positions)
        parts = np.array([part(text) for text in texts])
        self.train, self.scored = (np.flatnonzero(np.isin(parts, chosen)) for chosen in (TRAINED, SCORED))
        self.metric = "pearson" if is_regression else "accuracy"


class Classifier(torch.nn.Module):
    """An encoder with a head of fine-tuning."""

    def __init__(self, checkpoint, dictionary, outputs, settings):
        super().__init__()
        state = read_checkpoint(checkpoint)
        options = {**state["cfg"]["model"], "dropout": settings.dropout, "attention_dropout": settings.dropout}
        model = build_model({**state, "cfg": {**state["cfg"], "model": options}}, dictionary, checkpoint)
        self.embed_tokens, self.encoder, self.pad = model.embed_tokens, model.encoder, dictionary.pad()
        self.head = SequenceClassificationHead(model.cfg.encoder_embed_dim, outputs, model.cfg.pooler_dropout)
        for linear in (self.head.dense, self.head.out_proj):
            torch.nn.init.normal_(linear.weight, std=0.02)
            torch.nn.init.zeros_(linear.bias)
        self.settings, self.positions = settings, model.max_positions()

    def forward(self, tokens):
        """(B, T) -> (B, outputs)."""
        absent = tokens.eq(self.pad)
        if self.training and self.settings.dropped:
            dropped = torch.rand(tokens.shape) < self.settings.dropped
            dropped[:, 0] = False
            absent = absent | dropped
        positions = torch.arange(tokens.size(1)).expand_as(tokens).masked_fill(absent, NO_POSITION)
        hidden = []
        with torch.autocast("cpu", torch.bfloat16):
            encoded = self.encoder(self.embed_tokens(tokens), positions, True, hidden=hidden)
            return self.head(self.pooled(encoded, hidden, absent)[:, None]).float()

    def pooled(self, encoded, hidden, absent):
        """What the head reads, (B, C)."""
        if self.settings.pooling == FIRST:
            return encoded[:, 0]
        x = encoded if self.settings.pooling == MEAN else torch.stack(hidden).mean(0)
        words = ~absent[:, 1:, None]
        return (x[:, 1:] * words).sum(1) / words.sum(1).clamp(min=1)

    def groups(self):
        """The weights by their rates: {rate, relative to the head's: list of weights}."""
        rates, layers = {}, len(self.encoder.layers)
        for name, weight in self.named_parameters():
            if name.startswith("head."):
                below = 0
            elif name.startswith("encoder.layers."):
                below = layers - int(name.split(".")[2])
            else:
                below = layers + 1
            rates.setdefault(self.settings.layer_decay**below, []).append(weight)
        return rates


def rate(update, updates, warmup):
    """The rate of an update, as a share of the peak: rises linearly, then falls to 0."""
    first = max(1, warmup * updates)
    return min((update + 1) / first, (updates - update) / max(1, updates - first), 1)


def train(model, examples, numbers, settings, rng):
    """Fine-tunes a classifier on the :class:`Examples` with these numbers, in place."""
    groups = [{"params": weights, "relative": relative} for relative, weights in model.groups().items()]
    optimizer = torch.optim.AdamW(groups, settings.lr, BETAS, EPS, settings.weight_decay, fused=True)
    updates = settings.epochs * math.ceil(len(numbers) / settings.batch)
    average, update = AveragedModel(model), 0
    model.train()
    for _ in range(settings.epochs):
        for rows in examples.batches(numbers, settings.batch, rng):
            output = model(pad_sequence([examples.tokens[row] for row in rows], True, model.pad))
            target = torch.from_numpy(examples.targets[rows])
            if examples.is_regression:
                loss = F.mse_loss(output[:, 0], target.float())
            else:
                loss = F.cross_entropy(output, target, label_smoothing=settings.smoothing)
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * group["relative"] * rate(update, updates, settings.warmup)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update += 1
            if update > (1 - settings.averaged) * updates:
                average.update_parameters(model)
    if settings.averaged:
        model.load_state_dict(average.module.state_dict())


@torch.no_grad()
def predict(model, examples, numbers):
    """The outputs for the n :class:`Examples` with these numbers, (n, outputs)."""
    model.eval()
    outputs = np.empty((len(examples.targets), examples.outputs))
    for rows in examples.batches(numbers, 64):
        outputs[rows] = model(pad_sequence([examples.tokens[row] for row in rows], True, model.pad)).numpy()
    return outputs[numbers]


def score(model, trial):
    """The score on the part for it, in percent."""
    predicted = answer(predict(model, trial.examples, trial.scored))
    return scores_of([trial.metric], trial.examples.targets[trial.scored], predicted)[trial.metric]


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
        value = score(model, trial)
        rows.append([name, seed, lever, task, trial.metric, round(value, 4)])
        with atomic_write(path) as stream:
            pd.DataFrame(rows, columns=COLUMNS).to_csv(stream, index=False, lineterminator="\n")
        tqdm.write(f"{name}, seed {seed}, {lever}, {task}: {value:.2f}")


# The page ----------------------------------------------------------------------------------------------------------


class Page:
    """The tables of TUNING.md, from the records in a folder."""

    def __init__(self, folder=RECORDS):
        records = pd.concat(map(pd.read_csv, sorted(folder.glob("*.csv"))), ignore_index=True)
        self.scores = records.pivot(index=["encoder", "seed", "lever"], columns="task", values="value")
        self.scores = self.scores.reindex(columns=NATURAL).dropna()  # of settings that are finished
        defaults = self.scores.xs(DEFAULT, level="lever")
        self.gains = (self.scores - defaults.reindex(self.scores.index.droplevel("lever")).values).dropna()

    def levers(self, table):
        """The levers that a table has, in their order."""
        return [lever for lever in LEVERS if lever != DEFAULT and lever in table.index]

    def defaults(self):
        """The scores of the defaults: encoders by tasks."""
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


class NoTrials:
    """The tables where there is no record."""

    def __getattr__(self, name):
        return lambda: "No trial has a record yet."


def main():
    parser = Parser("tuning.py", description=__doc__)
    parser.add_argument("what", choices=["measure", "page"])
    parser.add_argument("name", nargs="?", metavar="ENCODER", help="folder in RUN with its checkpoint_best.pt")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data, labelled files and encoders")
    parser.add_argument("--seed", type=within(1), default=1, help="of fine-tuning")
    args = parser.parse_args()
    if args.what == "page":
        blocks = Page() if any(RECORDS.glob("*.csv")) else NoTrials()
        text = with_blocks(PAGE.read_text(encoding="utf-8"), blocks)
        with atomic_write(PAGE) as stream:
            stream.write(text)
        return None
    if args.name is None:
        raise UsageError("measure: expected the name of an encoder, such as small-1")
    keep_freed_memory()
    RECORDS.mkdir(parents=True, exist_ok=True)
    return measure(args.name, args.run, args.seed)


if __name__ == "__main__":
    run(main)
