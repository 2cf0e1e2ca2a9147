"""An n-gram model with interpolated modified Kneser-Ney smoothing (Chen and Goodman, 1998).

The probability of a token w after a context h of up to n - 1 tokens, with adjusted counts c:

    p(w | h) = (c(h w) - D(c(h w))) / c(h) + g(h) p(w | h')
    g(h) = sum over all v of D(c(h v)) / c(h)
    c(h) = sum over all v of c(h v)

where h' is h without its first token. If nothing follows h in the text, p(w | h) is p(w | h').
Below the empty context, each of the V tokens of the vocabulary has the probability 1 / V.

The adjusted count of an n-gram is the number of different tokens before it. Of the longest ones,
and of those that begin with <s>, before which there is none, it is the number of occurrences.

With n(i) n-grams of one length that have the adjusted count i, the discounts for this length are

    D(0) = 0
    D(i) = i - (i + 1) Y n(i + 1) / n(i), for i = 1, 2, 3
    D(i) = D(3), for i > 3
    Y = n(1) / (n(1) + 2 n(2))

Letters in shapes: S sentences, T tokens of all of them, G different n-grams of one length,
H contexts of one length.
"""

from dataclasses import dataclass

import numpy as np

from maelm_fairseq.base.tokenizer import BOS, EOS

DEFAULT_DISCOUNTS = [0, 0.5, 1, 1.5]  # for texts with too few n-grams to estimate them; as in KenLM


@dataclass
class Grams:
    """The different n-grams of one length in a text.

    The number of an n-gram is its place in `keys`. Its key is V times the number of the n-gram
    without the last token, plus that token.
    """

    keys: np.ndarray  # int64 (G,), sorted
    occurrences: np.ndarray  # int64 (G,)
    suffixes: np.ndarray  # int64 (G,), the number of each without its first token; of a token, 0


@dataclass
class Level:
    """The probabilities after contexts of one length."""

    keys: np.ndarray  # int64 (G,), of `Grams`
    parts: np.ndarray  # float64 (G,), the first term of p(w | h)
    weights: np.ndarray  # float64 (H,), g(h) of each context; 1 if nothing follows it in the text


