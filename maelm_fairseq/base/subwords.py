"""Text to tokens and back: by a SentencePiece model, or by a byte-level BPE in a tokenizer.json of Hugging Face's.

A token is an id of fairseq's dictionary: `<s> <pad> </s> <unk>` are 0 to 3, the other symbols follow in the order of
the vocabulary's own ids, `<mask>` among them.
"""

import functools
import json
import os
from itertools import chain

import numpy as np
import sentencepiece

from .errors import MissingFileError, UsageError

MASK = "<mask>"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
BOS, PAD, EOS, UNKNOWN = range(len(SPECIAL))
WORD_START = "\u2581"  # SentencePiece's mark
BYTE_WORD_STARTS = ("\u0120", "\u010a", "\u0109", "\u010d")  # of byte-level BPE: space, newline, tab, carriage return
PRIVATE_USE = range(0xE000, 0xF900)  # code points without a meaning: hardly any is in a vocabulary
SENTENCEPIECE, TOKENIZER_JSON = "sentencepiece.model", "tokenizer.json"
# As models are published, best first.
NAMES = ["sentencepiece.bpe.model", SENTENCEPIECE, "spiece.model", TOKENIZER_JSON]


class Subwords:
    """What both kinds of vocabularies do.

    Attributes:
        path: of the file
        file_name: what the file is called in a folder of data
        symbols: of all tokens, in order, with `<mask>`: list of str
        mask: the token of `<mask>`
    """

    file_name = None

    def __init__(self, path, symbols):
        self.path, self.symbols, self.mask = path, symbols, symbols.index(MASK)
        for symbol in symbols[len(SPECIAL) :]:
            if symbol in SPECIAL or symbol.split() != [symbol]:
                raise UsageError(
                    f"{path}: piece {symbol!r} is a special symbol of fairseq's, or contains white space, at which "
                    "fairseq would split it; use a vocabulary without it"
                )
        if len(set(symbols)) < len(symbols):
            twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
            raise UsageError(f"{path}: two pieces are {twice!r}, expected each once; use a vocabulary without one")

    def encode(self, text):
        """Text -> list of tokens, without `<s>` and `</s>`; `<mask>` in it is a token."""
        raise NotImplementedError

    def encode_all(self, texts):
        """The tokens of many texts: list of lists, as :meth:`encode` of each."""
        return [self.encode(text) for text in texts]

    def encode_words(self, words):
        """The tokens of words of a text, each by itself: list of lists."""
        return self.encode_all(words)

    def encode_lines(self, lines):
        """The tokens of lines in which nothing is a symbol: int64 (tokens,), and how many each line has, int32."""
        ids = self._plain_ids(lines)
        return np.fromiter(chain.from_iterable(ids), np.int64), np.fromiter(map(len, ids), np.int32, len(ids))

    def spans(self, text):
        """The tokens of a text, and the characters that each stands for, with spaces: list of (begin, end)."""
        raise NotImplementedError

    def decode(self, tokens):
        """List of tokens -> normalised text; `<s>`, `</s>` and padding are skipped."""
        raise NotImplementedError

    def show(self, token):
        """A token as text, without the mark of a word's beginning."""
        raise NotImplementedError

    def unknown(self, line):
        """The parts of a line that are unknown: list of str."""
        return []

    def contents(self):
        """Of the file, for a folder of data: bytes."""
        raise NotImplementedError

    def words_added_to(self, other):
        """The words that this vocabulary has besides those of another one; None if it is not the same otherwise."""
        return [] if other.contents() == self.contents() else None

    def dict_text(self):
        """The contents of dict.txt: a line `symbol 1` for each but the special ones; a last `<mask>` is left out."""
        symbols = self.symbols[len(SPECIAL) :]
        return "".join(symbol + " 1\n" for symbol in (symbols[:-1] if symbols[-1] == MASK else symbols))


class SentencePiece(Subwords):
    """The pieces of a SentencePiece model; a token is SentencePiece's id + 1, and `<mask>` the last one.

    Raises:
        ValueError: no model, or ids 0 to 2 are not `<unk> <s> </s>`
    """

    file_name = SENTENCEPIECE

    def __init__(self, path):
        with open(path, "rb") as stream:
            model = stream.read()  # SentencePiece itself opens no path that is not UTF-8
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            pieces = [self.processor.id_to_piece(i) for i in range(self.processor.get_piece_size())] if model else []
        except (RuntimeError, UnicodeDecodeError):
            pieces = []
        if not pieces:
            raise UsageError(f"{path}: not a SentencePiece model; expected the .model file of a trained one")
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
        """As :meth:`encode` of each, on all cores."""
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
        joined = self.processor.encode_as_pieces(text)[last] != before[last]  # by unknown characters behind it
        return ids[last:] if joined else ids[last + 1 :]

    def spans(self, text):
        encoded = self.processor.encode(text, return_type="proto").pieces
        in_bytes = np.frombuffer(text.encode("utf-8"), np.uint8)
        character = np.cumsum([0, *(in_bytes & 0xC0 != 0x80)]).tolist()  # the one that begins at a byte
        places = [(character[piece.begin], character[piece.end]) for piece in encoded]
        return self._tokens([piece.id for piece in encoded]), places

    def decode(self, tokens):
        pieces = [self.symbols[i] for i in tokens if i not in (BOS, PAD, EOS)]
        pieces = [WORD_START + MASK if piece == MASK else piece for piece in pieces]
        return self.processor.decode(pieces).replace(WORD_START + MASK, " " + MASK).strip()

    def show(self, token):
        return self.symbols[token].replace(WORD_START, " ").strip()

    def unknown(self, line):
        ids, pieces = self.processor.encode(line), self.processor.encode(line, out_type=str)
        return [piece for i, piece in zip(ids, pieces) if i == 0]


