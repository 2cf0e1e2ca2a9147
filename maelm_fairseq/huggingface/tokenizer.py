"""The tokenizer as `tokenizer.json`, which transformers reads: that of the data, or made from its SentencePiece model.

It gives the tokens of `hub.encode`, with these known exceptions, of which a byte-level BPE has the first alone:
- special tokens that are typed in a text, such as `<s>`, are that token; for `hub` only `<mask>` is;
- U+0085; U+FDD0 and U+FDD1, which are no characters; the half-width voiced marks of Japanese, U+FF9E and U+FF9F;
- letters with two combining marks that are not in Unicode's order, or partly composed;
- texts that begin with two control characters, which SentencePiece removes, and a combining mark;
- a Unigram model: two segmentations whose scores are equal but for rounding (5 of 18,500 lines of film reviews).

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

from ..base.byte_pairs import BytePair
from ..base.errors import InstallationError, UsageError, install
from ..base.json_files import save_json
from ..base.subwords import BOS, EOS, MASK, SPECIAL, UNKNOWN
from ..base.text_input import tokens_of
from ..base.words import WORD_START
from .card import read_record
from .edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK

try:
    from sentencepiece import sentencepiece_model_pb2
except Exception as error:  # protobuf is missing, or older than sentencepiece needs, which is an error of its own
    raise InstallationError(f"{error}: {install('huggingface')}") from None

UNIGRAM, BPE = (sentencepiece_model_pb2.TrainerSpec.ModelType.Value(name) for name in ["UNIGRAM", "BPE"])
# Not characters, for use within programs: put before marks for a while, and where a text begins within a word.
APART, WITHIN_WORD = "\ufdd1", "\ufdd0"
MARKS = "\\p{M}\\p{Cf}\u0e33\u0eb3"  # in a regular expression; what belongs to the character before it
CONTROLS = re.compile("[\\x01-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]{2}")
MAXIMUM_LINES = 1000  # to check
MAXIMUM_TIES = 0.01  # of the texts, for a Unigram model


def write_tokenizer(folder, subwords, max_length, of_words=False):
    """Writes `tokenizer.json` and `tokenizer_config.json` for `subwords.Subwords`.

    The folder must exist. A text has up to `max_length` tokens, with `<s>` and `</s>`. With `of_words`, a byte-level
    BPE puts a space before each text, so that it gives words, one by one, the tokens that they have in a text.

    Returns: tokenizers.Tokenizer, read back from what was written
    Raises ValueError: the vocabulary cannot be written as `tokenizer.json`
    """
    if isinstance(subwords, BytePair):
        text = subwords.contents(of_words).decode()
    else:
        text = build_tokenizer(subwords).to_str(pretty=True)
    Path(folder, "tokenizer.json").write_text(text, encoding="utf-8")  # save() takes no folder that is not Unicode
    made = tokenizers.Tokenizer.from_str(text)
    flags = ["content", "lstrip", "rstrip", "normalized", "single_word", "special"]
    mask = {flag: getattr(made.get_added_tokens_decoder()[made.token_to_id(MASK)], flag) for flag in flags}
    symbols = dict(bos="<s>", cls="<s>", eos="</s>", sep="</s>", unk="<unk>", pad="<pad>")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": symbol for name, symbol in symbols.items()},
        "mask_token": {"__type": "AddedToken", **mask},
    }
    save_json(settings, os.path.join(folder, "tokenizer_config.json"))
    return made


def build_tokenizer(subwords):
    """A tokenizer of the `tokenizers` library with the tokens of a SentencePiece model; see `write_tokenizer`.

    Raises ValueError: the SentencePiece model has a setting or a kind of piece that is not supported
    """
    processor, vocabulary = subwords.processor, subwords.symbols[:-1]
    kind, charsmap = read_settings(processor)
    numbers = range(3, len(processor))  # after <unk>, <s> and </s>
    has_bytes = any(map(processor.is_byte, numbers))
    if kind == BPE:
        ids = {symbol: i for i, symbol in enumerate(vocabulary)}
        scores = {processor.id_to_piece(i): processor.get_score(i) for i in numbers if not processor.is_byte(i)}
        model = models.BPE(ids, _merges(scores), unk_token="<unk>", fuse_unk=True, byte_fallback=has_bytes)
    else:
        scores = [0.0] * len(SPECIAL) + [processor.get_score(i) for i in numbers]
        model = models.Unigram(list(zip(vocabulary, scores)), unk_id=UNKNOWN, byte_fallback=has_bytes)
    made = tokenizers.Tokenizer(model)

    # Precompiled applies the map to a letter with its marks at a time. It forgets the marks where the map changes the
    # letter by itself, so they are kept apart meanwhile; NFC has composed what can be, and the map knows that.
    apart = normalizers.Replace(Regex(rf"(?!\A)(?=[{MARKS}])"), APART)
    normalizer = [normalizers.NFC(), apart, normalizers.Precompiled(charsmap), normalizers.Replace(APART, "")]
    normalizer += [normalizers.Replace(Regex(r" +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    normalizer.append(normalizers.Replace(Regex(r"\A(?=[^ ])"), WITHIN_WORD))
    made.normalizer = normalizers.Sequence(normalizer)
    made.pre_tokenizer = split_into_words()
    made.decoder = decoders.Metaspace(replacement=WORD_START, prepend_scheme="first")
    if has_bytes:
        made.decoder = decoders.Sequence([decoders.ByteFallback(), made.decoder])
    made.add_special_tokens([AddedToken(symbol, normalized=False) for symbol in SPECIAL])
    made.add_special_tokens([AddedToken(MASK, lstrip=True, normalized=False)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", BOS), ("</s>", EOS)]
    )
    return made


def split_into_words():
    """Puts a mark before each word in place of the space before it, so that no token's offsets have the space.

    What follows `<mask>` without a space begins within a word, and gets no mark.
    """

    def mark(scheme):
        return pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme=scheme, split=False)

    def remove(pattern):
        return pre_tokenizers.Split(Regex(pattern), "removed")

    # The first text gets a mark, also before WITHIN_WORD. A mark that is in the text itself stays, unless it is
    # the last one before a word.
    removed = remove(f"{WORD_START}{WITHIN_WORD}?(?!{WORD_START})")
    return pre_tokenizers.Sequence([mark("first"), removed, mark("always"), remove(WORD_START + WITHIN_WORD)])


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
            "sentencepiece.model: tokenizer.json cannot hold it: it is neither BPE nor Unigram, does not normalise "
            "text, treats spaces in another way, or has pieces of its own; use one that data-prep/prepare.sh trained"
        )
    return kind, charsmap


def sample_lines(data, splits=("train", "valid")):
    """Lines of text that a data folder keeps in its records: list of at most 1,000 strings."""
    return [text for split in splits for _, text in read_record(data, split).sample][:MAXIMUM_LINES]


def check_tokenizer(tokenizer, subwords, lines, of_words=False):
    """Compares the tokens of a tokenizer on lines of text and on edge cases: texts, pairs, and lists of words.

    They must be those of `subwords`, in sequences as for `hub.encode`. With `of_words` as for `write_tokenizer`,
    a byte-level BPE is compared on lists of words alone, and without it, on all but these.

    Returns: the number of texts, pairs and lists compared, known exceptions included
    Raises ValueError: a text gives other tokens; for a Unigram model, more than one of a hundred
    """
    edge_cases = EDGE_CASES + EDGE_CASES_WITH_MASK
    texts, compared = [*lines, *edge_cases], []
    is_byte_pair = isinstance(subwords, BytePair)
    if not (is_byte_pair and of_words):
        pairs = [*zip(texts[::3], texts[1::3]), *zip(edge_cases, reversed(edge_cases))]
        for text, pair in [*((text, None) for text in texts), *pairs]:
            shown = text if pair is None else f"{text} with {pair}"
            compared.append((shown, tokenizer.encode(text, pair), tokens_of(subwords, text, pair)))
    if of_words or not is_byte_pair:
        for words in filter(None, map(str.split, texts)):
            tokens = [BOS, *chain.from_iterable(subwords.encode_words(words)), EOS]
            compared.append((" ".join(words), tokenizer.encode(words, is_pretokenized=True), tokens))
    differing = [text for text, made, tokens in compared if made.ids != tokens and not is_known_difference(text)]
    ties = isinstance(tokenizer.model, models.Unigram)
    message = f"{len(differing):,} of {len(compared):,} texts get other tokens than from {subwords.file_name}"
    if differing and not (ties and len(differing) <= MAXIMUM_TIES * len(compared)):
        raise UsageError(
            f"tokenizer.json: {message}; the first: {differing[0][:400]!r}; use the dict.txt and "
            f"{subwords.file_name} of the checkpoint, unchanged"
        )
    if ties:
        ties = "where two segmentations are equally probable; a BPE model has no such ties"
        print(f"warning: a Unigram model: {message}, {ties}", file=sys.stderr)
    return len(compared)


def is_known_difference(text):
    """Whether a text has what is known to give other tokens, as the docstring of this file says."""
    marks = [unicodedata.category(character)[0] == "M" for character in unicodedata.normalize("NFD", text)]
    return (
        not {"\x85", APART, WITHIN_WORD, "\uff9e", "\uff9f"}.isdisjoint(text)
        or any(map(operator.and_, marks, marks[1:]))
        or any(special in text for special in SPECIAL)
        or bool(CONTROLS.match(text))
    )


def _merges(scores):
    """{piece: score} -> the pairs of pieces that BPE joins, those it joins first in front."""
    splits = ((-score, i, piece[:i], piece[i:]) for piece, score in scores.items() for i in range(1, len(piece)))
    return [split[2:] for split in sorted(splits) if scores.keys() >= set(split[2:])]
