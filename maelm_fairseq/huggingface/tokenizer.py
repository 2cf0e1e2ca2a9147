"""The tokenizer as `tokenizer.json`, which transformers reads: that of the data, or made from its
SentencePiece model.

It gives the tokens of `hub.encode`, with these known exceptions, of which a byte-level BPE has only
the first:
- a special token in a text, such as `<s>`, is taken for that token; for `hub` only `<mask>` is;
- U+0085; U+FDD0 and U+FDD1, which are not characters; the half-width voiced marks of Japanese,
  U+FF9E and U+FF9F;
- letters with two combining marks that are not in Unicode's order, or partly composed;
- texts that begin with two control characters, which SentencePiece removes, and a combining mark;
- a Unigram model: two segmentations whose scores are equal but for rounding (5 of 18,500 lines of
  film reviews).

transformers can read the files from version 4.45 on.
"""

import operator
import os
import re
import sys
import unicodedata
from itertools import chain
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from ..base.byte_level_tokenizer import ByteLevelTokenizer
from ..base.errors import InstallationError, UsageError, install_command
from ..base.json_files import save_json
from ..base.text_input import tokens_of
from ..base.tokenizer import BOS, EOS, MASK, SPECIAL_SYMBOLS, UNKNOWN
from ..base.words import WORD_START
from ..preparation.manifest import read_split_summary
from .edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK

try:
    from sentencepiece import sentencepiece_model_pb2
except Exception as error:
    # protobuf is missing, or older than sentencepiece needs, which is an error of its own class.
    raise InstallationError(f"{error}: {install_command('huggingface')}") from None

UNIGRAM = sentencepiece_model_pb2.TrainerSpec.ModelType.Value("UNIGRAM")
BPE = sentencepiece_model_pb2.TrainerSpec.ModelType.Value("BPE")
# Unicode reserves these two for use within programs; they are not characters.
SEPARATOR = "\ufdd1"  # temporary separator before combining marks
WITHIN_WORD = "\ufdd0"  # marks that a text begins within a word
# In a regular expression: what belongs to the character before it.
MARKS = "\\p{M}\\p{Cf}\u0e33\u0eb3"
CONTROLS = re.compile("[\\x01-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]{2}")
MAX_LINES = 1000  # to check
MAX_TIES = 0.01  # share of texts, for a Unigram model


def write_tokenizer(folder, tokenizer, max_length, for_words=False):
    """Writes `tokenizer.json` and `tokenizer_config.json` for `tokenizer.Tokenizer`.

    The folder must exist. A text has up to `max_length` tokens, with `<s>` and `</s>`. With
    `for_words`, a byte-level BPE puts a space before each text, so that it gives words, one by one,
    the tokens that they have in a text.

    Returns: tokenizers.Tokenizer, read back from what was written
    Raises UsageError: the vocabulary cannot be written as `tokenizer.json`
    """
    if isinstance(tokenizer, ByteLevelTokenizer):
        text = tokenizer.file_bytes(for_words).decode()
    else:
        text = build_tokenizer(tokenizer).to_str(pretty=True)
    Path(folder, "tokenizer.json").write_text(text, encoding="utf-8")
    hf_tokenizer = tokenizers.Tokenizer.from_str(text)
    mask = hf_tokenizer.get_added_tokens_decoder()[hf_tokenizer.token_to_id(MASK)]
    flags = ["content", "lstrip", "rstrip", "normalized", "single_word", "special"]
    flags_of_mask = {flag: getattr(mask, flag) for flag in flags}
    symbols = dict(bos="<s>", cls="<s>", eos="</s>", sep="</s>", unk="<unk>", pad="<pad>")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": symbol for name, symbol in symbols.items()},
        "mask_token": {"__type": "AddedToken", **flags_of_mask},
    }
    save_json(settings, os.path.join(folder, "tokenizer_config.json"))
    return hf_tokenizer


