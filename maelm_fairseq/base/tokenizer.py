"""Text to tokens and back, whatever the vocabulary; and tokens as the sequences that a model reads.

A token is an id of fairseq's dictionary: `<s> <pad> </s> <unk>` are 0 to 3, and the other symbols,
`<mask>` among them, follow in the order of the vocabulary's own ids.
"""

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from itertools import chain

import numpy as np

from .errors import UsageError
from .words import word_starts

MASK = "<mask>"
SPECIAL_SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>"]
BOS, PAD, EOS, UNKNOWN = range(len(SPECIAL_SYMBOLS))


class Tokenizer(ABC):
    """What both kinds of vocabularies do.

    Attributes:
        path: path of the file
        file_name: what the file is called in a folder of data
        symbols: symbols of all tokens, in order, with `<mask>`: list of str
        mask_id: the token of `<mask>`
        trims_offsets: whether the exported tokenizer's offsets leave out the spaces around a token
    """

    trims_offsets = True

    @cached_property
    def word_starts(self):
        """Which tokens begin a word, as `words.word_starts` says."""
        return word_starts(self.symbols)

    def __init__(self, path, symbols):
        self.path = path
        self.symbols = symbols
        self.mask_id = symbols.index(MASK)
        for symbol, times in Counter(symbols).items():
            if times > 1 or symbol.split() != [symbol]:
                raise UsageError(
                    f"{path}: the piece {symbol!r} is a duplicate of another piece or of a special "
                    f"symbol ({' '.join([*SPECIAL_SYMBOLS, MASK])}), or contains white space, "
                    "which fairseq cannot store; use a vocabulary without it"
                )

    @abstractmethod
    def encode(self, text):
        """Text -> list of tokens, without `<s>` and `</s>`; `<mask>` in the text is a token."""

    def encode_all(self, texts):
        """Encodes several texts: one list of tokens for each, as from `encode`."""
        return [self.encode(text) for text in texts]

    def encode_words(self, words):
        """The tokens of words of a text, each encoded by itself: list of lists."""
        return self.encode_all(words)

    @abstractmethod
    def _plain_ids(self, lines):
        """The vocabulary's own ids of lines in which nothing is a symbol: list of lists."""

    def encode_plain_text(self, lines):
        """The tokens of lines in which nothing is a symbol.

        Returns: tokens, int64 (tokens,); how many each line has, int32 (lines,)
        """
        ids = self._plain_ids(lines)
        tokens = np.fromiter(chain.from_iterable(ids), np.int64)
        sizes = np.fromiter(map(len, ids), np.int32, len(ids))
        return tokens, sizes

    @abstractmethod
    def encode_with_offsets(self, text):
        """The tokens of a text, and their offsets in it, with spaces: list of (begin, end)."""

    @abstractmethod
    def decode(self, tokens):
        """List of tokens -> normalised text; `<s>`, `</s>` and padding are skipped."""

    @abstractmethod
    def token_text(self, token):
        """A token as text, without the mark of a word's beginning."""

    def unknown_parts(self, line):
        """The parts of a line that are unknown: list of str."""
        return []

    @abstractmethod
    def file_bytes(self):
        """The bytes of the vocabulary file, for a folder of data."""

    def words_added_to(self, other):
        """The words that were added to another vocabulary to make this one.

        None if the two differ in anything else.
        """
        return [] if other.file_bytes() == self.file_bytes() else None

    def dict_text(self):
        """The contents of dict.txt: a line `symbol 1` for each symbol but the special ones.

        `<mask>` is left out if it is the last one.
        """
        symbols = self.symbols[len(SPECIAL_SYMBOLS) :]
        if symbols[-1] == MASK:
            symbols = symbols[:-1]
        return "".join(f"{symbol} 1\n" for symbol in symbols)


def join_and_cut(parts, limit=None):
    """Joins the tokens of a text to `<s> a </s>`, or of a pair to `<s> a </s> </s> b </s>`.

    Args:
        parts: one or two lists of tokens
        limit: how many tokens the sequence may have, None for any number; what is too much is cut
            from the end of the longer part
    Returns: list of tokens; how many were cut
    """
    sizes = [len(part) for part in parts]
    if limit is None:
        kept = sizes
    else:
        kept = kept_sizes(sizes, max(0, limit - 2 * len(parts)))
    joined = []
    for part, size in zip(parts, kept):
        joined += [EOS, *part[:size], EOS]
    return [BOS, *joined[1:]], sum(sizes) - sum(kept)


def kept_sizes(sizes, room):
    """How many tokens parts of these sizes keep: of two, the longer loses some.

    This is the strategy `longest_first` of the tokenizers library: exports cut pairs alike.
    """
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    short = min(*sizes, room // 2)
    return [short, room - short] if sizes[0] <= sizes[1] else [room - short, short]


def word_sequences(tokenizer, words, limit):
    """The tokens of words, each encoded by itself, as sequences `<s> ... </s>`.

    A sequence begins and ends between words.

    Args:
        tokenizer: `Tokenizer`
        words: list of strings; a word that is normalised to nothing becomes `<unk>`
        limit: tokens that a sequence may have; a word that alone has more is cut
    Yields: list of tokens; the place in it of the first token of each of its words
    """
    part = []
    starts = []
    for tokens in tokenizer.encode_words(words):
        tokens = tokens or [UNKNOWN]
        if part and len(part) + len(tokens) > limit - 2:
            yield join_and_cut([part], limit)[0], starts
            part = []
            starts = []
        starts.append(1 + len(part))
        part += tokens
    if part:
        yield join_and_cut([part], limit)[0], starts
