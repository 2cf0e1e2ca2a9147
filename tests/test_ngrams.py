"""Baselines for minimal pairs: n-grams agree with a second implementation; and the program."""

import collections
import json

import numpy as np
import pandas as pd
import pytest

import ngrams
from conftest import error_of, run_main
from kneser_ney import DEFAULT_DISCOUNTS, KneserNey, discounts
from maelm_fairseq.base.tokenizer import BOS, EOS, UNKNOWN
from maelm_fairseq.evaluation.model_record import (
    GROUPS_KEY,
    PAIRS_FEATURE,
    SCORE_COLUMNS,
    ModelRecord,
)
from maelm_fairseq.evaluation.pair_files import read_pairs
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer

VOCABULARY, ORDER = 40, 4


def sentences(count, seed):
    """Lists of tokens, a few of which are frequent; the first list is empty."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, size=count)
    lists = [[]]
    for size in sizes:
        tokens = 4 + random.geometric(0.15, size) % (VOCABULARY - 4)
        lists.append(tokens.tolist())
    return lists


def flat(lists):
    """What `KneserNey` takes: tokens, sizes."""
    tokens = np.array([token for sentence in lists for token in sentence])
    sizes = [len(sentence) for sentence in lists]
    return tokens, sizes


class Naive:
    """Modified Kneser-Ney smoothing, written a second time: by recursion, from counts in dicts."""

    def __init__(self, lists):
        occurrences = collections.Counter()
        before = collections.defaultdict(set)
        for sentence in lists:
            whole = (BOS, *sentence, EOS)
            for end in range(1, len(whole) + 1):
                for start in range(max(0, end - ORDER), end):
                    gram = whole[start:end]
                    occurrences[gram] += 1
                    if start > 0:
                        before[gram].add(whole[start - 1])
        self.counts = {}
        for gram, count in occurrences.items():
            is_adjusted = len(gram) < ORDER and gram[0] != BOS
            self.counts[gram] = len(before[gram]) if is_adjusted else count
        del self.counts[(BOS,)]
        self.followers = collections.defaultdict(list)
        for *context, token in self.counts:
            self.followers[tuple(context)].append(token)
        self.discounts = [self.discounts_of(length) for length in range(1, ORDER + 1)]

    def discounts_of(self, length):
        """Discounts of the counts 0, 1, 2, and 3 or more."""
        counts = [count for gram, count in self.counts.items() if len(gram) == length]
        n1, n2, n3, n4 = (counts.count(number) for number in range(1, 5))
        y = n1 / (n1 + 2 * n2)
        return [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]

    def probability(self, token, context):
        shorter = self.probability(token, context[1:]) if context else 1 / VOCABULARY
        if context not in self.followers:
            return shorter
        counts = [self.counts[(*context, follower)] for follower in self.followers[context]]
        count = self.counts.get((*context, token), 0)
        discounts = self.discounts[len(context)]
        discounted = sum(discounts[min(n, 3)] for n in counts)
        return (count - discounts[min(count, 3)] + discounted * shorter) / sum(counts)


def test_probabilities_are_those_of_a_second_implementation():
    text = sentences(1000, seed=2)
    tested = sentences(8, seed=3)
    tested.append([UNKNOWN, 5, UNKNOWN, 6])  # UNKNOWN does not occur in the text
    model = KneserNey(*flat(text), VOCABULARY, ORDER)
    naive = Naive(text)
    expected = []
    for sentence in tested:
        whole = (BOS, *sentence, EOS)
        contexts = [whole[max(0, place - ORDER + 1) : place] for place in range(1, len(whole))]
        expected += [1, *map(naive.probability, whole[1:], contexts)]
    np.testing.assert_allclose(model.probabilities(*flat(tested)), expected, rtol=1e-9)


@pytest.mark.parametrize("context", [[], [5], [4, 5, 6], [UNKNOWN], [39, 38, 37, 36, 35]])
def test_probabilities_sum_to_one(context):
    model = KneserNey(*flat(sentences(1000, seed=2)), VOCABULARY, ORDER)
    probabilities = model.probabilities(*flat([[*context, token] for token in range(VOCABULARY)]))
    last = probabilities.reshape(VOCABULARY, -1)[:, -2]  # </s> follows
    assert (last > 0).all()
    assert last.sum() == pytest.approx(1)


def test_bits_are_sums_over_a_sentence():
    text = sentences(1000, seed=2)
    tested = sentences(3, seed=3)
    model = KneserNey(*flat(text), VOCABULARY, ORDER)
    expected = []
    for sentence in tested:
        probabilities = model.probabilities(*flat([sentence]))
        expected.append(-np.log2(probabilities).sum())
    np.testing.assert_allclose(model.bits(*flat(tested)), expected)


def test_discounts_follow_from_counts_of_counts():
    counts = np.repeat([1, 2, 3, 4, 9], [40, 20, 10, 5, 3])
    assert discounts(counts) == pytest.approx([0, 0.5, 1.25, 2])
    np.testing.assert_array_equal(discounts(counts[counts != 3]), DEFAULT_DISCOUNTS)
    negative = np.repeat([1, 2, 3, 4], [10, 10, 30, 5])  # the second would be -1
    np.testing.assert_array_equal(discounts(negative), DEFAULT_DISCOUNTS)
    zero = np.repeat([1, 2, 3], [10, 10, 20])
    np.testing.assert_array_equal(discounts(zero), DEFAULT_DISCOUNTS)


def test_words_are_without_case_and_punctuation():
    assert ngrams.words('"Who" isn\'t -- THERE?') == ["who", "isn't", "there"]


@pytest.fixture
def place(prepared, tmp_path):
    """A folder with pairs, half of them with a rare word, and an encoder's records; arguments."""
    lines = (prepared.parent / "train.txt").read_text().splitlines()
    chosen = [line for line in dict.fromkeys(lines) if 3 < len(line.split()) < 8][:20]
    (tmp_path / "made").mkdir()
    for paradigm, added in {"a": " kan", "b": " kan onceonly"}.items():
        names = {"linguistics_term": "term", "UID": paradigm}
        pairs = [{"sentence_good": line, "sentence_bad": line + added} for line in chosen]
        written = "\n".join(json.dumps({**pair, **names}) for pair in pairs)
        (tmp_path / "made" / f"{paradigm}.jsonl").write_text(written)
    pairs = read_pairs(str(tmp_path / "made"))
    decisions = np.repeat([1.0, 0.0], 20)
    arrays = {PAIRS_FEATURE: decisions, GROUPS_KEY: pairs.groups}
    encoder = ModelRecord(str(tmp_path / "encoder-1.npz"), "an encoder")
    encoder.write("made", PAIRS_FEATURE, {"pairs": pairs.sha256}, arrays)
    (tmp_path / "text.txt").write_text("\n".join([*lines, "onceonly"]))
    arguments = ["--text", tmp_path / "text.txt", "--data", prepared, "--pairs", tmp_path / "made"]
    return tmp_path, [*arguments, "--dest", tmp_path / "out", "--records", encoder.path]


