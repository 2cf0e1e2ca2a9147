"""Heads: the language-model head of pretraining, and fine-tuning heads that describe themselves in the checkpoint.

Letters in shapes: B sequences, T tokens, C width, K predicted positions, N vocabulary.
"""

import logging

import torch
import torch.nn.functional as F
from torch import nn

from .base.errors import UsageError
from .engine import RobertaClassificationHead

logger = logging.getLogger(__name__)


def alignment(x):
    """Of the vocabulary, in numbers: a GPU multiplies half-precision matrices of other sizes several times slower."""
    return 1 if x.device.type == "cpu" else 8


class LMHead(nn.Module):
    """Linear, GELU, LayerNorm, then the tied token embedding with a bias."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, x, embedding):
        """(B, K, C) and the token embedding (N, C) -> (B, K, N) logits."""
        x = self.norm(F.gelu(self.dense(x)))
        more = -len(embedding) % alignment(x)
        if not more:
            return F.linear(x, embedding, self.bias)
        return F.linear(x, F.pad(embedding, (0, 0, 0, more)), F.pad(self.bias, (0, more)))[..., : len(embedding)]


class SequenceClassificationHead(RobertaClassificationHead):
    """Reads `<s>`, (B, T, C) -> (B, outputs) logits or scores: dropout, linear, tanh, dropout, linear."""

    def __init__(self, width: int, outputs: int, inner: int, dropout: float):
        super().__init__(width, inner, outputs, "tanh", dropout)
        describe(self, outputs, inner)


class SpanHead(nn.Linear):
    """Start and end logits of an answer at every token, (B, T, C) -> (B, T, 2)."""

    def __init__(self, width: int, outputs: int = 2, inner: int = 0, dropout: float = 0.0):
        super().__init__(width, outputs)
        describe(self, outputs, inner)

    def forward(self, x, padding=None):
        return super().forward(x)


class MeanClassificationHead(SequenceClassificationHead):
    """Reads the mean of all tokens but `<s>` instead."""

    def forward(self, x, padding):
        """(B, T, C) and whether a token is padding (B, T) -> (B, outputs)."""
        tokens = ~padding[:, 1:, None]
        mean = (x[:, 1:] * tokens).sum(1) / tokens.sum(1).clamp(min=1)
        return super().forward(mean[:, None])


# A head's kind is stored as its place in this list: only ever append to it.
KINDS = [SequenceClassificationHead, SpanHead, MeanClassificationHead]
# What --classification-pooling can be.
FIRST, MEAN = "first", "mean"
POOLING = {FIRST: SequenceClassificationHead, MEAN: MeanClassificationHead}


def describe(head, outputs, inner):
    """Stores the kind, outputs and inner width of a head with its weights: int64 (3,)."""
    head.register_buffer("description", torch.tensor([KINDS.index(type(head)), outputs, inner]))


def build_head(description, width, dropout, name):
    """The head that a description read from a checkpoint calls for.

    Raises:
        ValueError: a later version of this package wrote it
    """
    kind, outputs, inner = description.tolist()
    if not 0 <= kind < len(KINDS):
        raise UsageError(f"head {name!r} is of kind {kind}, which this version does not know: update maelm_fairseq")
    return KINDS[kind](width, outputs, inner, dropout)


def head_descriptions(weights):
    """The heads in the weights of a model: {name: description}.

    Args:
        weights: state dict
    Raises:
        ValueError: a head has no description
    """
    prefix, found = "classification_heads.", {}
    for name in dict.fromkeys(key.split(".")[1] for key in weights if key.startswith(prefix)):
        found[name] = weights.get(f"{prefix}{name}.description")
        if found[name] is None or found[name].shape != (3,):
            raise UsageError(f"head {name!r} has no description: it was written before version 0.2.0, or is damaged")
    return found


def fit_heads(weights, own):
    """Gives a checkpoint's weights the heads of a model, in place.

    Heads that the model lacks, or has in another kind or size, are dropped; those that the checkpoint lacks are taken
    from the model.

    Args:
        weights: state dict of the checkpoint
        own: state dict of the model
    """
    for name, description in head_descriptions(weights).items():
        prefix = f"classification_heads.{name}."
        ours = own.get(prefix + "description")
        if ours is None or description.tolist() != ours.tolist():
            if ours is not None:
                logger.warning("head %r of the checkpoint has another kind or size: it is initialised anew", name)
            for key in [key for key in weights if key.startswith(prefix)]:
                del weights[key]
    for key, value in own.items():
        if key.startswith("classification_heads."):
            weights.setdefault(key, value)
