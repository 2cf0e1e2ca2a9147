"""Heads that describe themselves in the weights of a model."""

import pytest
import torch

from maelm_fairseq.heads import (
    KINDS,
    LMHead,
    SequenceClassificationHead,
    SpanHead,
    build_head,
    fit_heads,
    head_descriptions,
)


def weights_of(**heads):
    return torch.nn.ModuleDict({"classification_heads": torch.nn.ModuleDict(heads)}).state_dict()


def without_descriptions(weights):
    return {key: value for key, value in weights.items() if not key.endswith(".description")}


HEADS = dict(
    topic=SequenceClassificationHead(8, 3, 6, 0.1), answers=SpanHead(8), score=SequenceClassificationHead(8, 1, 8, 0)
)


def test_a_description_builds_the_same_head():
    for name, description in head_descriptions(weights_of(**HEADS)).items():
        head = build_head(description, 8, 0.1, name)
        assert type(head) is type(HEADS[name])
        head.load_state_dict(HEADS[name].state_dict())
        x = torch.randn(2, 5, 8)
        torch.testing.assert_close(head.eval()(x), HEADS[name].eval()(x))


def test_descriptions_say_kind_outputs_and_inner_width():
    found = head_descriptions(weights_of(**HEADS))
    assert {name: description.tolist() for name, description in found.items()} == {
        "topic": [0, 3, 6],
        "answers": [1, 2, 0],
        "score": [0, 1, 8],
    }
    assert [SequenceClassificationHead, SpanHead] == KINDS[:2]  # their places are stored in checkpoints


def test_heads_from_before_version_0_2_are_recognised_by_their_weights():
    weights = weights_of(**HEADS)
    found = head_descriptions(without_descriptions(weights))
    assert {name: d.tolist() for name, d in found.items()} == {
        name: d.tolist() for name, d in head_descriptions(weights).items()
    }


def test_a_head_of_a_later_version_is_refused():
    with pytest.raises(ValueError, match="head 'new' is of kind 99, which this version does not know: update"):
        build_head(torch.tensor([99, 2, 0]), 8, 0.1, "new")


def test_heads_are_fitted_to_a_model(caplog):
    own = weights_of(topic=SequenceClassificationHead(8, 2, 6, 0.1), answers=SpanHead(8), more=SpanHead(8))
    weights = without_descriptions(weights_of(**HEADS))
    fit_heads(weights, own)
    assert weights.keys() == own.keys()
    for key, value in own.items():
        same = torch.equal(weights[key], value)
        assert same or key.startswith("classification_heads.answers.")  # the only head in the same kind and size
    assert torch.equal(weights["classification_heads.answers.weight"], HEADS["answers"].weight)
    assert "head 'topic' of the checkpoint has another kind or size" in caplog.text and "score" not in caplog.text


def test_the_language_model_head_uses_the_embedding_and_its_bias():
    head, embedding = LMHead(8, 11), torch.randn(11, 8)
    x = torch.randn(2, 3, 8)
    logits = head(x, embedding)
    head.bias.data += torch.arange(11)
    torch.testing.assert_close(head(x, embedding), logits + torch.arange(11))
    torch.testing.assert_close(head(x, 2 * embedding) - torch.arange(11), 2 * logits)
