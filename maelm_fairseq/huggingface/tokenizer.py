"""The tokenizer as `tokenizer.json`, which transformers reads: from a SentencePiece model, by the `tokenizers` library.

It gives the tokens of `hub.encode`, with these known exceptions:
- special tokens that are typed in a text, such as `<s>`, are that token; for `hub` only `<mask>` is;
- U+0085, and letters with two combining marks in an order or combination that no language uses;
- a Unigram model: two segmentations whose scores are equal but for rounding (5 of 18,500 lines of film reviews).

With runs, the tokens are those of :class:`~maelm_fairseq.squad.text.SpanTokenizer`, except for `<mask>`, which is a
token here, and for control characters, which SentencePiece removes.

transformers can read the files from version 4.41 on.
"""

import json
import os
import re
import struct
import sys
import unicodedata

from ..errors import InstallationError, MissingFileError, UsageError
from ..files import atomic_write, read_json, save_json
from ..squad.text import SpanTokenizer
from ..vocabulary import MASK, WORD_START, Tokenizer, load_dictionary, load_sentencepiece

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
except ImportError as error:
    raise InstallationError(f"{error}: pip install tokenizers (the extra `huggingface`)") from None

BPE, UNIGRAM = 2, 1  # SentencePiece's kinds of models
NORMAL, BYTE = 1, 6  # and of pieces
BOUNDARY = "\ufdd0"  # put between runs; not a character, for use within programs
CONTROL = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f]")  # SentencePiece removes them
MAXIMUM_LINES = 1000  # to check
MAXIMUM_TIES = 0.01  # of the texts, for a Unigram model

# Strings on which tokenizers tend to differ.
ODD = [
    "", " ", "   ", "\t", "\n", "a", " a", "a ", "  two   spaces  ", "tab\tand\nnewline\r\n", "\u00a0no-break\u00a0space",
    "wide\u3000space", "zero\u200bwidth", "\ufeffbyte order mark", "soft\u00adhyphen", "right\u200eto\u200fleft",
    ".", "...", "Wait... what?!", "don't", "\u201cquoted\u201d \u2014 and \u2018so\u2019", "(a) [b] {c} <d> a/b a\\b",
    "1999", "1,234.56", "3.14%", "$5 \u00a36 \u20ac7", "B2B 4x4 x86_64", "e-mail@example.org", "https://example.org/?a=b&c=d",
    "The QUICK Brown fOX", "\u0130stanbul \u0131\u015f\u0131k", "Stra\u00dfe STRASSE \u1e9e", "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u039f\u0394\u039f\u03a3",
    "caf\u00e9", "cafe\u0301", "\u00c7a va", "C\u0327a va", "na\u00efve co\u00f6perate", "A\u030angstr\u00f6m \u212b \u212a", "Vi\u1ec7t Vie\u0323\u0302t",
    "\u0439\u043e\u0433\u0430 \u0438\u0306\u043e\u0433\u0430", "\u4e2d\u6587", "\u4e2d \u6587 a\u4e2d\u6587b", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002", "\uff26\uff55\uff4c\uff4c\uff57\uff49\uff44\uff54\uff48\uff01",
    "\uff76\uff9e\uff77\uff9e", "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
    "\U0001f600", "nice\U0001f44d\U0001f3fdjob", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea", "\U0001f600\U0001f601 \U0001f602",
    "\ufb01ne \ufb03", "x\u00b2 \u00bd \u2460 \u2122 \u2026", "\u2163 \u33a1 \u00b5m", "bell\x07 and \x01 control\x7f", "a\x00b", "\ufffd",
    "\u2581", "a\u2581b", "\u2581\u2581a", "\ue000private", "<", "<mask", "mask>", "<MASK>", "<0x41>", "a" * 300, "\u4e2d" * 300, "word " * 300, "!?" * 100,
]  # fmt: skip
ODD_MASKED = [
    MASK, f" {MASK}", f"{MASK} ", f"{MASK}{MASK}", f"{MASK} {MASK}", f"a {MASK}", f"a{MASK}", f"{MASK} a", f"{MASK}a", f"a  {MASK}  a",
    f"The film was {MASK}.", f"The film was {MASK} .", f"The {MASK}, the {MASK}; and {MASK}ing", f"un{MASK}able", f"\u201c{MASK}\u201d",
    f"{MASK}\n{MASK}\t{MASK}", f"\U0001f600{MASK}\U0001f600", f"\u4e2d{MASK}\u6587", f"{MASK}\u00e9 {MASK}e\u0301", f"<{MASK}>", f"{MASK}...",
    f"1{MASK}2", f"\u00a0{MASK}\u00a0a", f"\u3000{MASK}\u3000a", f"{MASK}\u200ba", f"{MASK}THE {MASK} THE", f"{MASK}'s", f"({MASK})", f"\u2581{MASK}\u2581a",
]  # fmt: skip


