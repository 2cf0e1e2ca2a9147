"""The vocabulary: fairseq's dictionary, and the subwords that belong to it."""

import contextlib
import hashlib
import io
import os

from .base import words
from .base.byte_level_tokenizer import TOKENIZER_JSON
from .base.errors import MissingFileError, UsageError
from .base.opening import as_usage_error, open_to_read
from .base.sentencepiece_tokenizer import SENTENCEPIECE
from .base.tokenizer import MASK
from .base.vocabulary_files import read_tokenizer
from .fairseq_api import Dictionary

FINGERPRINT = "dictionary_fingerprint"  # its name in checkpoints


def load_dictionary(folder):
    """Reads `dict.txt` of a folder of binarized data, and adds `<mask>`.

    Raises:
        FileNotFoundError: there is no such folder, or no dict.txt in it
        UsageError: dict.txt is damaged, or empty
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.exists(path):
        reason = "no such folder"
        if os.path.isdir(folder):
            reason = "the folder is empty or has no dict.txt"
        raise MissingFileError(
            f"{path}: not found ({reason}); "
            "expected data written by data-prep/prepare.sh or fairseq-preprocess"
        )
    expected = "a dictionary: a line `symbol count` for each symbol, in UTF-8, none of them twice"
    advice = "use the file that was written with the data, unchanged"
    with open_to_read(path) as stream, as_usage_error(path, expected, advice):
        dictionary = Dictionary.load(io.TextIOWrapper(stream, "utf-8"))
    if len(dictionary) == dictionary.nspecial:
        raise UsageError(
            f"{path}: empty, expected a line `piece count` for each piece; prepare the data again"
        )
    dictionary.add_symbol(MASK)
    return dictionary


def load_dictionary_and_tokenizer(folder):
    """A data folder -> dictionary, `tokenizer.Tokenizer`.

    Raises:
        FileNotFoundError: there is no `dict.txt`, or neither `sentencepiece.model` nor
            `tokenizer.json`
        UsageError: they cannot be used, or do not belong together
        ImportError: the package tokenizers is missing
    """
    dictionary = load_dictionary(folder)
    paths = [os.path.join(folder, name) for name in [SENTENCEPIECE, TOKENIZER_JSON]]
    path = next(filter(os.path.isfile, paths), None)
    if path is None:
        raise MissingFileError(
            f"{paths[0]}: not found, nor {TOKENIZER_JSON}; "
            "expected the vocabulary whose pieces dict.txt lists, in its order: copy it there; "
            "if fairseq-preprocess made dict.txt, "
            "pretrain on text that data-prep/prepare.sh prepared"
        )
    tokenizer = read_tokenizer(path)
    if tokenizer.symbols != dictionary.symbols:
        raise UsageError(
            f"{path}: its {len(tokenizer.symbols):,} symbols differ from those of "
            "the dict.txt beside it, or their order does; "
            "use the two files of one run of data-prep/prepare.sh"
        )
    return dictionary, tokenizer


def checked_dictionary(folder):
    """As `load_dictionary`; compares it with the vocabulary beside it, if one can be read.

    Pretraining needs no vocabulary, but a model is of no use without the one that its dictionary
    was made from.
    """
    paths = [os.path.join(folder, name) for name in [SENTENCEPIECE, TOKENIZER_JSON]]
    if any(map(os.path.lexists, paths)):
        with contextlib.suppress(ModuleNotFoundError):  # the package tokenizers
            return load_dictionary_and_tokenizer(folder)[0]
    return load_dictionary(folder)


def dictionary_word_starts(dictionary):
    """Which symbols begin a word, as `words.word_starts` says: bool (N,).

    Special symbols are words of their own; after them, a word begins, too.
    """
    starts = words.word_starts(dictionary.symbols)
    special = [*range(dictionary.nspecial), dictionary.index(MASK)]
    starts[special] = True
    return starts


def fingerprint(dictionary):
    """A number of 64 bits that identifies a vocabulary.

    Checkpoints have it in the state of their task.
    """
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
