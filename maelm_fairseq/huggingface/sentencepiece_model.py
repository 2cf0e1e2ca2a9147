"""What a SentencePiece model file holds beside the pieces: the normalisation, the kind of model, the kinds of pieces.

The `sentencepiece` package does not give it without protobuf, of which it does not say the version that it needs.
"""

import struct

from ..engine.errors import UsageError

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
    """Reads a SentencePiece model, as sentencepiece_model.proto describes it; refuses what is not supported.

    Returns:
        list of pieces (text, score, kind); BPE or UNIGRAM; bytes of the normalisation
    """
    pieces, trainer, normalizer = [], {}, {}
    for number, value in _fields(model):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), *struct.unpack("<f", piece.get(2, bytes(4))), piece.get(3, NORMAL)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(value))
    kind = trainer.get(3, UNIGRAM)
    # These three mark the beginning of a text as that of a word, remove extra spaces, and mark spaces.
    spaces = all(normalizer.get(field, 1) for field in (3, 4, 5)) and not trainer.get(24)
    normal = all(piece_kind in (NORMAL, BYTE) for _, _, piece_kind in pieces[3:])
    if kind not in (BPE, UNIGRAM) or not spaces or not normal or not normalizer.get(2):
        raise UsageError(
            "sentencepiece.model: it is neither BPE nor Unigram, does not normalise text, treats spaces in another "
            "way, or has user-defined pieces, which tokenizer.json cannot hold; use a model that data-prep/prepare.sh "
            "trained"
        )
    return pieces, kind, normalizer[2]
