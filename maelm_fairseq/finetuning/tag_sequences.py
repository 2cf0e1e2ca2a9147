"""The most probable sequence of a sentence's tags, in which every entity begins before it goes on.

In BIO, I-X follows only B-X or I-X. In BIOES and BILOU, which also mark the ends of entities, so
does E-X or L-X, and no entity is left without its end. Each type of entity may have its own scheme.

Letters in shapes: T words of a sentence, K tags.
"""

import functools

import numpy as np

from ..metrics import has_entities

OPENING = ("B", "I")  # prefixes of words after which an entity may go on
CONTINUING = ("I", "E", "L")
ENDS = ("E", "L")  # prefixes of the last word of an entity, in schemes that mark it
# Costs, beside those of unlikely tags, which are up to hundreds of nats: an illegal sequence is
# chosen only if all others have a tag of probability 0.
ILLEGAL_COST = 1e6
IMPOSSIBLE_COST = 1e9
MAX_ILLEGAL = 0.01  # the share of sentences with illegal tags that counts as mistakes


@functools.lru_cache(maxsize=None)
def legal_transitions(labels):
    """Which tag may follow which: bool (K + 1, K + 1).

    The last row is the beginning of a sentence, and the last column its end.

    Args:
        labels: tuple of K tags
    """
    tags = [label.partition("-")[::2] for label in [*labels, "O"]]  # (prefix, type of entity)
    types_with_ends = {entity for prefix, entity in tags if prefix in ENDS}
    legal = np.ones((len(tags), len(tags)), dtype=bool)
    for i, (before, entity_before) in enumerate(tags):
        for j, (after, entity_after) in enumerate(tags):
            goes_on = before in OPENING and after in CONTINUING and entity_before == entity_after
            is_to_end = before in OPENING and entity_before in types_with_ends
            if after in CONTINUING or is_to_end:
                legal[i, j] = goes_on
    return legal


def first_illegal_word(indices, legal):
    """The index of the first word whose tag may not stand where it does; None if all may.

    Args:
        indices: of the tags of a sentence's words, (T,)
        legal: of `legal_transitions`
    """
    boundary = len(legal) - 1
    with_boundaries = np.concatenate([[boundary], indices, [boundary]]).astype(int)
    (illegal,) = np.nonzero(~legal[with_boundaries[:-1], with_boundaries[1:]])
    # Where an entity is not ended, its last word is to blame.
    return min(int(illegal[0]), len(indices) - 1) if len(illegal) else None


def find_illegal(sentences, labels):
    """The sentences whose tags are not legal: {index: index of the first word that is to blame}.

    Args:
        sentences: the tags of each sentence
        labels: all tags
    """
    index_of = {label: index for index, label in enumerate(labels)}
    legal = legal_transitions(tuple(labels))
    illegal = {}
    for i, tags in enumerate(sentences):
        word = first_illegal_word([index_of[tag] for tag in tags], legal)
        if word is not None:
            illegal[i] = word
    return illegal


def are_legal(sentences, labels):
    """Whether tags are of entities, and those of almost all sentences legal (not so in IOB1).

    Args:
        sentences: the tags of each sentence
        labels: all tags
    """
    if not has_entities(labels):
        return False
    return len(find_illegal(sentences, labels)) <= MAX_ILLEGAL * len(sentences)


def most_probable_tags(probabilities, labels, only_legal):
    """The tags of a sentence, a list of T.

    Args:
        probabilities: (T, K)
        labels: K tags
        only_legal: take the most probable legal sequence; else, each word's most probable tag
    """
    indices = np.asarray(probabilities).argmax(axis=1)
    if only_legal:
        legal = legal_transitions(tuple(labels))
        if first_illegal_word(indices, legal) is not None:
            indices = cheapest_sequence(np.asarray(probabilities, np.float64), legal)
    return [labels[index] for index in indices]


def cheapest_sequence(probabilities, legal):
    """The indices (T,) of the most probable legal sequence, by Viterbi's algorithm."""
    with np.errstate(divide="ignore"):  # about probabilities of 0
        costs = np.minimum(-np.log(probabilities), IMPOSSIBLE_COST)
    transitions = np.where(legal, 0, ILLEGAL_COST)
    boundary = len(legal) - 1
    totals = costs[0] + transitions[boundary, :boundary]
    best_before = []  # of each tag of each word but the first
    for costs_of_word in costs[1:]:
        candidates = totals[:, None] + transitions[:boundary, :boundary]
        best_before.append(candidates.argmin(axis=0))
        totals = candidates.min(axis=0) + costs_of_word
    index = (totals + transitions[:boundary, boundary]).argmin()
    indices = [index]
    for best in reversed(best_before):
        index = best[index]
        indices.append(index)
    return indices[::-1]