def write_tokenizer(folder, data, max_length, runs=False):
    """Writes `tokenizer.json` and `tokenizer_config.json` for the vocabulary of a data folder.

    Args:
        folder: where to write; it must exist
        data: folder with `dict.txt` and `sentencepiece.model`
        max_length: most tokens of a text, with `<s>` and `</s>`
        runs: encode runs of letters, runs of digits and other characters separately, as for question answering
    Returns:
        tokenizers.Tokenizer, read back from the file
    Raises:
        FileNotFoundError: the data folder has no vocabulary
        ValueError: the vocabulary cannot be written as `tokenizer.json`
    """
    tokenizer = build_tokenizer(*_read(data), runs)
    content = json.loads(tokenizer.to_str())
    merges = [" ".join(merge) for merge in content["model"].get("merges", [])]
    # As strings transformers can read them before 4.45 too, but takes a line that begins with this for a header.
    if merges and not any(merge.startswith("#version") for merge in merges):
        content["model"]["merges"] = merges
    path = os.path.join(folder, "tokenizer.json")
    with atomic_write(path) as stream:
        json.dump(content, stream, ensure_ascii=False, indent=1)
    mask = {"__type": "AddedToken", "content": MASK, "lstrip": True, "rstrip": False}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": {**mask, "normalized": False, "single_word": False, "special": True},
    }
    save_json(settings, os.path.join(folder, "tokenizer_config.json"))
    return tokenizers.Tokenizer.from_file(path)


