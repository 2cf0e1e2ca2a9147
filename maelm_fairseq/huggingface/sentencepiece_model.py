"""What a SentencePiece model says beside the pieces.

`sentencepiece` itself gives it only through protobuf, in a version that hardly any environment has.
"""

from ..base.errors import UsageError

UNIGRAM, BPE = 1, 2  # kinds of models


def read_settings(processor):
    """The kind of a SentencePiece model, `BPE` or `UNIGRAM`, and its normalisation, bytes; others are refused."""
    # The numbers of fields are those of sentencepiece_model.proto.
    model = _fields(processor.serialized_model_proto())
    trainer, normalizer = _fields(model[2]), _fields(model[3])
    kind, charsmap = trainer.get(3, UNIGRAM), normalizer.get(2)
    # These three mark the beginning of a text as that of a word, remove extra spaces, and mark spaces.
    spaces = all(normalizer.get(number, 1) for number in (3, 4, 5)) and not trainer.get(24)
    symbols = trainer.get(30) or trainer.get(31)  # of the user
    if kind not in (BPE, UNIGRAM) or not charsmap or not spaces or symbols:
        raise UsageError(
            "sentencepiece.model: it is neither BPE nor Unigram, does not normalise text, treats spaces in another "
            "way, or has user-defined pieces, which tokenizer.json cannot hold; use a model that data-prep/prepare.sh "
            "trained"
        )
    return kind, charsmap


def _fields(message):
    """The fields of a message of protobuf, {number: value}: integers, or bytes; of repeated ones the last."""
    found, i = {}, 0

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
            found[key >> 3] = integer()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or integer()
            found[key >> 3] = message[i : i + size]
            i += size
    return found
