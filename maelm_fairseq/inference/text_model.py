"""A model with its vocabulary: text to tokens, and back.

Letters in shapes: B texts, T tokens of a text.
"""

import torch
from torch.nn.utils.rnn import pad_sequence

from ..base.errors import UsageError
from ..base.text_input import texts_or_pairs, tokens_of
from ..base.tokenizer import MASK
from ..checkpoints.checkpoint_info import CheckpointInfo
from ..config import check_positions

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SHORTEN_OR_SPLIT = "shorten it or split it"
SHORTEN_SPLIT_OR_TRUNCATE = "shorten it, split it, or add truncate=True"


class TextModel:
    """A model with its vocabulary.

    Args:
        model: `model.MaeLmModel`, in evaluation mode
        dictionary: fairseq's, with `<mask>`
        tokenizer: `tokenizer.Tokenizer`
        data: folder of the vocabulary
        info: `checkpoint_info.CheckpointInfo`
    """

    def __init__(self, model, dictionary, tokenizer, data, info=None):
        self.model = model
        self.dictionary = dictionary
        self.tokenizer = tokenizer
        self.data = data
        self.info = info or CheckpointInfo()
        self.masks_in_encoder = self.info.masks_in_encoder
        self.mask_id = dictionary.index(MASK)

    def __repr__(self):
        cfg = self.model.cfg
        parts = [
            f"{cfg.encoder_layers} layers of width {cfg.encoder_embed_dim}",
            f"{len(self.dictionary):,} tokens",
            f"{self.model.max_positions()} positions",
        ]
        if self.model.classification_heads:
            parts.append("fine-tuned on " + ", ".join(self.model.classification_heads))
        return f"{type(self).__name__}({', '.join(parts)})"

    def to(self, device):
        """Moves the model to a device, where everything then runs; returns self."""
        self.model.to(device)
        return self

    @property
    def device(self):
        """The device of the model's weights."""
        return self.model.embed_tokens.weight.device

    def encode(self, text, pair=None, truncate=False):
        """Text to tokens: `<s> a </s>`, or `<s> a </s> </s> b </s>` for a pair.

        Args:
            text: a string, with `<mask>` where a token is to be predicted; or a list of B strings
            pair: the second text, or a list of B
            truncate: cut longer texts to the model's positions
        Returns: int64 (T,); for lists (B, T), padded at the end, and (0, 0) for an empty one
        Raises:
            UsageError: lists of different lengths
            TypeError: not a string or a list of strings, or one of `text` and `pair` is a string
                and the other a list
        """
        limit = self.model.max_positions() if truncate else None
        sequences = []
        for first, second in texts_or_pairs(text, pair):
            sequences.append(self.tokens_of_text(first, second, limit))
        return sequences[0] if isinstance(text, str) else self.pad(sequences)

    def decode(self, tokens):
        """Tokens to text, as far as the vocabulary keeps it.

        Args:
            tokens: int64 (T,) or (B, T); `<s>`, `</s>` and padding are skipped
        Returns: a string, or a list of B strings
        Raises:
            TypeError: not a tensor of integers of one or two dimensions
            UsageError: no tokens of this vocabulary
        """
        token_ids = checked_tokens(tokens, len(self.dictionary)).tolist()
        if tokens.dim() == 1:
            return self.tokenizer.decode(token_ids)
        return [self.tokenizer.decode(row) for row in token_ids]

    def tokens_of_text(self, text, pair=None, limit=None):
        """The tokens of a text or a pair, int64 (T,), at most `limit` of them."""
        return torch.tensor(tokens_of(self.tokenizer, text, pair, limit))

    def pad(self, sequences):
        """A list of B tensors (T_i,) -> (B, T)."""
        if not sequences:
            return torch.empty(0, 0, dtype=torch.int64)
        return pad_sequence(sequences, batch_first=True, padding_value=self.dictionary.pad())

    def check_length(self, length, text="the text", advice=SHORTEN_SPLIT_OR_TRUNCATE):
        """Refuses a text with more tokens than the model has positions, and says how to mend it."""
        positions = self.model.max_positions()
        check_positions(length, positions, f"{text} has {length} tokens", advice)


def checked_tokens(tokens, vocabulary_size, dimensions=(1, 2)):
    """Tokens as int64; refuses anything but a tensor of tokens of a vocabulary of this size."""
    is_tensor = isinstance(tokens, torch.Tensor)
    if not is_tensor or tokens.dtype not in INTEGERS or tokens.dim() not in dimensions:
        shapes = " or ".join("(T,)" if count == 1 else "(B, T)" for count in dimensions)
        raise TypeError(f"tokens must be a tensor of integers, {shapes}, as encode() returns")
    if tokens.numel():
        lowest, highest = int(tokens.min()), int(tokens.max())
        last = vocabulary_size - 1
        if lowest < 0 or highest > last:
            raise UsageError(
                f"tokens from {lowest} to {highest}, expected 0 to {last}: "
                "use tokens of this model's vocabulary"
            )
    return tokens.long()


def lengths_of(tokens, pad):
    """Tokens (B, T) -> how many of each row are not padding, (B,).

    Padding anywhere but at the end is refused: it would silently shift positions and features.
    """
    real = tokens.ne(pad)
    lengths = real.sum(1)
    at_the_end = torch.arange(tokens.size(1), device=tokens.device) < lengths[:, None]
    if not tokens.numel() or not lengths.all() or not real.equal(at_the_end):
        raise UsageError(
            f"expected tokens in each row and padding (token {pad}) at the end only, "
            "as from encode()"
        )
    return lengths