def build_tokenizer(dictionary, processor, runs=False):
    """A tokenizer of the `tokenizers` library with the same tokens.

    Args:
        dictionary: fairseq's, with `<mask>`
        processor: SentencePieceProcessor, from :func:`~maelm_fairseq.vocabulary.load_sentencepiece`
        runs: as in :func:`write_tokenizer`
    Returns:
        tokenizers.Tokenizer
    Raises:
        ValueError: the SentencePiece model has a setting or a kind of piece that is not supported
    """
    pieces, kind, charsmap = _read_model(processor.serialized_model_proto())
    has_bytes = any(piece_kind == BYTE for _, _, piece_kind in pieces[3:])
    vocabulary = dictionary.symbols[:-1]
    if kind == BPE:
        ids = {symbol: i for i, symbol in enumerate(vocabulary)}
        model = models.BPE(ids, _merges(pieces[3:]), unk_token="<unk>", fuse_unk=True, byte_fallback=has_bytes)
    else:
        scores = [0.0] * dictionary.nspecial + [score for _, score, _ in pieces[3:]]
        model = models.Unigram(list(zip(vocabulary, scores)), unk_id=dictionary.unk(), byte_fallback=has_bytes)
    made = tokenizers.Tokenizer(model)

    metaspace = dict(replacement=WORD_START, prepend_scheme="first")
    normalizer, splits = [], [pre_tokenizers.Metaspace(**metaspace)]
    if charsmap:
        # The map holds composed characters, and is applied here to a letter at a time.
        normalizer += [normalizers.NFC(), normalizers.Precompiled(charsmap)]
    if runs:
        # Before the map, which can make several characters out of one.
        normalizer[:1] = [*_marked_runs(processor), *normalizer[:1]]
        splits.append(pre_tokenizers.Split(BOUNDARY, "removed"))
    normalizer += [normalizers.Replace(Regex(r" +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    made.normalizer = normalizers.Sequence(normalizer)
    made.pre_tokenizer = pre_tokenizers.Sequence(splits)
    made.decoder = decoders.Metaspace(**metaspace)
    if has_bytes:
        made.decoder = decoders.Sequence([decoders.ByteFallback(), made.decoder])
    special = [(symbol, i) for i, symbol in enumerate(vocabulary[: dictionary.nspecial])]
    made.add_special_tokens([AddedToken(symbol, normalized=False) for symbol, _ in special])
    made.add_special_tokens([AddedToken(MASK, lstrip=True, normalized=False)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[special[0], special[2]]
    )
    return made


def reference(data, runs=False):
    """What the tokenizer must give.

    Args:
        data: folder with `dict.txt` and `sentencepiece.model`
        runs: as in :func:`write_tokenizer`
    Returns:
        a function (text, pair=None) -> list of tokens, as `hub.encode` or, with runs, as in question answering
    """
    dictionary, processor = _read(data)
    span_tokenizer, tokenizer = SpanTokenizer(processor), Tokenizer(dictionary, processor)
    bos, eos = dictionary.bos(), dictionary.eos()

    def encode_one(text):
        return span_tokenizer.encode(text).tokens.tolist() if runs else tokenizer.encode(text)

    def encode(text, pair=None):
        second = [] if pair is None else [eos, *encode_one(pair), eos]
        return [bos, *encode_one(text), eos, *second]

    return encode


def sample_lines(data):
    """Lines of text that a data folder keeps in `train.json` and `valid.json`: list of at most 1,000 strings."""
    lines = []
    for name in ["train.json", "valid.json"]:
        path = os.path.join(data, name)
        if os.path.exists(path):
            record = read_json(path, "the record that data-prep/prepare.sh wrote")
            lines += [line for _, line in record.get("sample", [])]
    return lines[:MAXIMUM_LINES]


def check_tokenizer(tokenizer, encode, lines, runs=False):
    """Compares the tokens of a tokenizer on texts and on odd strings, by themselves and in pairs.

    Args:
        tokenizer: tokenizers.Tokenizer
        encode: what it must give: a function (text, pair=None) -> tokens, such as `hub.encode` or :func:`reference`
        lines: list of strings
        runs: the function is that of question answering, which knows no `<mask>`
    Returns:
        the number of texts and pairs compared
    Raises:
        ValueError: a text gives other tokens; for a Unigram model, more than one of a hundred
    """
    odd = [text for text in ODD if not CONTROL.search(text)] if runs else ODD + ODD_MASKED
    texts = [*lines, *odd]
    pairs = [*zip(texts[::3], texts[1::3]), *zip(odd, odd[::-1])]
    compared = [(text, None) for text in texts] + pairs
    differing = []
    for text, pair in compared:
        expected = list(map(int, encode(text, pair)))
        found = tokenizer.encode(text, pair).ids
        if found != expected:
            differing.append((text, pair, expected, found))
    ties = isinstance(tokenizer.model, models.Unigram)
    if differing and not (ties and len(differing) <= MAXIMUM_TIES * len(compared)):
        text, pair, expected, found = differing[0]
        raise UsageError(
            f"tokenizer.json: {len(differing):,} of {len(compared):,} texts get other tokens than from SentencePiece; "
            f"the first: {_shown(text)}" + (f" with {_shown(pair)}" if pair is not None else "") + f" gives "
            f"{_tokens(tokenizer, found)}, expected {_tokens(tokenizer, expected)}; use the dict.txt and "
            "sentencepiece.model of the checkpoint, unchanged"
        )
    if ties:
        print(
            f"warning: a Unigram model: {len(differing):,} of {len(compared):,} texts get other tokens than from "
            "SentencePiece, where two segmentations are equally probable; a BPE model has no such ties",
            file=sys.stderr,
        )
    return len(compared)


def _shown(text):
    return repr(text if len(text) <= 200 else text[:200] + "...")


def _tokens(tokenizer, ids):
    return " ".join(f"{tokenizer.id_to_token(i)}" for i in ids[:200]) + " ..." * (len(ids) > 200)


def _read(data):
    """A data folder -> dictionary, SentencePieceProcessor."""
    dictionary = load_dictionary(data)
    model_file = os.path.join(data, "sentencepiece.model")
    if not os.path.isfile(model_file):
        raise MissingFileError(
            f"{model_file}: not found, expected the SentencePiece model of the dict.txt beside it; without one there "
            "is no tokenizer to write"
        )
    return dictionary, load_sentencepiece(model_file, dictionary)


def _merges(pieces):
    """Pieces (text, score, kind) -> the pairs of pieces that BPE joins, those it joins first in front."""
    scores = {piece: score for piece, score, kind in pieces if kind == NORMAL}
    splits = [
        (-score, i, piece[:i], piece[i:])
        for piece, score in scores.items()
        for i in range(1, len(piece))
        if piece[:i] in scores and piece[i:] in scores
    ]
    return [(left, right) for _, _, left, right in sorted(splits)]


def _marked_runs(processor):
    """Normalizers that put BOUNDARY between the runs of SpanTokenizer, where no space is."""
    kinds = SpanTokenizer(processor)
    characters = (chr(i) for i in range(sys.maxunicode + 1))
    spaces = [c for c in characters if unicodedata.category(c) not in ("Cn", "Co", "Cs") and kinds.kind(c) == "space"]
    marks = r"\p{M}\p{Cf}"
    # (?>...) does not give back a part of a run, and \K keeps the run: BOUNDARY is put behind it.
    run = rf"(?>\p{{L}}[\p{{L}}{marks}]*|\p{{Nd}}[\p{{Nd}}{marks}]*|[{marks}]+|[^\s\p{{L}}\p{{Nd}}{marks}][{marks}]*)"
    return [
        normalizers.Replace(Regex("[" + "".join(rf"\x{{{ord(c):x}}}" for c in spaces) + "]"), " "),
        normalizers.Replace(Regex(run + r"\K(?=\S)"), BOUNDARY),
    ]


# SentencePiece's file ----------------------------------------------------------------------------------------------


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


def _read_model(model):
    """Reads a SentencePiece model, as sentencepiece_model.proto describes it.

    Returns:
        pieces: list of (text, score, kind)
        kind: BPE or UNIGRAM
        charsmap: bytes, of the normalisation; empty without one
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
        (any(k not in (NORMAL, BYTE) for _, _, k in pieces[3:]), "it has control, unused or user-defined pieces"),
    ]
    for found, problem in problems:
        if found:
            raise UsageError(
                f"sentencepiece.model: {problem}, which tokenizer.json cannot hold; use a model that "
                "data-prep/prepare.sh trained"
            )
    return pieces, kind, normalizer.get(2, b"")