def test_models_of_the_text_stand_beside_encoders(place, capsys):
    folder, arguments = place
    run_main(ngrams.main, *arguments, "--twice")
    printed = capsys.readouterr().out
    assert printed.startswith("40 pairs; 20 of known words, each 2 times or more in the text.")
    assert (folder / "out" / "ngrams.md").read_text().count(printed.strip()) == 1
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["unigrams", "kneser_ney", "encoder-1"]
    assert rows[0] == ["model", "all pairs", "from", "to", "known words"]
    encoder = list(map(float, rows[-1][1:]))
    assert encoder == [50, 0, 100, 100]  # two paradigms, one of them right
    table = pd.read_csv(folder / "out" / "ngrams.csv")
    assert list(table) == SCORE_COLUMNS
    scores = table.set_index(["model", "task", "feature"]).value
    assert scores["unigrams", "made", "pairs"] == 100  # the good sentence is shorter
    assert scores["encoder-1", "made", "pairs: term/b"] == 0
    assert ("encoder-1", "made, known words", "pairs: term/b") not in scores
    with np.load(folder / "encoder-1.npz") as arrays:
        assert not [name for name in arrays if "known words" in name]


def test_what_is_recorded_is_not_computed_again(place, monkeypatch):
    folder, arguments = place
    run_main(ngrams.main, *arguments)
    monkeypatch.setattr(ngrams, "NGRAM_MODELS", dict.fromkeys(ngrams.NGRAM_MODELS))
    before = (folder / "out" / "ngrams.csv").read_bytes()
    run_main(ngrams.main, *arguments)
    assert (folder / "out" / "ngrams.csv").read_bytes() == before
    (folder / "text.txt").write_text("another text")
    assert "unigrams.npz" in error_of(ngrams.main, *arguments)


def test_records_of_other_pairs_are_refused(place):
    folder, arguments = place
    (folder / "made").rename(folder / "other")
    renamed = [*arguments, "--pairs", folder / "other"]
    message = "encoder-1.npz: found no pairs called other, expected some; evaluate it with --pairs"
    assert message in error_of(ngrams.main, *renamed)


def test_records_need_names_of_their_own(place):
    folder, arguments = place
    (folder / "encoder-1.npz").rename(folder / "unigrams.npz")
    renamed = [*arguments[:-1], folder / "unigrams.npz"]
    message = "--records: found unigrams, kneser_ney, unigrams, expected different names"
    assert message in error_of(ngrams.main, *renamed)


def test_pairs_need_known_words(place):
    folder, arguments = place
    (folder / "text.txt").write_text("nothing of them")
    message = "made: found no pair whose words all occur 2 times in"
    assert message in error_of(ngrams.main, *arguments, "--twice")


def test_a_text_without_words_is_refused(place):
    folder, arguments = place
    (folder / "text.txt").write_text("\n \n")
    assert "text.txt: found no words, expected the text" in error_of(ngrams.main, *arguments)


def test_unigrams_are_frequencies_of_tokens(place):
    folder, arguments = place
    _, tokenizer = load_dictionary_and_tokenizer(arguments[3])
    counts = collections.Counter(tokenizer.encode("kan lo kan"))
    tokens, sizes = tokenizer.encode_plain_text(["kan lo", "kan"])
    model = ngrams.Unigrams(tokens, sizes, len(tokenizer.symbols))
    total = len(tokens) + len(tokenizer.symbols)
    expected = [-np.log2((counts[token] + 1) / total) for token in tokenizer.encode("lo kan")]
    bits = model.bits(*tokenizer.encode_plain_text(["", "lo kan"]))
    assert bits == pytest.approx([0, sum(expected)])


def test_texts_that_share_neighbouring_words_with_a_file_are_found(tmp_path):
    """Case and punctuation do not count; words of two lines are no neighbours."""
    (tmp_path / "text").write_text("One two, three four.\nfive six seven\n")
    texts = ["so: TWO three four!", "four five six", "two four three", "", "three four"]
    overlapping = ngrams.overlapping(texts, str(tmp_path / "text"), size=3)
    assert overlapping.tolist() == [True, False, False, False, False]
