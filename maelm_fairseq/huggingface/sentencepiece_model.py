"""What a SentencePiece model says beside the pieces."""

from ..base.errors import InstallationError, UsageError

try:
    from sentencepiece import sentencepiece_model_pb2
except Exception as error:  # protobuf is missing, or older than sentencepiece needs, which is an error of its own
    raise InstallationError(f"{error}: pip install -c constraints.txt '.[huggingface]'") from None

UNIGRAM, BPE = (sentencepiece_model_pb2.TrainerSpec.ModelType.Value(name) for name in ["UNIGRAM", "BPE"])


def read_settings(processor):
    """The kind of a SentencePiece model, `BPE` or `UNIGRAM`, and its normalisation, bytes; others are refused."""
    model = sentencepiece_model_pb2.ModelProto.FromString(processor.serialized_model_proto())
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    # These mark the beginning of a text as that of a word, remove extra spaces, and mark spaces.
    spaces = normalizer.add_dummy_prefix and normalizer.remove_extra_whitespaces and normalizer.escape_whitespaces
    symbols = trainer.treat_whitespace_as_suffix or trainer.control_symbols or trainer.user_defined_symbols
    kind, charsmap = trainer.model_type, normalizer.precompiled_charsmap
    if kind not in (BPE, UNIGRAM) or not charsmap or not spaces or symbols:
        raise UsageError(
            "sentencepiece.model: it is neither BPE nor Unigram, does not normalise text, treats spaces in another "
            "way, or has user-defined pieces, which tokenizer.json cannot hold; use a model that data-prep/prepare.sh "
            "trained"
        )
    return kind, charsmap
