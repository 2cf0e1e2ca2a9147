"""Vocabularies that tests train or make up, and text for them."""

import random

import sentencepiece
from fairseq.data import Dictionary

from conftest import documents

SYMBOLS = [*".,!?'\"-()\u2026\u00bd\u2122", "...", "1999", "1,000", "3.5", "don't"]


def text(seed, count=40):
    """Lines of generated words.

    Some are in capitals, some have digits, punctuation, accents and signs beside or within them.
    """
    rng = random.Random(seed)
    lines = []
    for document in documents(count, seed):
        for line in document:
            words = [varied(word, rng) for word in line.split()]
            lines.append(" ".join(words))
    return lines


def varied(word, rng):
    if rng.random() < 0.2:
        word = word.capitalize()
    if rng.random() < 0.3:
        word += rng.choice(["", " ", *SYMBOLS])
    if rng.random() < 0.1:
        word = rng.choice(SYMBOLS) + word
    return word


def vocabulary(folder, name="nmt_nfkc_cf", kind="bpe", lines=None, **options):
    """Trains a SentencePiece model into a new folder, with its dict.txt; returns the folder."""
    folder.mkdir()
    defaults = {"vocab_size": 180, "hard_vocab_limit": False, "character_coverage": 0.9995}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines or text(1)),
        model_prefix=str(folder / "sentencepiece"),
        model_type=kind,
        normalization_rule_name=name,
        **{**defaults, "minloglevel": 2, **options},
    )
    model_file = str(folder / "sentencepiece.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=model_file)
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    dictionary = "".join(f"{piece} 1\n" for piece in pieces)
    (folder / "dict.txt").write_text(dictionary, encoding="utf-8")
    return folder


def dictionary(*symbols):
    filled = Dictionary()
    for symbol in [*symbols, "<mask>"]:
        filled.add_symbol(symbol)
    return filled
