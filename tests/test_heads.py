"""Heads that describe themselves in the weights of a model."""

import pytest
import torch

from maelm_fairseq.heads import (
    KINDS,
    MeanClassificationHead,
    SequenceClassificationHead,
    SpanHead,
    build_head,
    fit_heads,
    head_descriptions,
)


def weights_of(**heads):
    return torch.nn.ModuleDict({"classification_heads": torch.nn.ModuleDict(heads)}).state_dict()


HEADS = dict(
    topic=SequenceClassificationHead(8, 3, 6, 0.1), answers=SpanHead(8), score=SequenceClassificationHead(8, 1, 8, 0),
    mood=MeanClassificationHead(8, 2, 4, 0.1),
)  # fmt: skip
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def test_a_description_builds_the_same_head():
    for name, description in head_descriptions(weights_of(**HEADS)).items():
        head = build_head(description, 8, 0.1, name)
        assert type(head) is type(HEADS[name])
        head.load_state_dict(HEADS[name].state_dict())
        x = torch.randn(2, 5, 8)
        torch.testing.assert_close(head.eval()(x, padding=PADDING), HEADS[name].eval()(x, padding=PADDING))


def test_descriptions_say_kind_outputs_and_inner_width():
    found = head_descriptions(weights_of(**HEADS))
    assert {name: description.tolist() for name, description in found.items()} == {
        "topic": [0, 3, 6],
        "answers": [1, 2, 0],
        "score": [0, 1, 8],
        "mood": [2, 2, 4],
    }
    # Their places are stored in checkpoints.
    assert [SequenceClassificationHead, SpanHead, MeanClassificationHead] == KINDS[:3]


def test_heads_without_a_description_or_of_a_later_version_are_refused():
    with pytest.raises(ValueError, match="head 'topic' has no description: it was written before version 0.2.0"):
        weights = weights_of(topic=HEADS["topic"])
        head_descriptions({key: value for key, value in weights.items() if not key.endswith(".description")})
    with pytest.raises(ValueError, match="head 'new' is of kind 99, which this version does not know: update"):
        build_head(torch.tensor([99, 2, 0]), 8, 0.1, "new")


def test_heads_are_fitted_to_a_model(caplog):
    own = weights_of(topic=SequenceClassificationHead(8, 2, 6, 0.1), answers=SpanHead(8), more=SpanHead(8))
    weights = weights_of(**HEADS)
    fit_heads(weights, own)
    assert weights.keys() == own.keys()
    for key, value in own.items():
        same = torch.equal(weights[key], value)
        assert same or key.startswith("classification_heads.answers.")  # the only head in the same kind and size
    assert torch.equal(weights["classification_heads.answers.weight"], HEADS["answers"].weight)
    assert "head 'topic' of the checkpoint has another kind or size" in caplog.text and "score" not in caplog.text


def test_the_head_for_the_mean_reads_neither_the_first_token_nor_padding():
    head = MeanClassificationHead(8, 2, 4, 0.1).eval()
    x = torch.randn(2, 5, 8)
    expected = [head.out_proj(torch.tanh(head.dense(row.mean(0)))) for row in [x[0, 1:], x[1, 1:3]]]
    torch.testing.assert_close(head(x, PADDING), torch.stack(expected))
    other = x.clone()
    other[:, 0], other[1, 3:] = 7, 1e6
    torch.testing.assert_close(head(other, PADDING), head(x, PADDING))
