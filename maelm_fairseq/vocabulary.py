"""The vocabulary: fairseq's dictionary and the SentencePiece model that belongs to it."""

import hashlib
import os

import numpy as np
import sentencepiece
import torch
from fairseq.data import Dictionary

from .errors import MissingFileError, UsageError

MASK = "<mask>"
WORD_START = "\u2581"  # SentencePiece's mark


def load_dictionary(folder):
    """Reads `dict.txt` of a folder of binarized data, and adds `<mask>`.

    Raises:
        FileNotFoundError: there is no such folder, or no dict.txt in it
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.exists(path):
        reason = "the folder is empty or has no dict.txt" if os.path.isdir(folder) else "no such folder"
        raise MissingFileError(
            f"{path}: not found ({reason}); expected data written by data-prep/prepare.sh or fairseq-preprocess"
        )
    dictionary = Dictionary.load(path)
    dictionary.add_symbol(MASK)
    return dictionary


def load_sentencepiece(model_file, dictionary):
    """Reads the SentencePiece model of a dictionary; fairseq's token is SentencePiece's id + 1.

    Raises:
        ValueError: not a SentencePiece model, or its pieces are not those of the dictionary
    """
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=model_file)
    except (RuntimeError, OSError):
        raise UsageError(f"{model_file}: not a SentencePiece model; expected that of the dict.txt beside it") from None
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    if pieces != dictionary.symbols[dictionary.nspecial : -1]:
        raise UsageError(
            f"{model_file}: its {len(pieces):,} pieces differ from those of the dict.txt beside it, or their order "
            "does; use the two files of one run of data-prep/prepare.sh"
        )
    return processor


def word_starts(dictionary):
    """Which symbols begin a word: bool (N,). Special symbols are words of their own.

    Raises:
        ValueError: no symbol begins a word
    """
    if not any(symbol.startswith(WORD_START) for symbol in dictionary.symbols):
        raise UsageError(
            f"--mask-whole-words needs a SentencePiece vocabulary, but no symbol of dict.txt begins with {WORD_START!r}"
        )
    return np.array(
        [
            i < dictionary.nspecial or symbol.startswith(WORD_START) or symbol == MASK
            for i, symbol in enumerate(dictionary.symbols)
        ]
    )


def fingerprint(dictionary):
    """A number that identifies a vocabulary: int64 scalar."""
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode()).digest()
    return torch.tensor(int.from_bytes(digest[:8], "little", signed=True))
