"""The vocabulary in a file or a folder, of either kind."""

import os

from .byte_level_tokenizer import PUBLISHED_SENTENCEPIECE, TOKENIZER_JSON, ByteLevelTokenizer
from .errors import MissingFileError, UsageError
from .sentencepiece_tokenizer import SENTENCEPIECE, SentencePieceTokenizer

# The names under which vocabularies are published, best first.
VOCABULARY_FILES = [PUBLISHED_SENTENCEPIECE, SENTENCEPIECE, "spiece.model", TOKENIZER_JSON]


def read_tokenizer(path, added=()):
    """The vocabulary in a file, or in a folder under one of `VOCABULARY_FILES`.

    Args:
        path: path of a SentencePiece model, of a tokenizer.json, or of a folder
        added: words for new tokens, of a tokenizer.json only
    Returns: `SentencePieceTokenizer` or `ByteLevelTokenizer`
    Raises:
        FileNotFoundError: there is none
        UsageError: it cannot be used
        ImportError: the package tokenizers is missing
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        paths = [os.path.join(path, name) for name in VOCABULARY_FILES]
        files = list(filter(os.path.isfile, paths))
        if not files:
            *first_names, last_name = VOCABULARY_FILES
            expected = f"{', '.join(first_names)} or {last_name}"
            raise MissingFileError(
                f"{path}: no vocabulary, expected {expected}{advice_on_other_vocabularies(path)}"
            )
        path = files[0]
    if not os.path.isfile(path):
        raise MissingFileError(
            f"{path}: not found, expected a SentencePiece model, a {TOKENIZER_JSON}, or a folder "
            "with either; download a model from the Hugging Face Hub first, for "
            "example with `hf download NAME --local-dir DIR`"
        )
    if path.endswith(".json"):
        return ByteLevelTokenizer(path, added)
    if added:
        raise UsageError(
            f"{path}: words can be added to a {TOKENIZER_JSON}, not to a SentencePiece model"
        )
    return SentencePieceTokenizer(path)


def advice_on_other_vocabularies(folder):
    """What to do about a folder with a vocabulary in another form, as the end of a message."""
    names = set(os.listdir(folder))
    if "bpe.codes" in names:
        return "; found bpe.codes, fastBPE's, which cannot be used: take another model"
    if {"vocab.json", "merges.txt"} <= names:
        return (
            "; found vocab.json and merges.txt: let transformers write them as tokenizer.json, "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    if "vocab.txt" in names:
        return "; found vocab.txt, WordPiece, which cannot be used: take another model"
    return ""
