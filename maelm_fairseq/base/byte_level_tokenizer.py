"""A byte-level BPE in a Hugging Face tokenizer.json as tokens."""

import functools
import json

from .errors import UsageError
from .opening import as_usage_error
from .tokenizer import BOS, EOS, MASK, PAD, SPECIAL_SYMBOLS, Tokenizer
from .utf8 import read_text

TOKENIZER_JSON = "tokenizer.json"
# The name of a SentencePiece model that is published beside a tokenizer.json.
PUBLISHED_SENTENCEPIECE = "sentencepiece.bpe.model"


class ByteLevelTokenizer(Tokenizer):
    """A byte-level BPE, such as `roberta-base` has; a token is the file's own id.

    `<pad>` in a text is text, as for SentencePiece, not padding.

    Args:
        path: of tokenizer.json
        added: words that get a token after the last one, for the word with a space before it
    Raises:
        ImportError: the package tokenizers is missing
        UsageError: no such file, another kind of vocabulary, ids 0 to 3 are not
            `<s> <pad> </s> <unk>`, or an added word that the tokenizer always splits
    """

    file_name = TOKENIZER_JSON

    def __init__(self, path, added=()):
        import tokenizers  # of the extra `huggingface`

        byte_level = tokenizers.pre_tokenizers.ByteLevel
        self._decoder = tokenizers.decoders.ByteLevel()
        self._to_bytes = byte_level(add_prefix_space=False, use_regex=False)
        text = read_text(path)
        expected = "a tokenizer.json that transformers or tokenizers saved"
        with as_usage_error(path, expected, "copy or download it again"):
            original = tokenizers.Tokenizer.from_str(text)
            file = json.loads(text)
        check_byte_level(path, type(original.model).__name__, file, byte_level.alphabet())
        symbols = symbols_of(path, original)
        ids = {symbol: i for i, symbol in enumerate(symbols)}
        to_words = byte_level(add_prefix_space=False)
        for word in added:
            ids.setdefault(symbol_of_word(path, word, original.normalizer, to_words), len(ids))

        self._prefix = file["pre_tokenizer"]["add_prefix_space"]
        contents = to_canonical_contents(file, ids, extended=len(ids) > len(symbols))
        self._tokenizer = type(original).from_str(json.dumps(contents))
        self.trims_offsets = trims_offsets(file["post_processor"] or {})
        self._tokenizer.post_processor = tokenizers.processors.RobertaProcessing(
            ("</s>", EOS),
            ("<s>", BOS),
            trim_offsets=self.trims_offsets,
            add_prefix_space=self._prefix,
        )
        self._tokenizer.decoder = self._decoder
        super().__init__(path, self._spelled_symbols(ids))

    def _spelled_symbols(self, ids):
        """All symbols in order; added words are spelled in the letters that stand for bytes."""
        symbols = list(ids)
        for token in self._tokenizer.get_added_tokens_decoder().values():
            if token.content not in (*SPECIAL_SYMBOLS, MASK):
                text = " " + token.content if token.lstrip else token.content
                symbols[ids[token.content]] = self._spelled(text)
        return symbols

    def _spelled(self, text):
        """Text in the letters that stand for bytes."""
        return "".join(part for part, _ in self._to_bytes.pre_tokenize_str(text))

    def words_added_to(self, other):
        size = len(other.symbols)
        words = [self.token_text(token) for token in range(size, len(self.symbols))]
        if not isinstance(other, ByteLevelTokenizer) or self.symbols[:size] != other.symbols:
            return None
        is_extension = ByteLevelTokenizer(other.path, words).file_bytes() == self.file_bytes()
        return words if is_extension else None

    def file_bytes(self, for_words=False):
        """The contents of a tokenizer.json: the same bytes for all files that give the same tokens.

        With `for_words`, each text gets a space before it, for words that are encoded one by one.
        """
        if not for_words:
            return self._tokenizer.to_str(pretty=True).encode()
        file = json.loads(self._tokenizer.to_str())
        for part in ("pre_tokenizer", "post_processor"):
            file[part]["add_prefix_space"] = True
        tokenizer = type(self._tokenizer).from_str(json.dumps(file))
        return tokenizer.to_str(pretty=True).encode()

    def _reading(self, symbols, for_words=False):
        """A tokenizer that reads only these symbols in a text as tokens.

        The other special symbols, and `<mask>` if it is not among them, are text.
        """
        file = json.loads(self.file_bytes(for_words))
        for token in file["added_tokens"]:
            token["special"] = token["content"] in {*SPECIAL_SYMBOLS, MASK} - {*symbols}
        tokenizer = type(self._tokenizer).from_str(json.dumps(file))
        tokenizer.encode_special_tokens = True
        return tokenizer

    @functools.cached_property
    def _plain(self):
        return self._reading([])

    @functools.cached_property
    def _with_mask(self):
        return self._reading([MASK])

    @functools.cached_property
    def _word_encoder(self):
        return self._reading([MASK], for_words=True)

    def encode(self, text):
        return self._with_mask.encode(text, add_special_tokens=False).ids

    def encode_words(self, words):
        return [self._word_encoder.encode(word, add_special_tokens=False).ids for word in words]

    def _plain_ids(self, lines):
        return [self._plain.encode(line, add_special_tokens=False).ids for line in lines]

    def encode_with_offsets(self, text):
        encoded = self._plain.encode(text, add_special_tokens=False)
        return encoded.ids, encoded.offsets

    def decode(self, tokens):
        pieces = [self.symbols[i] for i in tokens if i not in (BOS, PAD, EOS)]
        mask = self._spelled(" ") + MASK
        text = self._decoder.decode([mask if piece == MASK else piece for piece in pieces])
        has_added_space = pieces[:1] == [MASK] or self._prefix
        return text[1:] if has_added_space else text

    def token_text(self, token):
        return self._decoder.decode([self.symbols[token]]).strip()