def build_tokenizer(tokenizer):
    """A tokenizer of the `tokenizers` library with the tokens of a SentencePiece model.

    See `write_tokenizer`.

    Raises UsageError: the SentencePiece model has a setting or a kind of piece that is not
        supported
    """
    processor = tokenizer.processor
    model_type, charsmap = read_settings(processor)
    numbers = range(3, len(processor))  # after <unk>, <s> and </s>
    has_bytes = any(map(processor.is_byte, numbers))
    hf_tokenizer = tokenizers.Tokenizer(build_model(tokenizer, model_type, numbers, has_bytes))
    hf_tokenizer.normalizer = build_normalizer(charsmap)
    hf_tokenizer.pre_tokenizer = split_into_words()
    decoder = decoders.Metaspace(replacement=WORD_START, prepend_scheme="first")
    if has_bytes:
        decoder = decoders.Sequence([decoders.ByteFallback(), decoder])
    hf_tokenizer.decoder = decoder
    hf_tokenizer.add_special_tokens(
        [AddedToken(symbol, normalized=False) for symbol in SPECIAL_SYMBOLS]
    )
    hf_tokenizer.add_special_tokens([AddedToken(MASK, lstrip=True, normalized=False)])
    hf_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", BOS), ("</s>", EOS)],
    )
    return hf_tokenizer


def build_model(tokenizer, model_type, numbers, has_bytes):
    """The model with the pieces of a SentencePiece model, of which `numbers` are not special."""
    processor = tokenizer.processor
    vocabulary = tokenizer.symbols[:-1]  # without <mask>
    if model_type == BPE:
        ids = {symbol: i for i, symbol in enumerate(vocabulary)}
        scores = {}
        for i in numbers:
            if not processor.is_byte(i):
                scores[processor.id_to_piece(i)] = processor.get_score(i)
        return models.BPE(
            ids, bpe_merges(scores), unk_token="<unk>", fuse_unk=True, byte_fallback=has_bytes
        )
    scores = [0.0] * len(SPECIAL_SYMBOLS) + [processor.get_score(i) for i in numbers]
    pieces = list(zip(vocabulary, scores))
    return models.Unigram(pieces, unk_id=UNKNOWN, byte_fallback=has_bytes)


def build_normalizer(charsmap):
    """The normalisation of a SentencePiece model, given its precompiled map of characters."""
    # Precompiled applies the map to one letter with its marks at a time. It loses the marks where
    # the map changes the letter alone, so they are separated from the letter until it is done.
    # NFC has composed letters and marks before where that is possible; the map has entries for
    # what it composes.
    steps = [
        normalizers.NFC(),
        normalizers.Replace(Regex(rf"(?!\A)(?=[{MARKS}])"), SEPARATOR),
        normalizers.Precompiled(charsmap),
        normalizers.Replace(SEPARATOR, ""),
        normalizers.Replace(Regex(r" +\z"), ""),
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r"\A(?=[^ ])"), WITHIN_WORD),
    ]
    return normalizers.Sequence(steps)


def split_into_words():
    """Puts a mark before each word, instead of the space there.

    So the offsets of a token do not include the space. What follows `<mask>` without a space begins
    within a word, and gets no mark.
    """

    def mark(scheme):
        return pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme=scheme, split=False)

    def remove(pattern):
        return pre_tokenizers.Split(Regex(pattern), "removed")

    # The first text gets a mark, also before WITHIN_WORD. A mark that is in the text itself stays,
    # unless it is the last one before a word.
    last_marks = remove(f"{WORD_START}{WITHIN_WORD}?(?!{WORD_START})")
    marks_within_words = remove(WORD_START + WITHIN_WORD)
    return pre_tokenizers.Sequence([mark("first"), last_marks, mark("always"), marks_within_words])


def read_settings(processor):
    """The kind of a SentencePiece model, `BPE` or `UNIGRAM`, and its normalisation, bytes.

    Other kinds and settings are refused.
    """
    model = sentencepiece_model_pb2.ModelProto.FromString(processor.serialized_model_proto())
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    model_type, charsmap = trainer.model_type, normalizer.precompiled_charsmap
    # These mark the beginning of a text as the beginning of a word, and spaces, and remove extra
    # spaces.
    required = [
        normalizer.add_dummy_prefix,
        normalizer.remove_extra_whitespaces,
        normalizer.escape_whitespaces,
    ]
    unsupported = [
        trainer.treat_whitespace_as_suffix,
        trainer.control_symbols,
        trainer.user_defined_symbols,
    ]
    is_known_kind = model_type in (BPE, UNIGRAM)
    if not is_known_kind or not charsmap or not all(required) or any(unsupported):
        raise UsageError(
            "sentencepiece.model: tokenizer.json cannot hold it: it is neither BPE nor Unigram, "
            "does not normalise text, treats spaces in another way, or has pieces of its own; use "
            "one that data-prep/prepare.sh trained"
        )
    return model_type, charsmap


