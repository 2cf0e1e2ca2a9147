"""The vocabulary of prepared data: a given one, with words added to it, or one that is trained."""

import os

from ..base.errors import UsageError
from ..base.files import atomic_write
from ..base.sentencepiece_tokenizer import SENTENCEPIECE
from ..base.utf8 import read_lines
from ..base.vocabulary_files import read_tokenizer
from .manifest import release
from .progress import log_to_stderr
from .train_sentencepiece import train

# {bytes of text: the default from there on}. COCO-LM has 32,768 pieces for 16 GB, and 64,000 for
# 160 GB.
VOCAB_SIZES = {0: 8000, 10**8: 16000, 10**9: 32768, 10**11: 64000}
SHOWN_WORDS = 20


def default_vocab_size(paths):
    """The number of pieces for files of text."""
    size = sum(map(os.path.getsize, paths))
    return max(pieces for from_size, pieces in VOCAB_SIZES.items() if from_size <= size)


def load_given_tokenizer(path, added_words=None):
    """The tokenizer of a vocabulary.

    Args:
        path: path of the vocabulary: a file or a folder
        added_words: path of a file with words that become tokens, one per line
    """
    tokenizer = read_tokenizer(path)
    if not added_words:
        return tokenizer
    words = read_words(added_words)
    extended = read_tokenizer(tokenizer.path, words)
    new = extended.words_added_to(tokenizer)
    present = [word for word in dict.fromkeys(words) if word not in new]
    for what, tokens in {"new tokens": new, "tokens already": present}.items():
        text = f"{added_words}: {len(tokens)} {what}"
        if tokens:
            text += ": " + ", ".join(tokens[:SHOWN_WORDS])
        if len(tokens) > SHOWN_WORDS:
            text += ", ..."
        log_to_stderr(text)
    return extended


def read_words(path):
    """The words of a file with one per line."""
    words = []
    for number, line in read_lines(path):
        if len(line.split()) > 1:
            raise UsageError(f"{path}: line {number}: found {line.strip()!r}, expected one word")
        words += line.split()
    if not words:
        raise UsageError(f"{path}: found no words, expected one per line")
    return words


def load_or_train_tokenizer(dest, paths, options):
    """The tokenizer of the SentencePiece model in a folder, which is trained unless it exists.

    Several processes may do so at once: the same text and options give the same model.

    Args:
        dest: the folder, with a manifest
        paths: files of text to train on
        options: `manifest.PreparationOptions`
    """
    model = os.path.join(dest, SENTENCEPIECE)
    log = os.path.join(dest, "sentencepiece.log")
    if not os.path.exists(model):
        try:
            train(paths, model, log, options)
        except UsageError:
            release(dest)  # there are no data yet: the corrected command can start afresh
            raise
    return read_tokenizer(model)


def write_vocabulary_files(tokenizer, folder):
    """Writes vocabulary and dict.txt into a folder unless they exist.

    Returns: the path of the vocabulary
    """
    vocabulary_path = os.path.join(folder, tokenizer.file_name)
    dictionary_path = os.path.join(folder, "dict.txt")
    files = {
        vocabulary_path: tokenizer.file_bytes(),
        dictionary_path: tokenizer.dict_text().encode(),
    }
    for path, contents in files.items():
        if not os.path.exists(path):
            with atomic_write(path, "wb") as stream:
                stream.write(contents)
    return vocabulary_path
