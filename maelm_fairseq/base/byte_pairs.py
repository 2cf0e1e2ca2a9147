"""A byte-level BPE in a Hugging Face tokenizer.json as tokens."""

import functools
import json

from .errors import UsageError
from .opening import reading
from .subwords import BOS, EOS, MASK, PAD, SPECIAL, Subwords
from .utf8 import read_text

TOKENIZER_JSON = "tokenizer.json"
PUBLISHED = "sentencepiece.bpe.model"  # what a SentencePiece model is called beside one


class BytePair(Subwords):
    """A byte-level BPE, as of `roberta-base`; a token is the file's own id.

    `<pad>` in a text is text, as for SentencePiece, not padding.

    Args:
        path: of tokenizer.json
        added: words that get a token after the last one, for the word with a space before it
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
        text = read_text(path)
        with reading(path, "a tokenizer.json that transformers or tokenizers saved", "copy or download it again"):
            read, file = tokenizers.Tokenizer.from_str(text), json.loads(text)
        check_byte_level(path, type(read.model).__name__, file, split.alphabet())
        symbols = [read.id_to_token(i) for i in range(read.get_vocab_size())]
        if symbols[: len(SPECIAL)] != SPECIAL or None in symbols or MASK not in symbols:
            raise UsageError(
                f"{path}: ids 0 to 3 are {' '.join(map(str, symbols[:4]))}, {MASK} is {read.token_to_id(MASK)}; "
                f"expected {' '.join(SPECIAL)}, a {MASK}, and no id without a token, as in roberta-base"
            )
        ids = {symbol: i for i, symbol in enumerate(symbols)}
        for word in added:
            text = read.normalizer.normalize_str(" " + word) if read.normalizer else " " + word
            first, *others = [part for part, _ in split(add_prefix_space=False).pre_tokenize_str(text)]
            if others:
                raise UsageError(
                    f"--add-tokens: {word!r} cannot become a token of {path}: text is split between letters, digits "
                    "and other characters before tokens are looked for; add words of letters alone"
                )
            ids.setdefault(first, len(ids))
        self._prefix = file["pre_tokenizer"]["add_prefix_space"]
        self._made = type(read).from_str(json.dumps(canonical(file, ids, extended=len(ids) > len(symbols))))
        self.trims_places = trims_offsets(file["post_processor"] or {})
        self._made.post_processor = tokenizers.processors.RobertaProcessing(
            ("</s>", EOS), ("<s>", BOS), trim_offsets=self.trims_places, add_prefix_space=self._prefix
        )
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

    def contents(self, of_words=False):
        """Of tokenizer.json: bytes, the same for all files that give the same tokens.

        With `of_words`, each text gets a space before it, as the words have it that are given one by one.
        """
        if not of_words:
            return self._made.to_str(pretty=True).encode()
        file = json.loads(self._made.to_str())
        for part in ("pre_tokenizer", "post_processor"):
            file[part]["add_prefix_space"] = True
        return type(self._made).from_str(json.dumps(file)).to_str(pretty=True).encode()

    def _taking(self, symbols, of_words=False):
        """A tokenizer for which, of the special symbols and `<mask>` in a text, these are tokens, and others text."""
        file = json.loads(self.contents(of_words))
        for token in file["added_tokens"]:
            token["special"] = token["content"] in {*SPECIAL, MASK} - {*symbols}
        taking = type(self._made).from_str(json.dumps(file))
        taking.encode_special_tokens = True
        return taking

    @functools.cached_property
    def _plain(self):
        return self._taking([])

    @functools.cached_property
    def _with_mask(self):
        return self._taking([MASK])

    @functools.cached_property
    def _of_words(self):
        return self._taking([MASK], of_words=True)

    def encode(self, text):
        return self._with_mask.encode(text, add_special_tokens=False).ids

    def encode_words(self, words):
        return [self._of_words.encode(word, add_special_tokens=False).ids for word in words]

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


def trims_offsets(post_processor):
    """Whether a tokenizer.json leaves the spaces before words out of the places of their tokens."""
    for part in post_processor.get("processors", [post_processor]):
        if "trim_offsets" in part:
            return part["trim_offsets"]
    return True


def check_byte_level(path, kind, file, alphabet):
    """Refuses a tokenizer.json that is no byte-level BPE, in which every text has tokens and comes back."""
    model, split = file["model"], file["pre_tokenizer"] or {}
    if kind != "BPE" or split.get("type") != "ByteLevel":
        raise UsageError(
            f"{path}: found {kind} of characters, expected byte-level BPE, as of roberta-base; if it was made from a "
            f"SentencePiece model, as of xlm-roberta-base, put that beside it as {PUBLISHED}; WordPiece, as of BERT, "
            "cannot be used: take another model"
        )
    mark = model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")
    missing = len(set(alphabet) - model["vocab"].keys())
    faults = {
        f"the mark {mark!r} within words": mark,
        f"no token for {missing} of the 256 bytes": missing,
        "no splitting of words": not split.get("use_regex", True),
    }
    found = next((fault for fault, is_there in faults.items() if is_there), None)
    if found:
        raise UsageError(f"{path}: found {found}, expected byte-level BPE as of roberta-base; take another vocabulary")


def canonical(file, ids, extended):
    """The contents of a tokenizer.json with these ids of all tokens, and without what files may have differently.

    They are truncation, padding, dropout, whether special symbols are marked as such. Texts have no symbol `<pad>`.
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
