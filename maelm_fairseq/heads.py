"""Heads: the language-model head of pretraining, and fine-tuning heads that describe themselves in the checkpoint.

Letters in shapes: B sequences, T tokens, C width, K predicted positions, N vocabulary.
"""

import logging

import torch
import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import nn

from .errors import UsageError

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


class MeanClassificationHead(RobertaClassificationHead):
    """A :class:`SequenceClassificationHead` that reads the mean of all tokens but `<s>` instead."""

    def __init__(self, width: int, outputs: int, inner: int, dropout: float):
        super().__init__(width, inner, outputs, "tanh", dropout)
        describe(self, outputs, inner)

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

    Heads written before version 0.2.0 have no description: it is inferred from their weights.

    Args:
        weights: state dict; missing descriptions are added to it
    Raises:
        ValueError: a description and the weights do not belong together
    """
    prefix, found = "classification_heads.", {}
    for name in dict.fromkeys(key.split(".")[1] for key in weights if key.startswith(prefix)):
        head = f"{prefix}{name}."
        shown = shown_by_weights(weights, head)
        description = weights.get(head + "description", shown)
        if description is None or description.shape != (3,):
            raise UsageError(f"head {name!r} is damaged: it has no description, and weights of no known kind")
        if 0 <= description[0] < len(KINDS) and (shown is None or not with_same_weights(description).equal(shown)):
            raise UsageError(f"head {name!r} is damaged: its weights are not those of its description")
        found[name] = weights[head + "description"] = description
    return found


def with_same_weights(description):
    """The description of the first kind that has the same weights: those of a head for the mean are no others."""
    mean, first = map(KINDS.index, [MeanClassificationHead, SequenceClassificationHead])
    return torch.cat([description[:1].where(description[:1] != mean, torch.tensor(first)), description[1:]])


def shown_by_weights(weights, head):
    """The description that the weights of a head show: int64 (3,); None if they are of no known kind.

    Args:
        weights: state dict
        head: what the names of its weights begin with
    """
    dense, out, span = (weights.get(head + name) for name in ["dense.weight", "out_proj.weight", "weight"])
    if dense is not None and out is not None and dense.dim() == out.dim() == 2:
        return torch.tensor([KINDS.index(SequenceClassificationHead), len(out), len(dense)])
    if span is not None and span.dim() == 2:
        return torch.tensor([KINDS.index(SpanHead), len(span), 0])
    return None


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
        wanted = own.get(prefix + "description")
        if wanted is None or description.tolist() != wanted.tolist():
            if wanted is not None:
                logger.warning("head %r of the checkpoint has another kind or size: it is initialised anew", name)
            for key in [key for key in weights if key.startswith(prefix)]:
                del weights[key]
    for key, value in own.items():
        if key.startswith("classification_heads."):
            weights.setdefault(key, value)
