"""Heads, as the weights of a model show them."""

import pytest
import torch

from maelm_fairseq import heads
from maelm_fairseq.config import MaeLmConfig
from maelm_fairseq.heads import (
    MeanClassificationHead,
    SequenceClassificationHead,
    SpanHead,
    TokenClassificationHead,
)


def weights_of(**heads):
    return torch.nn.ModuleDict({"classification_heads": torch.nn.ModuleDict(heads)}).state_dict()


HEADS = dict(
    topic=SequenceClassificationHead(8, 3, 0.1),
    answers=SpanHead(8),
    score=SequenceClassificationHead(8, 1, 0),
    tags=TokenClassificationHead(8, 5, 0.1),
)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


@pytest.mark.parametrize(
    "pooling, kind", [("first", SequenceClassificationHead), ("mean", MeanClassificationHead)]
)
def test_weights_and_pooling_show_the_head(pooling, kind):
    cfg = MaeLmConfig(encoder_embed_dim=8, classification_pooling=pooling)
    built = heads.build_heads(weights_of(**HEADS), cfg)
    kinds = dict(topic=kind, answers=SpanHead, score=kind, tags=TokenClassificationHead)
    assert {name: type(head) for name, head in built.items()} == kinds
    for name, head in built.items():
        head.load_state_dict(HEADS[name].state_dict())
        x = torch.randn(2, 5, 8)
        if pooling == "first" or name == "tags":
            expected = HEADS[name].eval()(x, padding=PADDING)
            torch.testing.assert_close(head.eval()(x, padding=PADDING), expected)


@pytest.mark.parametrize(
    "other", [torch.nn.Linear(8, 3), torch.nn.Linear(7, 2), heads.LMHead(8, 4, 1e-5)]
)
def test_heads_of_a_later_version_are_refused(other):
    fault = "head 'new' is of a kind that this version does not know: update"
    with pytest.raises(ValueError, match=fault):
        heads.build_heads(weights_of(new=other), MaeLmConfig(encoder_embed_dim=8))


def test_the_head_for_the_mean_reads_neither_the_first_token_nor_padding():
    head = MeanClassificationHead(8, 2, 0.1).eval()
    x = torch.randn(2, 5, 8)
    read = [x[0, 1:], x[1, 1:3]]
    expected = [head.out_proj(torch.tanh(head.dense(row.mean(0)))) for row in read]
    torch.testing.assert_close(head(x, PADDING), torch.stack(expected))
    other = x.clone()
    other[:, 0] = 7
    other[1, 3:] = 1e6
    torch.testing.assert_close(head(other, PADDING), head(x, PADDING))
