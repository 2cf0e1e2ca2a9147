"""The pieces of a SentencePiece model as tokens."""

import os

import numpy as np
import sentencepiece

from .errors import UsageError
from .opening import opened, reading
from .subwords import BOS, EOS, MASK, PAD, SPECIAL, UNKNOWN, Subwords
from .words import WORD_START

PRIVATE_USE = range(0xE000, 0xF900)  # code points without a meaning: hardly any is in a vocabulary
SENTENCEPIECE = "sentencepiece.model"


class SentencePiece(Subwords):
    """The pieces of a SentencePiece model; a token is SentencePiece's id + 1, and `<mask>` the last one.

    Raises ValueError: no model, or ids 0 to 2 are not `<unk> <s> </s>`
    """

    file_name = SENTENCEPIECE

    def __init__(self, path):
        with opened(path) as stream:
            model = stream.read()  # SentencePiece itself opens no path that is not UTF-8
        with reading(path, "a SentencePiece model", "give the .model file of a trained one"):
            if not model:
                raise ValueError("it is empty")
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces = [self.processor.id_to_piece(i) for i in range(self.processor.get_piece_size())]
        if pieces[:3] != ["<unk>", "<s>", "</s>"]:
            raise UsageError(
                f"{path}: pieces 0 to 2 are {' '.join(pieces[:3])}; expected <unk> <s> </s>; train the model with "
                "SentencePiece's default ids"
            )
        self._model = model
        super().__init__(path, [*SPECIAL, *pieces[3:], MASK])
        # In no piece, so that it cannot join what follows: unknown, or spelled in bytes.
        self._guard = next(chr(code) for code in PRIVATE_USE if self.processor.piece_to_id(chr(code)) == 0)

    @staticmethod
    def _tokens(ids):
        """SentencePiece's ids -> tokens. Not by name: unknown text may be written like a symbol, such as "</s>"."""
        return [UNKNOWN if i == 0 else i + 1 for i in ids]

    def encode(self, text):
        first, *parts = text.split(MASK)
        tokens = self._tokens(self.processor.encode(first))
        for part in parts:
            encode = self.processor.encode if part[:1].isspace() else self._inside_word
            tokens += [self.mask, *self._tokens(encode(part))]
        return tokens

    def encode_all(self, texts):
        """As `encode` of each, on all cores."""
        plain = self.processor.encode(list(texts), num_threads=len(os.sched_getaffinity(0)))
        return [self.encode(text) if MASK in text else self._tokens(ids) for text, ids in zip(texts, plain)]

    def encode_lines(self, lines):
        ids, sizes = super().encode_lines(lines)
        return np.where(ids == 0, UNKNOWN, ids + 1), sizes

    def contents(self):
        return self._model

    def _plain_ids(self, lines):
        return self.processor.encode(list(lines), num_threads=1)

    def _inside_word(self, text):
        """Text -> list of SentencePiece's ids of which the first does not begin a word, as the "." in "<mask>."."""
        # SentencePiece begins a word at the beginning of a text, but not after another character.
        before = self.processor.encode_as_pieces(self._guard)
        text = self._guard + text
        ids, last = self.processor.encode(text), len(before) - 1
        joined = self.processor.encode_as_pieces(text)[last] != before[last]  # by unknown characters after it
        return ids[last:] if joined else ids[last + 1 :]

    def spans(self, text):
        encoded = self.processor.encode(text, return_type="offset_mapping")
        return self._tokens(encoded["ids"]), encoded["offsets"]

    def decode(self, tokens):
        pieces = [self.symbols[i] for i in tokens if i not in (BOS, PAD, EOS)]
        pieces = [WORD_START + MASK if piece == MASK else piece for piece in pieces]
        return self.processor.decode(pieces).replace(WORD_START + MASK, " " + MASK).strip()

    def show(self, token):
        return self.symbols[token].replace(WORD_START, " ").strip()

    def unknown(self, line):
        ids, pieces = self.processor.encode(line), self.processor.encode(line, out_type=str)
        return [piece for i, piece in zip(ids, pieces) if i == 0]
