"""The most probable sequence of a sentence's tags, in which every entity begins before it goes on.

In BIO, I-X follows only B-X or I-X. In BIOES and BILOU, which also mark the ends of entities, so
does E-X or L-X, and no entity is left without its end.

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


@functools.lru_cache(maxsize=None)
def legal_transitions(labels):
    """Which tag may follow which: bool (K + 1, K + 1).

    The last row is the beginning of a sentence, and the last column its end.

    Args:
        labels: tuple of K tags
    """
    tags = [label.partition("-")[::2] for label in [*labels, "O"]]  # (prefix, type of entity)
    marks_ends = any(prefix in ENDS for prefix, _ in tags)
    legal = np.ones((len(tags), len(tags)), dtype=bool)
    for i, (before, entity_before) in enumerate(tags):
        for j, (after, entity_after) in enumerate(tags):
            goes_on = before in OPENING and after in CONTINUING and entity_before == entity_after
            if after in CONTINUING or (marks_ends and before in OPENING):
                legal[i, j] = goes_on
    return legal


def is_legal(indices, legal):
    """Whether a sentence's tags, by their indices (T,), make a legal sequence."""
    boundary = len(legal) - 1
    with_boundaries = np.concatenate([[boundary], indices, [boundary]]).astype(int)
    return bool(legal[with_boundaries[:-1], with_boundaries[1:]].all())


def are_legal(sentences, labels):
    """Whether tags are of entities, and all sequences of them are legal, as they are not in IOB1.

    Args:
        sentences: the tags of each sentence
        labels: all tags
    """
    if not has_entities(labels):
        return False
    index_of = {label: index for index, label in enumerate(labels)}
    legal = legal_transitions(tuple(labels))
    return all(is_legal([index_of[tag] for tag in tags], legal) for tags in sentences)


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
        if not is_legal(indices, legal):
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