class BytePair(Subwords):
    """A byte-level BPE, as of `roberta-base`; a token is the file's own id.

    `<pad>` in a text is text, as for SentencePiece, not padding.

    Args:
        path: of tokenizer.json
        added: words that get a token behind the last one, for the word with a space in front of it
    Raises:
        ImportError: the package tokenizers is missing
        ValueError: no such file, another kind of vocabulary, ids 0 to 3 are not `<s> <pad> </s> <unk>`, or a word that
            the vocabulary never sees in one piece
    """

    file_name = TOKENIZER_JSON

    def __init__(self, path, added=()):
        import tokenizers  # of the extra `huggingface`

        split, self._decoder = tokenizers.pre_tokenizers.ByteLevel, tokenizers.decoders.ByteLevel()
        self._to_bytes = split(add_prefix_space=False, use_regex=False)
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
            read, file = tokenizers.Tokenizer.from_str(text), json.loads(text)
        except Exception as error:  # tokenizers raises Exception
            raise UsageError(
                f"{path}: not a tokenizer.json ({error}), expected one that transformers or tokenizers saved"
            ) from None
        check_byte_level(path, type(read.model).__name__, file, split.alphabet())
        symbols = [read.id_to_token(i) for i in range(read.get_vocab_size())]
        if symbols[: len(SPECIAL)] != SPECIAL or None in symbols or MASK not in symbols:
            raise UsageError(
                f"{path}: ids 0 to 3 are {' '.join(map(str, symbols[:4]))}, {MASK} is {read.token_to_id(MASK)}; "
                f"expected {' '.join(SPECIAL)}, a {MASK}, and no id without a token, as in roberta-base"
            )
        ids = {symbol: i for i, symbol in enumerate(symbols)}
        for word in added:
            first, *others = [part for part, _ in split(add_prefix_space=False).pre_tokenize_str(" " + word)]
            if others:
                raise UsageError(
                    f"{path}: {word!r} cannot become a token: text is split between letters, digits and other "
                    "characters before tokens are looked for; add words of letters alone"
                )
            ids.setdefault(first, len(ids))
        self._prefix = file["pre_tokenizer"]["add_prefix_space"]
        self._made = type(read).from_str(json.dumps(canonical(file, ids, extended=len(ids) > len(symbols))))
        self._made.post_processor = tokenizers.processors.RobertaProcessing(("</s>", EOS), ("<s>", BOS))
        self._made.decoder = self._decoder
        symbols = list(ids)
        for token in self._made.get_added_tokens_decoder().values():
            if token.content not in (*SPECIAL, MASK):
                symbols[ids[token.content]] = self._spelled(" " * token.lstrip + token.content)
        super().__init__(path, symbols)

    def _spelled(self, text):
        """Text in the letters that stand for bytes."""
        return "".join(part for part, _ in self._to_bytes.pre_tokenize_str(text))

    def words_added_to(self, other):
        words = [self.show(token) for token in range(len(other.symbols), len(self.symbols))]
        same = isinstance(other, BytePair) and self.symbols[: len(other.symbols)] == other.symbols
        same = same and BytePair(other.path, words).contents() == self.contents()
        return words if same else None

    def contents(self):
        """Of tokenizer.json: bytes, the same for all files that give the same tokens."""
        return self._made.to_str(pretty=True).encode()

    @functools.cached_property
    def _plain(self):
        plain = type(self._made).from_str(self._made.to_str())
        plain.encode_special_tokens = True
        return plain

    def encode(self, text):
        return self._made.encode(text, add_special_tokens=False).ids

    def encode_words(self, words):
        return [self.encode(" " + word) for word in words]

    def _plain_ids(self, lines):
        return [self._plain.encode(line, add_special_tokens=False).ids for line in lines]

    def spans(self, text):
        encoded = self._plain.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, tokens):
        pieces = [self.symbols[i] for i in tokens if i not in (BOS, PAD, EOS)]
        text = self._decoder.decode([self._spelled(" ") + piece if piece == MASK else piece for piece in pieces])
        return text[1:] if pieces[:1] == [MASK] or self._prefix else text

    def show(self, token):
        return self._decoder.decode([self.symbols[token]]).strip()


