"""The pieces of a SentencePiece model as tokens."""

import os

import numpy as np
import sentencepiece

from .errors import UsageError
from .opening import as_usage_error, open_to_read
from .tokenizer import BOS, EOS, MASK, PAD, SPECIAL_SYMBOLS, UNKNOWN, Tokenizer
from .words import WORD_START

PRIVATE_USE = range(0xE000, 0xF900)  # code points without a meaning: few vocabularies have any
SENTENCEPIECE = "sentencepiece.model"


class SentencePieceTokenizer(Tokenizer):
    """The pieces of a SentencePiece model.

    A token is SentencePiece's id + 1; `<mask>` is the last one.

    Raises UsageError: no model, or ids 0 to 2 are not `<unk> <s> </s>`
    """

    file_name = SENTENCEPIECE

    def __init__(self, path):
        with open_to_read(path) as stream:
            model = stream.read()  # SentencePiece itself opens no path that is not UTF-8
        with as_usage_error(path, "a SentencePiece model", "give the .model file of a trained one"):
            if not model:
                raise ValueError("it is empty")
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            size = self.processor.get_piece_size()
            pieces = [self.processor.id_to_piece(i) for i in range(size)]
        if pieces[:3] != ["<unk>", "<s>", "</s>"]:
            raise UsageError(
                f"{path}: pieces 0 to 2 are {' '.join(pieces[:3])}; expected <unk> <s> </s>; train "
                "the model with SentencePiece's default ids"
            )
        self._model = model
        super().__init__(path, [*SPECIAL_SYMBOLS, *pieces[3:], MASK])
        # A character that no piece contains: unknown, or spelled in bytes. So no piece can consist
        # of it and of text after it.
        characters = map(chr, PRIVATE_USE)
        self._guard = next(char for char in characters if self.processor.piece_to_id(char) == 0)

    @staticmethod
    def _tokens(ids):
        """SentencePiece's ids -> tokens.

        Their names would not do: unknown text may look like a symbol, such as "</s>".
        """
        return [UNKNOWN if i == 0 else i + 1 for i in ids]

    def encode(self, text):
        first, *parts = text.split(MASK)
        tokens = self._tokens(self.processor.encode(first))
        for part in parts:
            if part[:1].isspace():
                ids = self.processor.encode(part)
            else:
                ids = self._inside_word(part)
            tokens += [self.mask_id, *self._tokens(ids)]
        return tokens

    def encode_all(self, texts):
        """As `encode` of each, on all cores."""
        cores = len(os.sched_getaffinity(0))
        all_ids = self.processor.encode(list(texts), num_threads=cores)
        return [
            self.encode(text) if MASK in text else self._tokens(ids)
            for text, ids in zip(texts, all_ids)
        ]

    def encode_plain_text(self, lines):
        ids, sizes = super().encode_plain_text(lines)
        return np.where(ids == 0, UNKNOWN, ids + 1), sizes

    def file_bytes(self):
        return self._model

    def _plain_ids(self, lines):
        return self.processor.encode(list(lines), num_threads=1)

    def _inside_word(self, text):
        """Text -> list of SentencePiece's ids, of which the first does not begin a word.

        An example is the "." in "<mask>.".
        """
        # SentencePiece begins a word at the beginning of a text, but not after another character.
        guard = self.processor.encode_as_pieces(self._guard)
        text = self._guard + text
        ids = self.processor.encode(text)
        pieces = self.processor.encode_as_pieces(text)
        last = len(guard) - 1
        # Unknown characters after an unknown guard become one piece with it.
        is_joined = pieces[last] != guard[last]
        return ids[last:] if is_joined else ids[last + 1 :]

    def encode_with_offsets(self, text):
        encoded = self.processor.encode(text, return_type="offset_mapping")
        return self._tokens(encoded["ids"]), encoded["offsets"]

    def decode(self, tokens):
        pieces = [self.symbols[i] for i in tokens if i not in (BOS, PAD, EOS)]
        mask = WORD_START + MASK
        pieces = [mask if piece == MASK else piece for piece in pieces]
        return self.processor.decode(pieces).replace(mask, " " + MASK).strip()

    def token_text(self, token):
        return self.symbols[token].replace(WORD_START, " ").strip()

    def unknown_parts(self, line):
        ids = self.processor.encode(line)
        pieces = self.processor.encode(line, out_type=str)
        return [piece for i, piece in zip(ids, pieces) if i == 0]
