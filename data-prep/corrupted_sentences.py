"""Turns sentences into two probes of what an encoder knows about word order and about which words fit.

Half of the sentences stay as they are, and half are corrupted: in `bigram_shift` two adjacent words are swapped, in
`replaced_word` one word is replaced by another (Conneau et al., 2018, section 3). Everything follows from hashes of the
sentences: the same sentences give the same examples on every machine.
"""

import hashlib

LABELS = ["original", "corrupted"]
WORDS = range(5, 29)  # the lengths of Conneau et al.


def number_of(*parts):
    """A number that is the same on every machine: the MD5 of some strings."""
    return int(hashlib.md5("\t".join(parts).encode("utf-8")).hexdigest(), 16)


def is_plain(word):
    """Whether a word can be moved or replaced without leaving a trace in capitals or punctuation."""
    return word.isalpha() and word.islower()


def usable(sentences):
    """The words of each different sentence that has a usual length: list of lists."""
    found = dict.fromkeys(tuple(sentence.split()) for sentence in sentences)
    return [list(words) for words in found if len(words) in WORDS]


def balanced(candidates, name):
    """Yields (words, place, whether to corrupt): every second sentence in the order of their hashes.

    Args:
        candidates: list of (words, places); those without places are left out
        name: of the probe, so that each has its own order
    """
    ordered = sorted((number_of(name, *words), words, places) for words, places in candidates if places)
    for rank, (number, words, places) in enumerate(ordered):
        yield words, places[number % len(places)], rank % 2 == 1


def bigram_shift(sentences):
    """Yields (sentence, label); in a corrupted one two adjacent words are swapped."""
    candidates = []
    for words in usable(sentences):
        pairs = enumerate(zip(words, words[1:]))
        candidates.append((words, [i for i, (a, b) in pairs if i and a != b and is_plain(a) and is_plain(b)]))
    for words, place, corrupt in balanced(candidates, "bigram_shift"):
        if corrupt:
            words = [*words[:place], words[place + 1], words[place], *words[place + 2 :]]
        yield " ".join(words), LABELS[corrupt]


def replaced_word(sentences):
    """Yields (sentence, label); in a corrupted one, one word is replaced.

    The new word comes from a random place in all sentences. So corrupted sentences have the word frequencies of the
    original ones.
    """
    candidates = [(words, [i for i, word in enumerate(words) if i and is_plain(word)]) for words in usable(sentences)]
    pool = [words[place] for words, places in candidates for place in places]
    for words, place, corrupt in balanced(candidates, "replaced_word"):
        if corrupt:
            start = number_of("new word", *words) % len(pool)
            others = (pool[(start + i) % len(pool)] for i in range(len(pool)))
            new = next(word for word in others if word != words[place])
            words = [*words[:place], new, *words[place + 1 :]]
        yield " ".join(words), LABELS[corrupt]
