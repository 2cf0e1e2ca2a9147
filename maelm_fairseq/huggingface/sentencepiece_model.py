"""What a SentencePiece model file holds beside the pieces: the normalisation, the kind of model, the kinds of pieces.

The `sentencepiece` package does not give it without protobuf, of which it does not say the version that it needs.
"""

import struct

from ..errors import UsageError

UNIGRAM, BPE = 1, 2  # kinds of models, in sentencepiece_model.proto
NORMAL, BYTE = 1, 6  # kinds of pieces


def _fields(message):
    """The fields of a message of protobuf, in order: (number, value); integers for variable and bytes otherwise."""
    i = 0

    def integer():
        nonlocal i
        value = shift = 0
        while True:
            value |= (message[i] & 127) << shift
            i, shift = i + 1, shift + 7
            if message[i - 1] < 128:
                return value

    while i < len(message):
        key = integer()
        if key & 7 == 0:
            yield key >> 3, integer()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or integer()
            yield key >> 3, message[i : i + size]
            i += size


def read_model(model):
    """Reads a SentencePiece model, as sentencepiece_model.proto describes it.

    Returns:
        pieces: list of (text, score, kind)
        kind: BPE or UNIGRAM
        charsmap: bytes, of the normalisation
    Raises:
        ValueError: a kind of model or of piece, or a setting, that is not supported
    """
    pieces, trainer, normalizer = [], {}, {}
    for number, value in _fields(model):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), *struct.unpack("<f", piece.get(2, bytes(4))), piece.get(3, NORMAL)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(value))
    kind = trainer.get(3, UNIGRAM)
    problems = [
        (kind not in (BPE, UNIGRAM), "its pieces are words or characters, expected BPE"),
        (trainer.get(24), "it marks the ends of words"),
        (not normalizer.get(3, 1), "it does not mark the beginning of a text as that of a word"),
        (not normalizer.get(4, 1), "it keeps extra spaces"),
        (not normalizer.get(5, 1), "it does not mark spaces"),
        (not normalizer.get(2), "it does not normalise text"),
        (any(k not in (NORMAL, BYTE) for _, _, k in pieces[3:]), "it has control, unused or user-defined pieces"),
    ]
    for found, problem in problems:
        if found:
            raise UsageError(
                f"sentencepiece.model: {problem}, which tokenizer.json cannot hold; use a model that "
                "data-prep/prepare.sh trained"
            )
    return pieces, kind, normalizer[2]
