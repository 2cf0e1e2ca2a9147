"""Tokens of texts, as tensors: padded, and checked before a model reads them.

Letters in shapes: B texts, T tokens of a text.
"""

import torch
from torch.nn.utils.rnn import pad_sequence

from ..base.errors import UsageError
from ..base.text_input import texts_or_pairs, tokens_of
from ..config import check_positions

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SHORTEN_OR_SPLIT = "shorten it or split it"
SHORTEN_SPLIT_OR_TRUNCATE = "shorten it, split it, or add truncate=True"


def encode(hub_model, text, pair, truncate):
    """As `hub.MaeLm.encode`."""
    limit = hub_model.model.max_positions() if truncate else None
    rows = []
    for first, second in texts_or_pairs(text, pair):
        rows.append(tokens_of_text(hub_model, first, second, limit))
    if not rows:
        raise UsageError("an empty list, expected at least one text")
    return rows[0] if isinstance(text, str) else padded(rows, hub_model.dictionary.pad())


def tokens_of_text(hub_model, text, pair=None, limit=None):
    """The tokens of a text or a pair, int64 (T,), at most `limit` of them."""
    return torch.tensor(tokens_of(hub_model.tokenizer, text, pair, limit))


def decode(hub_model, tokens):
    """As `hub.MaeLm.decode`."""
    token_ids = checked_tokens(tokens, len(hub_model.dictionary)).tolist()
    if tokens.dim() == 1:
        return hub_model.tokenizer.decode(token_ids)
    return [hub_model.tokenizer.decode(row) for row in token_ids]


def padded(rows, pad):
    """A list of B tensors (T_i,) -> (B, T)."""
    return pad_sequence(rows, batch_first=True, padding_value=pad)


def checked_tokens(tokens, vocabulary, dimensions=(1, 2)):
    """Tokens as int64; refuses what is no tensor of tokens of a vocabulary of this size."""
    is_tensor = isinstance(tokens, torch.Tensor)
    if not is_tensor or tokens.dtype not in INTEGERS or tokens.dim() not in dimensions:
        shapes = " or ".join("(T,)" if count == 1 else "(B, T)" for count in dimensions)
        raise TypeError(f"tokens must be a tensor of integers, {shapes}, as encode() returns")
    if tokens.numel():
        least, most = int(tokens.min()), int(tokens.max())
        last = vocabulary - 1
        if least < 0 or most > last:
            raise UsageError(
                f"tokens from {least} to {most}, expected 0 to {last}: "
                "use tokens of this model's vocabulary"
            )
    return tokens.long()


def lengths_of(rows, pad):
    """Tokens (B, T) -> how many of each row are no padding, (B,).

    Padding anywhere but at the end is refused: it would silently shift positions and features.
    """
    real = rows.ne(pad)
    lengths = real.sum(1)
    at_the_end = torch.arange(rows.size(1), device=rows.device) < lengths[:, None]
    if not rows.numel() or not lengths.all() or not real.equal(at_the_end):
        raise UsageError(
            f"expected tokens in each row and padding (token {pad}) at the end only, "
            "as from encode()"
        )
    return lengths


def check_length(hub_model, length, text="the text", fix=SHORTEN_SPLIT_OR_TRUNCATE):
    """Refuses a text of more tokens than the model has positions, and tells the user a `fix`."""
    most = hub_model.model.max_positions()
    check_positions(length, most, f"{text} has {length} tokens", fix)
