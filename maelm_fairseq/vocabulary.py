"""The vocabulary: fairseq's dictionary and the SentencePiece model that belongs to it."""

import hashlib
import os

import numpy as np
import sentencepiece

from .base.errors import MissingFileError, UsageError
from .engine import Dictionary

MASK = "<mask>"
FINGERPRINT = "dictionary_fingerprint"  # its name in checkpoints
WORD_START = "\u2581"  # SentencePiece's mark
PRIVATE_USE = range(0xE000, 0xF900)  # code points without a meaning: hardly any is in a vocabulary


def load_dictionary(folder):
    """Reads `dict.txt` of a folder of binarized data, and adds `<mask>`.

    Raises:
        FileNotFoundError: there is no such folder, or no dict.txt in it
        ValueError: dict.txt is damaged, or empty
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.exists(path):
        reason = "the folder is empty or has no dict.txt" if os.path.isdir(folder) else "no such folder"
        raise MissingFileError(
            f"{path}: not found ({reason}); expected data written by data-prep/prepare.sh or fairseq-preprocess"
        )
    dictionary = read_symbols(path)
    if len(dictionary) == dictionary.nspecial:
        raise UsageError(f"{path}: empty, expected a line `piece count` for each piece; prepare the data again")
    dictionary.add_symbol(MASK)
    return dictionary


def read_symbols(path):
    """Reads a file of lines `symbol count` as fairseq's Dictionary.

    Raises:
        ValueError: it is something else, not UTF-8, or has a symbol twice
    """
    try:
        return Dictionary.load(path)
    except Exception as error:  # fairseq raises Exception, ValueError and RuntimeError
        reason = (str(error).splitlines() or [type(error).__name__])[0].partition(". ")[0]
        raise UsageError(
            f"{path}: not a dictionary ({reason}), expected a line `symbol count` for each symbol, in UTF-8, none of "
            "them twice; use the file that was written with the data, unchanged"
        ) from None


def read_labels(path, classes, fix):
    """The labels of a `label/dict.txt`, in order: list of str.

    Args:
        path: of the file
        classes: how many the head has
        fix: for the message: what to do
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is damaged, or has another number of labels
    """
    if not os.path.isfile(path):
        raise MissingFileError(f"{path}: not found, expected the names of the head's {classes} classes: {fix}")
    symbols = read_symbols(path)
    # fairseq-preprocess pads dictionaries to a multiple of eight.
    labels = [name for name in symbols.symbols[symbols.nspecial :] if not name.startswith("madeupword")]
    if len(labels) != classes:
        raise UsageError(
            f"{path}: {len(labels)} labels ({', '.join(labels)}), but the head has {classes} classes: {fix}"
        )
    return labels


def read_vocabulary(folder):
    """A data folder -> dictionary, SentencePieceProcessor.

    Raises:
        FileNotFoundError: there is no `dict.txt` or no `sentencepiece.model`
        ValueError: they cannot be used, or do not belong together
    """
    dictionary, model_file = load_dictionary(folder), os.path.join(folder, "sentencepiece.model")
    if not os.path.isfile(model_file):
        raise MissingFileError(
            f"{model_file}: not found; expected the SentencePiece model whose pieces dict.txt lists, in its order: "
            "copy it there; if fairseq-preprocess made dict.txt, pretrain on text that data-prep/prepare.sh prepared"
        )
    return dictionary, load_sentencepiece(model_file, dictionary)


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


class Tokenizer:
    """Text to tokens and back, with `<mask>` as a token; without `<s>` and `</s>`.

    Args:
        dictionary: fairseq's, with `<mask>`
        processor: SentencePieceProcessor, from :func:`load_sentencepiece`
    """

    def __init__(self, dictionary, processor):
        self.dictionary, self.processor = dictionary, processor
        unknown = processor.unk_id()
        # In no piece, so that it cannot join what follows: unknown, or spelled in bytes.
        self._guard = next(chr(code) for code in PRIVATE_USE if processor.piece_to_id(chr(code)) == unknown)

    def encode(self, text):
        """Text -> list of tokens."""
        first, *parts = text.split(MASK)
        tokens = self.tokens(self.processor.encode(first))
        for part in parts:
            encode = self.processor.encode if part[:1].isspace() else self._inside_word
            tokens += [self.dictionary.index(MASK), *self.tokens(encode(part))]
        return tokens

    def encode_all(self, texts):
        """The tokens of many texts, on all cores: list of lists; as :meth:`encode` of each."""
        plain = self.processor.encode(list(texts), num_threads=len(os.sched_getaffinity(0)))
        return [self.encode(text) if MASK in text else self.tokens(ids) for text, ids in zip(texts, plain)]

    def tokens(self, ids):
        """SentencePiece's ids -> tokens. Not by name: unknown text may be written like a symbol, such as "</s>"."""
        unknown = self.processor.unk_id()
        return [self.dictionary.unk() if i == unknown else i + 1 for i in ids]

    def _inside_word(self, text):
        """Text -> list of SentencePiece's ids of which the first does not begin a word, as the "." in "<mask>."."""
        # SentencePiece begins a word at the beginning of a text, but not after another character.
        before = self.processor.encode_as_pieces(self._guard)
        text = self._guard + text
        ids, last = self.processor.encode(text), len(before) - 1
        joined = self.processor.encode_as_pieces(text)[last] != before[last]  # by unknown characters behind it
        return ids[last:] if joined else ids[last + 1 :]

    def decode(self, tokens):
        """List of tokens -> text as normalised by SentencePiece; `<s>`, `</s>` and padding are skipped."""
        skipped = {self.dictionary.bos(), self.dictionary.eos(), self.dictionary.pad()}
        pieces = [self.dictionary[i] for i in tokens if i not in skipped]
        pieces = [WORD_START + MASK if piece == MASK else piece for piece in pieces]
        return self.processor.decode(pieces).replace(WORD_START + MASK, " " + MASK).strip()


