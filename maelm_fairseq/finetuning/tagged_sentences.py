"""Sentences of words with tags."""

from typing import List, NamedTuple

from ..base.errors import counted
from ..metrics import flatten


class Sentence(NamedTuple):
    words: List[str]
    tags: List[str]  # empty where a test file has none
    lines: List[int]  # of the words


def describe_sentences(sentences):
    """How many sentences and words there are, for the user."""
    words = sum(len(sentence.words) for sentence in sentences)
    return f"{counted(len(sentences), 'sentence')} of {counted(words, 'word')}"


def why_not_scored(sentences, labels):
    """Why a test file cannot be scored; None if it has tags, most of which occur in training.

    Tags that are all the same stand in for those that are withheld.
    """
    tags = flatten(sentence.tags for sentence in sentences)
    if not tags:
        return "it has no tags"
    if len(set(tags)) == 1:
        return f"all its tags are {tags[0]!r}"
    known = sum(tag in labels for tag in tags)
    if 2 * known <= len(tags):
        return f"of its {len(tags):,} tags, only {known:,} are tags of the training file"
    return None
