"""Turns sentences into three probes of what an encoder knows about word order, which words fit, and
agreement.

Half of the sentences stay as they are, and half are corrupted: in `bigram_shift` two adjacent words
are swapped, in `replaced_word` one word is replaced by another (Conneau et al., 2018, section 3).
`agreement` has minimal pairs: each sentence as it is, and with one word in the form that does not
agree with the next or the last one (as in BLiMP, Warstadt et al., 2020, but made from real
sentences). Everything follows from hashes of the sentences: the same sentences give the same
examples on every machine.
"""

import re
from itertools import chain, islice

from .stable_hash import stable_number

LABELS = ["original", "corrupted"]
SENTENCE_LENGTHS = range(5, 29)  # the lengths of Conneau et al.
AGREEMENT_PAIRS = 2000  # of `agreement`

PLURAL_OF_SINGULAR = {
    "is": "are",
    "was": "were",
    "has": "have",
    "does": "do",
    "isn't": "aren't",
    "wasn't": "weren't",
}
SINGULAR_OF_PLURAL = {plural: singular for singular, plural in PLURAL_OF_SINGULAR.items()}
SINGULAR_SUBJECTS = set(
    "he she it movie film story plot acting script show director ending scene character".split()
)
PLURAL_SUBJECTS = set(
    "they we movies films stories actors scenes characters people effects performances".split()
)


def is_plain(word):
    """Whether a word can be moved or replaced without a trace in capitals or punctuation."""
    return word.isalpha() and word.islower()


def usable_word_lists(sentences):
    """The words of each different sentence that has a usual length: list of lists."""
    different = dict.fromkeys(tuple(sentence.split()) for sentence in sentences)
    return [list(words) for words in different if len(words) in SENTENCE_LENGTHS]


def choose_changed(candidates, name):
    """Yields (words, index, whether to corrupt) of (words, indices of words that can be changed).

    Every second one, in the order of their hashes, is to be corrupted. Those without indices
    are left out. Each probe has an order of its own, by its name.
    """
    hashed = []
    for words, indices in candidates:
        if indices:
            hashed.append((stable_number(name, *words), words, indices))
    for rank, (number, words, indices) in enumerate(sorted(hashed)):
        yield words, indices[number % len(indices)], rank % 2 == 1


def bigram_shift(sentences):
    """Yields (sentence, label); in a corrupted one two adjacent words are swapped."""
    candidates = []
    for words in usable_word_lists(sentences):
        indices = []
        for i, (word, following) in enumerate(zip(words, words[1:])):
            can_be_swapped = is_plain(word) and is_plain(following) and word != following
            if i > 0 and can_be_swapped:
                indices.append(i)
        candidates.append((words, indices))
    for words, index, corrupt in choose_changed(candidates, "bigram_shift"):
        if corrupt:
            words = [*words[:index], words[index + 1], words[index], *words[index + 2 :]]
        yield " ".join(words), LABELS[corrupt]


def replaced_word(sentences):
    """Yields (sentence, label); in a corrupted one, one word is replaced.

    The new word comes from a random place in all sentences. So corrupted sentences have the word
    frequencies of the original ones.
    """
    candidates = []
    for words in usable_word_lists(sentences):
        indices = [i for i, word in enumerate(words) if i > 0 and is_plain(word)]
        candidates.append((words, indices))
    pool = [words[index] for words, indices in candidates for index in indices]
    for words, index, corrupt in choose_changed(candidates, "replaced_word"):
        if corrupt:
            start = stable_number("new word", *words) % len(pool)
            others = (pool[(start + i) % len(pool)] for i in range(len(pool)))
            new = next(word for word in others if word != words[index])
            words = [*words[:index], new, *words[index + 1 :]]
        yield " ".join(words), LABELS[corrupt]


def other_verb(before, word, after):
    """The form of a verb that does not agree with the subject before it; None for no such verb."""
    if before in SINGULAR_SUBJECTS:
        return PLURAL_OF_SINGULAR.get(word)
    return SINGULAR_OF_PLURAL.get(word) if before in PLURAL_SUBJECTS else None


def other_demonstrative(before, word, after):
    """`these` for `this` and the reverse, before a word that may be a noun in the right number."""
    if word == "this" and is_plain(after) and not after.endswith("s"):
        return "these"
    return "this" if word == "these" and is_plain(after) else None


def other_article(before, word, after):
    """`an` for `a` and the reverse, before a letter that is spoken as it is written."""
    if word == "a" and re.match("[bcdfgjklmnpqrstvwyz]", after):
        return "an"
    return "a" if word == "an" and re.match("[aei]", after) else None


def agreement(sentences):
    """Yields (sentence, label, original sentence).

    Of each of AGREEMENT_PAIRS pairs the first is the original, the second has a word that does not
    agree. Demonstratives and verbs, the rarer two, have up to a third of the pairs each. A sentence
    is in one pair at most.
    """
    pairs = {other_demonstrative: [], other_verb: [], other_article: []}
    max_examples = AGREEMENT_PAIRS // 3
    for words in sorted(
        usable_word_lists(sentences), key=lambda words: stable_number("agreement", *words)
    ):
        for rule, examples in pairs.items():
            forms = {i: rule(*words[i - 1 : i + 2]) for i in range(1, len(words) - 1)}
            indices = [i for i, form in forms.items() if form]
            has_room = len(examples) < max_examples or rule is other_article
            if indices and has_room:
                index = indices[stable_number(*words) % len(indices)]
                examples.append((words, [*words[:index], forms[index], *words[index + 1 :]]))
                break
    all_pairs = chain.from_iterable(pairs.values())
    for pair in islice(all_pairs, AGREEMENT_PAIRS):
        for words, label in zip(pair, LABELS):
            yield " ".join(words), label, " ".join(pair[0])