def recorded_lines(data, splits=("train", "valid")):
    """Lines of text that a data folder keeps in its records: list of at most 1,000 strings."""
    lines = []
    for split in splits:
        lines += [text for _, text in read_split_summary(data, split).sample]
    return lines[:MAX_LINES]


def check_tokenizer(hf_tokenizer, tokenizer, lines, for_words=False):
    """Compares the tokens of a tokenizer on lines of text and on edge cases.

    They must be those of `tokenizer`, in sequences as for `hub.encode`: of texts, pairs, and lists
    of words. With `for_words` as for `write_tokenizer`, a byte-level BPE is compared only on lists
    of words, and without it, only on texts and pairs.

    Returns: the number of texts, pairs and lists compared, known exceptions included
    Raises UsageError: a text gives other tokens; for a Unigram model, more than one of a hundred
    """
    compared = encoded_by_both(hf_tokenizer, tokenizer, lines, for_words)
    differing = []
    for text, ids, expected in compared:
        if ids != expected and not is_known_difference(text):
            differing.append(text)
    message = (
        f"{len(differing):,} of {len(compared):,} texts get other tokens than from "
        f"{tokenizer.file_name}"
    )
    is_unigram = isinstance(hf_tokenizer.model, models.Unigram)
    may_be_ties = is_unigram and len(differing) <= MAX_TIES * len(compared)
    if differing and not may_be_ties:
        raise UsageError(
            f"tokenizer.json: {message}; the first: {differing[0][:400]!r}; use the dict.txt and "
            f"{tokenizer.file_name} of the checkpoint, unchanged"
        )
    if is_unigram:
        ties = "where two segmentations are equally probable; a BPE model has no such ties"
        print(f"warning: a Unigram model: {message}, {ties}", file=sys.stderr)
    return len(compared)


def encoded_by_both(hf_tokenizer, tokenizer, lines, for_words):
    """(text, ids of the tokenizer, expected ids) of all texts that `check_tokenizer` compares."""
    edge_cases = EDGE_CASES + EDGE_CASES_WITH_MASK
    texts = [*lines, *edge_cases]
    is_byte_pair = isinstance(tokenizer, ByteLevelTokenizer)
    encoded = []
    if not (is_byte_pair and for_words):
        pairs = [*zip(texts[::3], texts[1::3]), *zip(edge_cases, reversed(edge_cases))]
        for text, pair in [*((text, None) for text in texts), *pairs]:
            shown = text if pair is None else f"{text} with {pair}"
            ids = hf_tokenizer.encode(text, pair).ids
            encoded.append((shown, ids, tokens_of(tokenizer, text, pair)))
    if for_words or not is_byte_pair:
        for words in filter(None, map(str.split, texts)):
            ids = hf_tokenizer.encode(words, is_pretokenized=True).ids
            expected = [BOS, *chain.from_iterable(tokenizer.encode_words(words)), EOS]
            encoded.append((" ".join(words), ids, expected))
    return encoded


def is_known_difference(text):
    """Whether a text has what is known to give other tokens, as the docstring of this file says."""
    characters = unicodedata.normalize("NFD", text)
    is_mark = [unicodedata.category(character)[0] == "M" for character in characters]
    return (
        not {"\x85", SEPARATOR, WITHIN_WORD, "\uff9e", "\uff9f"}.isdisjoint(text)
        or any(map(operator.and_, is_mark, is_mark[1:]))
        or any(special in text for special in SPECIAL_SYMBOLS)
        or bool(CONTROLS.match(text))
    )


def bpe_merges(scores):
    """{piece: score} -> the pairs of pieces that BPE joins, in the order in which it does so."""
    splits = []
    for piece, score in scores.items():
        splits += [(-score, i, piece[:i], piece[i:]) for i in range(1, len(piece))]
    return [split[2:] for split in sorted(splits) if scores.keys() >= set(split[2:])]
