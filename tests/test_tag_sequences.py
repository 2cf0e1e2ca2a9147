"""Sequences of tags: which are legal, and which is the most probable."""

import itertools

import numpy as np
import pytest

from maelm_fairseq.finetuning.tag_sequences import (
    are_legal,
    find_illegal,
    first_illegal_word,
    legal_transitions,
    most_probable_tags,
)

BIO = ("B-X", "B-Y", "I-X", "I-Y", "O")
BIOES = ("B-X", "E-X", "I-X", "O", "S-X")


@pytest.mark.parametrize("labels, tags, expected", [
    (BIO, "", True),
    (BIO, "B-X I-X I-X O B-Y B-Y I-Y", True),
    (BIO, "O I-X", False),
    (BIO, "I-X I-X", False),
    (BIO, "B-X I-Y", False),
    (BIO, "B-X O I-X", False),
    (BIOES, "B-X I-X E-X S-X O S-X", True),
    (BIOES, "B-X E-X B-X E-X", True),
    (BIOES, "B-X O", False),
    (BIOES, "B-X", False),
    (BIOES, "S-X E-X", False),
    (BIOES, "B-X E-X I-X", False),
    (("B-X", "I-X", "L-X", "O", "U-X"), "B-X I-X L-X U-X", True),
    (("B-X", "I-X", "L-X", "O", "U-X"), "B-X U-X", False),
])  # fmt: skip
def test_an_entity_begins_before_it_goes_on(labels, tags, expected):
    assert are_legal([tags.split()], labels) == expected


def test_each_type_of_entity_has_its_own_scheme():
    labels = ("B-X", "B-Y", "E-Y", "I-X", "O")
    assert are_legal([["B-X", "O", "B-Y", "E-Y", "B-X", "I-X"]], labels)
    assert not are_legal([["B-Y", "O"]], labels)


def test_the_word_that_is_to_blame_is_found():
    sentences = [tags.split() for tags in ["O B-X I-X", "O I-X I-X", "B-X", "O B-X I-Y"]]
    assert find_illegal(sentences, BIO) == {1: 1, 3: 2}
    assert find_illegal([["O", "B-X"], ["B-X", "O"]], BIOES) == {0: 1, 1: 1}


def test_a_mistake_in_a_hundred_sentences_changes_nothing():
    sentences = [["B-X", "I-X"]] * 99 + [["I-X", "O"]]
    assert are_legal(sentences, BIO)
    assert not are_legal(sentences[1:], BIO)


def test_other_tags_have_no_order():
    assert not are_legal([["NOUN", "VERB"]], ["NOUN", "VERB"])
    assert not are_legal([["O", "I-X", "O"]], ["I-X", "O"])  # IOB1


@pytest.mark.parametrize("labels", [BIO, BIOES])
def test_of_all_legal_sequences_the_most_probable_is_found(labels):
    rng = np.random.default_rng(1)
    legal = legal_transitions(labels)
    changed = 0
    for _ in range(50):
        probabilities = rng.dirichlet(np.full(5, 0.5), size=4).astype(np.float32)
        best = max(
            (
                indices
                for indices in itertools.product(range(5), repeat=4)
                if first_illegal_word(indices, legal) is None
            ),
            key=lambda indices: np.log(probabilities[range(4), indices].astype(float)).sum(),
        )
        found = most_probable_tags(probabilities, labels, only_legal=True)
        assert found == [labels[index] for index in best]
        likeliest = [labels[index] for index in probabilities.argmax(1)]
        assert most_probable_tags(probabilities, labels, only_legal=False) == likeliest
        changed += found != likeliest
    assert changed > 10


def test_what_another_model_has_decided_stays():
    """A CRF's tags are probabilities of 0 and 1, even if its sequence is not legal."""
    one_hot = np.eye(5)[[4, 2, 3]]
    assert most_probable_tags(one_hot, BIO, only_legal=True) == ["O", "I-X", "I-Y"]
    assert most_probable_tags(np.empty((0, 5)), BIO, only_legal=True) == []
