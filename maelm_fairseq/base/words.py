"""What a word is, in text and in tokens.

White space separates words. Scripts that are written without it, such as those of Chinese, Japanese
and Thai, do not show where words begin; there, each piece of the vocabulary counts as a word. A
piece begins a word if it has the vocabulary's mark of a word's beginning, or if its first letter is
of such a script.
"""

import re

import numpy as np
import regex

from .errors import UsageError

WORD_START = "\u2581"  # SentencePiece's mark
BYTE_WORD_STARTS = ("\u0120", "\u010a", "\u0109", "\u010d")  # space, newline, tab, carriage return
# Letters, but not marks, of Unicode's line-breaking class for South East Asian scripts, and of
# Chinese and Japanese.
WITHOUT_SPACES = regex.compile(r"(?!\p{M})[\p{Line_Break=SA}\p{Han}\p{Hiragana}\p{Katakana}]")
# A byte, as SentencePiece spells it in characters that it does not know.
BYTE_PIECE = re.compile("<0x([0-9A-F]{2})>")
# Bytes that complete a character of which only the first byte is known, by its length in UTF-8.
# Several scripts may share a first byte: these bytes then give a character of a script that has
# spaces, or a symbol such as an emoji.
FOLLOWING_BYTES = {1: b"", 2: b"\x81", 3: b"\xa4\x81", 4: b"\x9f\x81\x81"}


def word_starts(symbols):
    """Which symbols of a vocabulary begin a word.

    Args:
        symbols: list of N, pieces of SentencePiece or of a byte-level BPE
    Returns: bool (N,)
    Raises UsageError: no symbol has the mark of a word's beginning
    """
    if any(symbol.startswith(WORD_START) for symbol in symbols):
        marks = WORD_START
        letters = {}
    elif any(symbol.startswith(BYTE_WORD_STARTS) for symbol in symbols):
        marks = BYTE_WORD_STARTS
        letters = byte_letters()
    else:
        raise UsageError(
            "the vocabulary does not mark where words begin: found no symbol that begins with "
            f"{WORD_START!r} or {BYTE_WORD_STARTS[0]!r}, expected one of SentencePiece or of a "
            "byte-level BPE"
        )
    return np.array(
        [symbol.startswith(marks) or begins_without_space(symbol, letters) for symbol in symbols]
    )


def begins_without_space(symbol, letters):
    """Whether the first letter of a symbol is of a script without spaces.

    `letters` are {letter: byte} of a byte-level BPE.
    """
    match = BYTE_PIECE.fullmatch(symbol)
    if match:
        text = first_character(bytes.fromhex(match[1]))
    elif letters and all(letter in letters for letter in symbol):
        text = first_character(bytes(letters[letter] for letter in symbol))
    else:
        text = symbol
    return bool(WITHOUT_SPACES.match(text))


def first_character(text):
    """The first character of bytes of UTF-8, which may begin and end within a character.

    If they begin within one, it is "".
    """
    first_byte = text[0]
    size = 1 + (first_byte >= 0xC0) + (first_byte >= 0xE0) + (first_byte >= 0xF0)
    completed = text[:size] + FOLLOWING_BYTES[size][len(text) - 1 :]
    return completed.decode(errors="ignore")[:1]


def byte_letters():
    """The letters by which byte-level BPE spells bytes: {letter: byte}."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    for i, byte in enumerate(others):
        letters[chr(0x100 + i)] = byte
    return letters


def word_spans(tokenizer, text):
    """Where the words of a text are: list of (first character, the one after the last).

    Args:
        tokenizer: `tokenizer.Tokenizer`, whose pieces are the words of scripts without spaces
        text: a string
    """
    spans = []
    for chunk in re.finditer(r"\S+", text):
        begins = [chunk.start()]
        if WITHOUT_SPACES.search(chunk[0]):
            tokens, piece_spans = tokenizer.encode_with_offsets(chunk[0])
            inner_begins = set()
            for (begin, _), starts_word in zip(piece_spans, tokenizer.word_starts[tokens]):
                if starts_word and begin:
                    inner_begins.add(chunk.start() + begin)
            begins += sorted(inner_begins)
        spans += zip(begins, [*begins[1:], chunk.end()])
    return spans