def check_byte_level(path, kind, file, alphabet):
    """Refuses a tokenizer.json that is no byte-level BPE, in which every text has tokens and comes back."""
    model, split = file["model"], file["pre_tokenizer"] or {}
    if kind != "BPE" or split.get("type") != "ByteLevel":
        raise UsageError(
            f"{path}: found {kind} of characters, expected byte-level BPE, as of roberta-base; if it was made from a "
            f"SentencePiece model, as of xlm-roberta-base, put that beside it as {NAMES[0]}; WordPiece, as of BERT, "
            "cannot be used: take another model"
        )
    ends = model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")
    missing = set(alphabet) - model["vocab"].keys()
    if ends or missing or not split.get("use_regex", True):
        found = f"the mark {ends!r} within words" if ends else f"no token for {len(missing)} of the 256 bytes"
        found = found if ends or missing else "no splitting of words"
        raise UsageError(f"{path}: found {found}, expected byte-level BPE as of roberta-base; take another vocabulary")


def canonical(file, ids, extended):
    """The contents of a tokenizer.json with these ids of all tokens, and without what files may have differently.

    Those are truncation, padding and dropout, and whether special symbols are marked as such. `<pad>` is no symbol of
    texts.
    """
    marked = {token["content"]: token for token in file["added_tokens"] if token["content"] != SPECIAL[PAD]}
    for symbol in [*SPECIAL[:PAD], *SPECIAL[EOS:], MASK]:
        plain = {"single_word": False, "lstrip": symbol == MASK, "rstrip": False}
        marked[symbol] = {**plain, **marked.get(symbol, {}), "content": symbol, "normalized": False, "special": True}
    marked = [{**token, "id": ids[content]} for content, token in marked.items()]
    model = {**file["model"], "vocab": ids, "dropout": None}
    if extended:
        model["ignore_merges"] = True  # added words are tokens, although no merges lead to them
    in_order = sorted(marked, key=lambda token: token["id"])
    return {**file, "truncation": None, "padding": None, "added_tokens": in_order, "model": model}


def read_subwords(path, added=()):
    """The vocabulary in a file, or in a folder under one of `NAMES`.

    Args:
        path: of a SentencePiece model, of a tokenizer.json, or of a folder
        added: words for new tokens, of a tokenizer.json only
    Returns:
        :class:`SentencePiece` or :class:`BytePair`
    Raises:
        FileNotFoundError: there is none
        ValueError: it cannot be used
        ImportError: the package tokenizers is missing
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        found = next((name for name in NAMES if os.path.isfile(os.path.join(path, name))), None)
        if found is None:
            raise MissingFileError(f"{path}: no vocabulary, expected {', '.join(NAMES[:-1])} or {NAMES[-1]}{fix(path)}")
        path = os.path.join(path, found)
    if not os.path.isfile(path):
        raise MissingFileError(
            f"{path}: not found, expected a SentencePiece model, a {TOKENIZER_JSON}, or a folder with either; download "
            "a model of the hub first, such as by `hf download NAME --local-dir DIR`"
        )
    if path.endswith(".json"):
        return BytePair(path, added)
    if added:
        raise UsageError(f"{path}: words can be added to a {TOKENIZER_JSON}, not to a SentencePiece model")
    return SentencePiece(path)


def fix(folder):
    """What to do about a folder with a vocabulary in another form."""
    there = set(os.listdir(folder))
    if "bpe.codes" in there:
        return "; found bpe.codes, fastBPE's, which cannot be used: take another model"
    if {"vocab.json", "merges.txt"} <= there:
        return (
            "; found vocab.json and merges.txt: let transformers write them as tokenizer.json, "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return "; found vocab.txt, WordPiece, which cannot be used: take another model" if "vocab.txt" in there else ""


def sequence(parts, limit=None):
    """Joins the tokens of a text to `<s> a </s>`, or those of a pair to `<s> a </s> </s> b </s>`.

    Args:
        parts: one or two lists of tokens
        limit: how many tokens the sequence may have; the longest part loses some at its end. None for any number
    Returns:
        list of tokens; how many were cut
    """
    sizes = [len(part) for part in parts]
    room = sum(sizes) if limit is None else max(0, limit - 2 * len(parts))
    for _ in range(sum(sizes) - room):
        sizes[sizes.index(max(sizes))] -= 1
    joined = [token for part, size in zip(parts, sizes) for token in (EOS, *part[:size], EOS)]
    return [BOS, *joined[1:]], sum(map(len, parts)) - sum(sizes)


def word_sequences(tokenizer, words, limit):
    """The tokens of words, each encoded by itself, as sequences `<s> ... </s>` that are cut between words.

    Args:
        tokenizer: :class:`Subwords`
        words: list of strings; a word that is normalised to nothing becomes `<unk>`
        limit: tokens that a sequence may have; a word that alone has more is cut
    Yields:
        list of tokens; the place in it of the first token of each of its words
    """
    part, starts = [], []
    for tokens in tokenizer.encode_words(words):
        tokens = tokens or [UNKNOWN]
        if part and len(part) + len(tokens) > limit - 2:
            yield sequence([part], limit)[0], starts
            part, starts = [], []
        starts.append(1 + len(part))
        part += tokens
    if part:
        yield sequence([part], limit)[0], starts