def symbols_of(path, tokenizer):
    """The symbols of a tokenizer, in the order of their ids.

    Raises UsageError: the special symbols or `<mask>` are missing, or have other ids
    """
    symbols = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    if symbols[: len(SPECIAL_SYMBOLS)] != SPECIAL_SYMBOLS or None in symbols or MASK not in symbols:
        first = " ".join(map(str, symbols[:4]))
        raise UsageError(
            f"{path}: ids 0 to 3 are {first}, {MASK} is {tokenizer.token_to_id(MASK)}; expected "
            f"{' '.join(SPECIAL_SYMBOLS)}, a {MASK}, and no id without a token, as in roberta-base"
        )
    return symbols


def symbol_of_word(path, word, normalizer, to_words):
    """The symbol of a word to add, with a space before it.

    Args:
        path: of tokenizer.json, for the message
        word: a string
        normalizer: normalizer of the tokenizer; None if it has none
        to_words: the pre-tokenizer that splits text into words
    Raises UsageError: text is always split within such a word
    """
    text = " " + word
    if normalizer:
        text = normalizer.normalize_str(text)
    symbol, *others = [part for part, _ in to_words.pre_tokenize_str(text)]
    if others:
        raise UsageError(
            f"--add-tokens: {word!r} cannot become a token of {path}: text is split between "
            "letters, digits and other characters before tokens are looked for; add words of "
            "letters alone"
        )
    return symbol


def trims_offsets(post_processor):
    """Whether a tokenizer.json leaves the spaces before words out of the places of their tokens."""
    for part in post_processor.get("processors", [post_processor]):
        if "trim_offsets" in part:
            return part["trim_offsets"]
    return True


def check_byte_level(path, model_type, file, alphabet):
    """Refuses a tokenizer.json that is not a byte-level BPE.

    With one, every text has tokens, and can be decoded from them.
    """
    pre_tokenizer = file["pre_tokenizer"] or {}
    if model_type != "BPE" or pre_tokenizer.get("type") != "ByteLevel":
        raise UsageError(
            f"{path}: found {model_type} of characters, expected byte-level BPE, like "
            "roberta-base's; if it was made from a SentencePiece model, like xlm-roberta-base's, "
            f"put that beside it as {PUBLISHED_SENTENCEPIECE}; WordPiece, like BERT's, cannot be "
            "used: take another model"
        )
    found = fault_of(file["model"], pre_tokenizer, alphabet)
    if found:
        raise UsageError(
            f"{path}: found {found}, expected byte-level BPE, like roberta-base's; take another "
            "vocabulary"
        )


def fault_of(model, pre_tokenizer, alphabet):
    """Why a BPE is not one of bytes, in words; None if it is one."""
    mark = model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")
    if mark:
        return f"the mark {mark!r} within words"
    missing = len(set(alphabet) - model["vocab"].keys())
    if missing:
        return f"no token for {missing} of the 256 bytes"
    if not pre_tokenizer.get("use_regex", True):
        return "no splitting of words"
    return None


def to_canonical_contents(file, ids, extended):
    """The contents of a tokenizer.json with these ids of all tokens, without what may vary.

    Files that give the same tokens may differ in truncation, padding, dropout, and in whether
    special symbols are marked as such. Texts have no symbol `<pad>`.
    """
    entries = {}
    for token in file["added_tokens"]:
        if token["content"] != SPECIAL_SYMBOLS[PAD]:
            entries[token["content"]] = token
    for symbol in [*SPECIAL_SYMBOLS[:PAD], *SPECIAL_SYMBOLS[EOS:], MASK]:
        defaults = {"single_word": False, "lstrip": symbol == MASK, "rstrip": False}
        fixed = {"content": symbol, "normalized": False, "special": True}
        entries[symbol] = {**defaults, **entries.get(symbol, {}), **fixed}
    added_tokens = [{**token, "id": ids[content]} for content, token in entries.items()]
    added_tokens.sort(key=lambda token: token["id"])
    model = {**file["model"], "vocab": ids, "dropout": None}
    if extended:
        model["ignore_merges"] = True  # added words are tokens, although no merges lead to them
    changes = {"truncation": None, "padding": None, "added_tokens": added_tokens, "model": model}
    return {**file, **changes}
