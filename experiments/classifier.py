"""Fine-tuning within a process: the recipe's loop in short, with settings that the recipe lacks.

Letters in shapes: B sentences, T tokens, C width, L layers.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel

from maelm_fairseq.base.tokenizer import join_and_cut
from maelm_fairseq.checkpoints.building import build_model, read_checkpoint
from maelm_fairseq.finetuning.finetuning_task import layers_below_head
from maelm_fairseq.heads import SequenceClassificationHead
from maelm_fairseq.masking import NO_POSITION
from maelm_fairseq.precision import is_fast_in_bfloat16

BETAS, EPS = (0.9, 0.98), 1e-6
# Random sentences that are sorted by length at a time, so that batches need little padding.
SORTED_POOL_SIZE = 512
READ_FIRST, READ_MEAN, READ_LAYERS = "<s>", "mean of tokens", "mean of tokens and layers"


@dataclass(frozen=True)
class Settings:
    lr: float = 5e-4  # at its peak; then it falls linearly to 0
    epochs: int = 12
    warmup_ratio: float = 0.1  # share of the updates
    batch_size: int = 32
    dropout: float = 0.1  # of the encoder
    pooling: str = READ_FIRST  # what the head reads
    weight_decay: float = 0.01
    # Factor of the rate for each layer below the head; the embeddings are below the first layer.
    lr_layer_decay: float = 1.0
    label_smoothing: float = 0.0  # of labels, where they are classes
    token_dropout: float = 0.0  # share of the input tokens that each update leaves out
    averaged_share: float = 0.0  # share of the updates, at the end, whose weights are averaged


class Examples:
    """Sentences as tokens, with their targets.

    Args:
        texts: N strings
        targets: (N,), indices of classes, or values
        tokenizer: `tokenizer.Tokenizer`
        positions: how many the encoder has; longer sentences are cut
    """

    def __init__(self, texts, targets, tokenizer, positions):
        encoded = tokenizer.encode_all(texts)
        self.tokens = [torch.tensor(join_and_cut([tokens], positions)[0]) for tokens in encoded]
        self.is_regression = targets.dtype.kind == "f"
        if self.is_regression:
            self.targets = (targets - targets.mean()) / targets.std()
            self.num_outputs = 1
        else:
            self.targets = targets
            self.num_outputs = int(targets.max()) + 1

    def batches(self, rows, size, rng=None):
        """Batches of the sentences with indices `rows`, of similar length.

        They are in random order if `rng` is given.
        """
        order = rows if rng is None else rng.permutation(rows)
        lengths = np.array([len(self.tokens[row]) for row in order])
        sorted_together = len(order) if rng is None else SORTED_POOL_SIZE
        groups = np.arange(len(order)) // sorted_together
        order = order[np.lexsort([lengths, groups])]
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        if rng is None:
            return batches
        return [batches[i] for i in rng.permutation(len(batches))]


class Classifier(torch.nn.Module):
    """An encoder with the head of fine-tuning."""

    def __init__(self, checkpoint, dictionary, num_outputs, settings):
        super().__init__()
        state = read_checkpoint(checkpoint)
        dropout = {"dropout": settings.dropout, "attention_dropout": settings.dropout}
        cfg = {**state["cfg"], "model": {**state["cfg"]["model"], **dropout}}
        model = build_model({**state, "cfg": cfg}, dictionary, checkpoint)
        self.embed_tokens = model.embed_tokens
        self.encoder = model.encoder
        self.pad = dictionary.pad()
        width = model.cfg.encoder_embed_dim
        self.head = SequenceClassificationHead(width, num_outputs, model.cfg.pooler_dropout)
        for linear in (self.head.dense, self.head.out_proj):
            torch.nn.init.normal_(linear.weight, std=0.02)
            torch.nn.init.zeros_(linear.bias)
        self.settings = settings
        self.max_positions = model.max_positions()

    def forward(self, tokens):
        """The outputs for tokens (B, T): (B, outputs)."""
        absent = tokens.eq(self.pad)
        if self.training and self.settings.token_dropout:
            dropped = torch.rand(tokens.shape) < self.settings.token_dropout
            dropped[:, 0] = False
            absent = absent | dropped
        positions = torch.arange(tokens.size(1)).expand_as(tokens)
        positions = positions.masked_fill(absent, NO_POSITION)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_fast_in_bfloat16("cpu")):
            hidden = self.encoder(self.embed_tokens(tokens), positions, True, all_layers=True)
            return self.head(self.pooled(hidden, absent)[:, None]).float()

    def pooled(self, hidden, absent):
        """What the head reads, (B, C).

        Args:
            hidden: the input of the encoder's first layer and the outputs of all, L + 1 times
                (B, T, C)
            absent: which tokens are padding or left out, (B, T)
        """
        if self.settings.pooling == READ_FIRST:
            return hidden[-1][:, 0]
        x = hidden[-1] if self.settings.pooling == READ_MEAN else torch.stack(hidden).mean(0)
        is_word = ~absent[:, 1:, None]
        return (x[:, 1:] * is_word).sum(1) / is_word.sum(1).clamp(min=1)

    def weights_by_rate(self):
        """The weights by their rates: {rate, relative to the head's: list of weights}."""
        groups = {}
        layers = len(self.encoder.layers)
        for name, weight in self.named_parameters():
            depth = 0 if name.startswith("head.") else layers_below_head(name, layers)
            groups.setdefault(self.settings.lr_layer_decay**depth, []).append(weight)
        return groups


def lr_ratio(update, num_updates, warmup_ratio):
    """The rate of an update as a share of the peak: it rises linearly, then falls linearly to 0."""
    rising = max(1, warmup_ratio * num_updates)  # number of updates
    falling = max(1, num_updates - rising)
    return min((update + 1) / rising, (num_updates - update) / falling, 1)


def padded_batch(examples, rows, pad):
    """The tokens of the sentences with indices `rows`, (B, T)."""
    return pad_sequence([examples.tokens[row] for row in rows], True, pad)


def loss_of(output, examples, rows, settings):
    """The mean loss of outputs for the sentences with indices `rows`."""
    target = torch.from_numpy(examples.targets[rows])
    if examples.is_regression:
        return F.mse_loss(output[:, 0], target.float())
    return F.cross_entropy(output, target, label_smoothing=settings.label_smoothing)


def train_classifier(model, examples, indices, settings, rng):
    """Fine-tunes a classifier on the `Examples` with these indices, in place."""
    groups = []
    for relative_lr, weights in model.weights_by_rate().items():
        groups.append({"params": weights, "relative_lr": relative_lr})
    decay = settings.weight_decay
    optimizer = torch.optim.AdamW(groups, settings.lr, BETAS, EPS, decay, fused=True)
    num_updates = settings.epochs * math.ceil(len(indices) / settings.batch_size)
    average = AveragedModel(model)
    update = 0
    model.train()
    for _ in range(settings.epochs):
        for rows in examples.batches(indices, settings.batch_size, rng):
            output = model(padded_batch(examples, rows, model.pad))
            loss = loss_of(output, examples, rows, settings)
            ratio = lr_ratio(update, num_updates, settings.warmup_ratio)
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * group["relative_lr"] * ratio
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update += 1
            if update > (1 - settings.averaged_share) * num_updates:
                average.update_parameters(model)
    if settings.averaged_share:
        model.load_state_dict(average.module.state_dict())


@torch.no_grad()
def predict_outputs(model, examples, indices):
    """The outputs for the n `Examples` with these indices, (n, outputs)."""
    model.eval()
    outputs = np.empty((len(examples.targets), examples.num_outputs))
    for rows in examples.batches(indices, 64):
        outputs[rows] = model(padded_batch(examples, rows, model.pad)).numpy()
    return outputs[indices]
