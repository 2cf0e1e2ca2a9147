#!/usr/bin/env python3
"""Measures what an encoder knows about a task before fine-tuning: a linear probe on the features of each layer.

The features of a text are averaged over its tokens. Two baselines: the same encoder with random weights, and a
classifier on piece counts. Reports the accuracy on the dev set in percent, each with the best of four regularization
strengths.
"""

import argparse
import os

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from finetune_glue import GlueTask
from maelm_fairseq.errors import Parser, UsageError, run
from maelm_fairseq.model import MaeLmModel

STRENGTHS = [1e-3, 1e-2, 1e-1, 1]


def features(model, tokens, batch_size=64):
    """The features of each layer, averaged over tokens other than `<s>`: float32 (layers + 1, texts, width).

    Args:
        model: :class:`~maelm_fairseq.hub.MaeLm`
        tokens: list of int64 tensors (T,), `<s>` first
    """
    parts = []
    for first in range(0, len(tokens), batch_size):
        batch = torch.nn.utils.rnn.pad_sequence(tokens[first : first + batch_size], True, model.dictionary.pad())
        hidden = model.extract_features(batch, all_layers=True)[:, :, 1:].cpu()
        parts.append(hidden.sum(2) / batch[:, 1:].ne(model.dictionary.pad()).sum(1, keepdim=True))
    return torch.cat(parts, 1).numpy()


def piece_counts(tokens, vocabulary):
    """The count of each piece in each text: float32 (texts, vocabulary)."""
    return np.stack([np.bincount(row, minlength=vocabulary) for row in tokens]).astype(np.float32)


def accuracy(scaler, train, train_targets, valid, valid_targets):
    """The accuracy of logistic regression with the best of STRENGTHS, in percent."""
    probes = [make_pipeline(scaler(), LogisticRegression(C=c, max_iter=300)) for c in STRENGTHS]
    return 100 * max(probe.fit(train, train_targets).score(valid, valid_targets) for probe in probes)


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="a pretrained model")
    parser.add_argument("--data", required=True, metavar="DIR", help="folder that data-prep/glue.sh wrote for a task")
    args = parser.parse_args()

    task = GlueTask(args.data, os.path.basename(os.path.normpath(args.data)))
    if task.labels is None:
        raise UsageError(f"{args.data}: a regression task, expected one with classes")
    model = task.load(args.checkpoint)
    train, valid = task.tokens("train"), task.tokens("valid")
    targets = task.targets("train"), task.targets("valid")
    for name in ["pretrained", "random"]:
        rows = zip(features(model, train), features(model, valid))
        for layer, (x, y) in enumerate(rows):
            print(f"{name}, layer {layer}: {accuracy(StandardScaler, x, targets[0], y, targets[1]):.1f}", flush=True)
        torch.manual_seed(1)
        model.model = MaeLmModel(model.model.cfg, task.dictionary, pretraining=False).eval().to(model.device)
    counts = [piece_counts(tokens, len(task.dictionary)) for tokens in (train, valid)]
    print(f"piece counts: {accuracy(MaxAbsScaler, counts[0], targets[0], counts[1], targets[1]):.1f}")


if __name__ == "__main__":
    run(main)
