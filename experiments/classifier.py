"""Fine-tuning in a process, in short: the recipe's loop, with levers that the recipe does not have.

Letters in shapes: B sentences, T tokens, C width, L layers.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel

from maelm_fairseq.base.subwords import sequence
from maelm_fairseq.checkpoints.building import build_model, read_checkpoint
from maelm_fairseq.finetuning.labelled_task import layers_below_head
from maelm_fairseq.heads import SequenceClassificationHead
from maelm_fairseq.masking import NO_POSITION

BETAS, EPS = (0.9, 0.98), 1e-6
SORTED = 512  # random sentences that are sorted by length, so that batches need little padding
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


class Examples:
    """Sentences as tokens, with what they are to be answered.

    Args:
        texts: N strings
        targets: (N,), numbers of classes, or values
        tokenizer: `subwords.Subwords`
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
            below = 0 if name.startswith("head.") else layers_below_head(name, layers)
            rates.setdefault(self.settings.layer_decay**below, []).append(weight)
        return rates


def rate(update, updates, warmup):
    """The rate of an update, as a share of the peak: rises linearly, then falls to 0."""
    first = max(1, warmup * updates)
    return min((update + 1) / first, (updates - update) / max(1, updates - first), 1)


def train(model, examples, numbers, settings, rng):
    """Fine-tunes a classifier on the `Examples` with these numbers, in place."""
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
    """The outputs for the n `Examples` with these numbers, (n, outputs)."""
    model.eval()
    outputs = np.empty((len(examples.targets), examples.outputs))
    for rows in examples.batches(numbers, 64):
        outputs[rows] = model(pad_sequence([examples.tokens[row] for row in rows], True, model.pad)).numpy()
    return outputs[numbers]