class KneserNey:
    """The model of a text.

    Args:
        tokens: int64 (T,), those of all sentences, one after the other, without `<s>` and `</s>`
        sizes: (S,), how many of them each sentence has
        vocabulary: V
        order: n, the length of the longest n-grams, 2 or more
    """

    def __init__(self, tokens, sizes, vocabulary, order):
        self.vocabulary = vocabulary
        self.levels = []
        grams_by_length = count(tokens, sizes, vocabulary, order)
        contexts = 1  # number of n-grams that are one token shorter
        for grams, longer in zip(grams_by_length, [*grams_by_length[1:], None]):
            counts = adjusted(grams, longer)
            if grams is grams_by_length[0]:
                counts[BOS] = 0  # `<s>` is never predicted
            self.levels.append(smoothed(grams.keys, counts, grams.keys // vocabulary, contexts))
            contexts = len(grams.keys)

    def probabilities(self, tokens, sizes):
        """The probability of each token of sentences, given what precedes it.

        Args: tokens (T,) and sizes (S,), as of the text
        Returns: float64 (T + 2 S,), with `<s>` and `</s>` of each sentence; of `<s>`, 1
        """
        stream, _, positions = with_ends(tokens, sizes)
        lowest, *levels = self.levels
        p = lowest.parts[stream] + lowest.weights[0] / self.vocabulary
        numbers = stream  # of the n-gram of the current length that ends at each place, or -1
        for length, level in enumerate(levels, 2):
            contexts = np.where(positions >= length - 1, np.roll(numbers, 1), -1)
            is_known = contexts >= 0
            p = np.where(is_known, level.weights[contexts] * p, p)
            keys = contexts * self.vocabulary + stream
            numbers = np.searchsorted(level.keys, keys).clip(max=len(level.keys) - 1)
            occurs = is_known & (level.keys[numbers] == keys)
            p += np.where(occurs, level.parts[numbers], 0)
            numbers = np.where(occurs, numbers, -1)
        return np.where(positions == 0, 1, p)

    def bits(self, tokens, sizes):
        """The bits of sentences with `</s>`, float64 (S,); arguments as of `probabilities`."""
        _, sentences, _ = with_ends(tokens, sizes)
        return np.bincount(sentences, -np.log2(self.probabilities(tokens, sizes)))


def with_ends(tokens, sizes):
    """Sentences with `<s>` and `</s>`, one after the other.

    Returns: int64 (T + 2 S,) each
        tokens
        the number of the sentence that a token is in
        the place of a token in its sentence; of `<s>`, 0
    """
    sizes = np.asarray(sizes, np.int64)
    sentences = np.repeat(np.arange(len(sizes)), sizes + 2)
    starts = np.cumsum(sizes + 2) - sizes - 2
    positions = np.arange(len(sentences)) - starts[sentences]
    stream = np.full(len(sentences), EOS)
    stream[positions == 0] = BOS
    stream[(positions > 0) & (positions <= sizes[sentences])] = tokens
    return stream, sentences, positions


def count(tokens, sizes, vocabulary, order):
    """Counts the n-grams of a text; arguments as of `KneserNey`.

    Returns: list of `Grams`, of the lengths 1 to n
    """
    stream, _, positions = with_ends(tokens, sizes)
    occurrences = np.bincount(stream, minlength=vocabulary)
    grams = [Grams(np.arange(vocabulary), occurrences, np.zeros(vocabulary, np.int64))]
    numbers = stream  # of the n-gram of the current length that ends at each place
    for length in range(2, order + 1):
        ends = np.flatnonzero(positions >= length - 1)
        all_keys = numbers[ends - 1] * vocabulary + stream[ends]
        keys, first, inverse, occurrences = np.unique(all_keys, True, True, True)
        grams.append(Grams(keys, occurrences, numbers[ends[first]]))
        numbers = np.full(len(stream), -1)
        numbers[ends] = inverse
    return grams


def adjusted(grams, longer):
    """The adjusted counts of n-grams, int64 (G,).

    Args:
        grams: `Grams`
        longer: those with one more token; None if these are the longest
    """
    if longer is None:
        return grams.occurrences
    preceding = np.bincount(longer.suffixes, minlength=len(grams.keys))
    return np.where(preceding > 0, preceding, grams.occurrences)  # nothing precedes <s>


def smoothed(keys, counts, contexts, size):
    """The `Level` of n-grams.

    Args:
        keys: int64 (G,)
        counts: int64 (G,), adjusted
        contexts: int64 (G,), the number of the context of each
        size: H
    """
    discounted = discounts(counts)[counts.clip(max=3)]
    totals = np.bincount(contexts, counts, minlength=size)
    left_over = np.bincount(contexts, discounted, minlength=size)
    weights = np.divide(left_over, totals, out=np.ones(size), where=totals > 0)
    parts = (counts - discounted) / np.maximum(totals, 1)[contexts]
    return Level(keys, parts, weights)


def discounts(counts):
    """[D(0), D(1), D(2), D(3)] of n-grams of one length with these adjusted counts, int64 (G,).

    They are DEFAULT_DISCOUNTS instead unless each D(i) is above 0 and at most i.
    """
    n = np.bincount(counts[counts < 5], minlength=5)
    if not n[1:4].all():
        return np.array(DEFAULT_DISCOUNTS)
    i = np.arange(1, 4)
    estimated = i - (i + 1) * n[1] / (n[1] + 2 * n[2]) * n[2:] / n[1:4]
    # A discount of 0 would leave nothing for other tokens.
    is_usable = ((0 < estimated) & (estimated <= i)).all()
    return np.array([0, *estimated] if is_usable else DEFAULT_DISCOUNTS)
