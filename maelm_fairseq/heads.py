"""Heads: the language-model head of pretraining, and the heads of fine-tuning.

Letters in shapes: B sequences, T tokens, C width, K predicted positions, N vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .base.errors import UsageError
from .fairseq_api import RobertaClassificationHead
from .state_dicts import HEAD_PREFIX, select_module, weight_shapes


def vocabulary_multiple(x):
    """What the size of the vocabulary should be a multiple of, on the device of `x`.

    A GPU multiplies half-precision matrices of other sizes several times slower.
    """
    return 1 if x.device.type == "cpu" else 8


class LMHead(nn.Module):
    """Linear, GELU, LayerNorm, then the tied token embedding with a bias."""

    def __init__(self, width: int, vocabulary_size: int, eps: float):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, x, embedding):
        """(B, K, C) and the token embedding (N, C) -> (B, K, N) logits."""
        x = self.norm(F.gelu(self.dense(x)))
        N = len(embedding)
        missing = -N % vocabulary_multiple(x)
        if not missing:
            return F.linear(x, embedding, self.bias)
        padded_embedding = F.pad(embedding, (0, 0, 0, missing))
        padded_bias = F.pad(self.bias, (0, missing))
        return F.linear(x, padded_embedding, padded_bias)[..., :N]


class SequenceClassificationHead(RobertaClassificationHead):
    """Reads `<s>`, (B, T, C) -> (B, outputs) logits or scores.

    It consists of dropout, linear, tanh, dropout, linear.
    """

    reads_first_token_alone = True  # like the heads of transformers' classes

    def __init__(self, width: int, outputs: int, dropout: float):
        super().__init__(width, width, outputs, "tanh", dropout)


class MeanClassificationHead(SequenceClassificationHead):
    """Reads the mean of all tokens but `<s>` instead."""

    reads_first_token_alone = False

    def forward(self, x, padding):
        """(B, T, C) and whether a token is padding (B, T) -> (B, outputs)."""
        tokens = ~padding[:, 1:, None]
        mean = (x[:, 1:] * tokens).sum(1) / tokens.sum(1).clamp(min=1)
        return super().forward(mean[:, None])


class TokenClassificationHead(nn.Module):
    """Logits of the classes of every token, (B, T, C) -> (B, T, outputs): dropout, linear."""

    def __init__(self, width: int, outputs: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(width, outputs)

    def forward(self, x, padding=None):
        return self.out_proj(self.dropout(x))


class SpanHead(nn.Linear):
    """Start and end logits of an answer at every token, (B, T, C) -> (B, T, 2)."""

    def __init__(self, width: int):
        super().__init__(width, 2)

    def forward(self, x, padding=None):
        return super().forward(x)


# The choices of --classification-pooling, and the head of each.
FIRST_TOKEN = "first"
MEAN_OF_TOKENS = "mean"
HEAD_OF_POOLING = {FIRST_TOKEN: SequenceClassificationHead, MEAN_OF_TOKENS: MeanClassificationHead}


def only_head_name(heads):
    """The name of the only one of `heads`, {name: module}; None if there is none.

    Several are refused.
    """
    if len(heads) > 1:
        raise UsageError(
            f"the checkpoint has the heads {', '.join(heads)}, expected one; "
            "save it with one of them"
        )
    return next(iter(heads), None)


def build_heads(weights, cfg):
    """The heads whose weights are in a model's state dict, newly initialised: {name: module}.

    All of them have the `classification_pooling` of `cfg`, a `config.MaeLmConfig`.

    Raises UsageError: the weights are of no head that is known
    """
    heads = {}
    names = dict.fromkeys(key.split(".")[1] for key in weights if key.startswith(HEAD_PREFIX))
    for name in names:
        shapes = weight_shapes(select_module(weights, HEAD_PREFIX + name))
        width = cfg.encoder_embed_dim
        bias_shape = shapes.get("out_proj.bias") or (0,)
        outputs = bias_shape[0]
        if shapes.keys() == {"weight", "bias"}:
            head = SpanHead(width)
        elif shapes.keys() == {"out_proj.weight", "out_proj.bias"}:
            head = TokenClassificationHead(width, outputs, cfg.pooler_dropout)
        else:
            head = HEAD_OF_POOLING[str(cfg.classification_pooling)](
                width, outputs, cfg.pooler_dropout
            )
        if shapes != weight_shapes(head.state_dict()):
            raise UsageError(
                f"head {name!r} is of a kind that this version does not know: update maelm_fairseq"
            )
        heads[name] = head
    return heads
