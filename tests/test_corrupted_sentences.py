"""data-prep/corrupted_sentences.py: two probes made from sentences."""

import sys

import pytest

from conftest import ROOT, documents

sys.path.insert(0, str(ROOT / "data-prep"))
import corrupted_sentences  # noqa: E402

SENTENCES = ["The " + line + " ." for document in documents(150, 3) for line in document]
SENTENCES += ["Too short", "A a a a a .", "All Words Are Names Here", "the " * 40]


@pytest.mark.parametrize("probe", ["bigram_shift", "replaced_word"])
def test_half_of_the_sentences_are_corrupted(probe):
    examples = list(getattr(corrupted_sentences, probe)(SENTENCES))
    assert len(examples) > 150
    known, corrupted = {tuple(sentence.split()) for sentence in SENTENCES}, 0
    words = [word for sentence in known for word in sentence]
    for text, label in examples:
        found = text.split()
        assert 5 <= len(found) <= 28
        if label == "original":
            assert tuple(found) in known
            continue
        assert label == "corrupted"
        corrupted += 1
        candidates = [
            [i for i, (a, b) in enumerate(zip(sentence, found)) if a != b]
            for sentence in known
            if len(sentence) == len(found) and sentence[0] == found[0]
        ]
        if probe == "bigram_shift":
            assert any(len(places) == 2 and places[1] == places[0] + 1 > 1 for places in candidates)
        else:
            assert any(len(places) == 1 and places[0] > 0 for places in candidates)
            assert set(found) <= set(words)
    assert abs(2 * corrupted - len(examples)) <= 1


def test_they_do_not_depend_on_the_order_and_no_sentence_is_used_twice():
    for probe in [corrupted_sentences.bigram_shift, corrupted_sentences.replaced_word]:
        examples = list(probe(SENTENCES + SENTENCES))
        assert len({text for text, _ in examples}) == len(examples) == len(list(probe(SENTENCES)))
    assert sorted(corrupted_sentences.bigram_shift(SENTENCES)) == sorted(
        corrupted_sentences.bigram_shift(SENTENCES[::-1])
    )


def test_replaced_words_have_the_frequencies_of_the_text():
    """A rare word is as rare among new words as in the text."""
    start = "It was one of those old films that we all like to see with a"
    sentences = [f"{start} {'rare' if i % 10 == 0 else 'common'} x{i} ." for i in range(20000)]
    examples = list(corrupted_sentences.replaced_word(sentences))
    texts = [text.split() for text, label in examples if label == "corrupted"]
    shares = [
        sum(text.count("rare") for text in texts) / sum(text.count("common") for text in texts),
        sum(text.count("rare") for text, _ in examples) / sum(text.count("common") for text, _ in examples),
    ]
    assert shares == pytest.approx([1 / 9, 1 / 9], rel=0.1)