def sequence(dictionary, parts, limit=None):
    """Joins the tokens of a text to `<s> a </s>`, or those of a pair to `<s> a </s> </s> b </s>`.

    Args:
        dictionary: fairseq's
        parts: one or two lists of tokens
        limit: how many tokens the sequence may have; the longest part loses some at its end. None for any number
    Returns:
        list of tokens; how many were cut
    """
    sizes = [len(part) for part in parts]
    room = sum(sizes) if limit is None else max(0, limit - 2 * len(parts))
    for _ in range(sum(sizes) - room):
        sizes[sizes.index(max(sizes))] -= 1
    bos, eos = dictionary.bos(), dictionary.eos()
    joined = [token for part, size in zip(parts, sizes) for token in (eos, *part[:size], eos)]
    return [bos, *joined[1:]], sum(map(len, parts)) - sum(sizes)


def word_sequences(tokenizer, words, limit):
    """The tokens of words, each encoded by itself, as sequences `<s> ... </s>` that are cut between words.

    Args:
        tokenizer: :class:`Tokenizer`
        words: list of strings; a word that is normalised to nothing becomes `<unk>`
        limit: tokens that a sequence may have; a word that alone has more is cut
    Yields:
        list of tokens; the place in it of the first token of each of its words
    """
    unknown, part, starts = [tokenizer.dictionary.unk()], [], []
    for tokens in tokenizer.encode_all(words):
        tokens = tokens or unknown
        if part and len(part) + len(tokens) > limit - 2:
            yield sequence(tokenizer.dictionary, [part], limit)[0], starts
            part, starts = [], []
        starts.append(1 + len(part))
        part += tokens
    if part:
        yield sequence(tokenizer.dictionary, [part], limit)[0], starts


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
    """A number that identifies a vocabulary, of 64 bits; checkpoints have it in the state of their task."""
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
