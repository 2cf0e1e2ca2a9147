"""Selects the positions to predict and takes them out of what the encoder reads.

Letters in shapes: B blocks, T tokens of a block, V positions the encoder sees, M masked ones it does not, K predicted.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from .base.errors import UsageError
from .base.settings import TINY, setting, validate
from .base.subwords import MASK, UNKNOWN
from .vocabulary import word_starts

NO_POSITION = -1  # what padding has for a position
# Independent streams of random numbers: how many positions are selected, and which.
HOW_MANY, WHICH = 0, 1


@dataclass
class MaskSettings:
    """Which share of the positions is predicted, and what the encoder sees there; the task's options.

    Raises ValueError: a setting is out of range, or they contradict each other
    """

    mask_prob: float = setting(0.15, "share of positions that are predicted", least=TINY, most=1 - TINY)
    leave_unmasked_prob: float = setting(
        0.0, "share of the predicted positions that the encoder sees unchanged", least=0, most=1
    )
    random_token_prob: float = setting(
        0.0, "share of the predicted positions at which the encoder sees a random token", 0, 1
    )
    encoder_mask_fraction: float = setting(
        0.0, "share of masked positions that the encoder sees as [MASK]; 1 for MLM", 0, 1
    )
    mask_whole_words: bool = setting(False, "select whole words (needs a vocabulary that marks where words begin)")

    def __post_init__(self):
        validate(self, MaskSettings)
        if self.leave_unmasked_prob + self.random_token_prob > 1:
            raise UsageError(
                f"--leave-unmasked-prob {self.leave_unmasked_prob} and --random-token-prob {self.random_token_prob} "
                "add up to more than 1: they are shares of the same positions"
            )


@lru_cache(maxsize=10_000)
def rounding(seed, epoch, n):
    """Two numbers in [0, 1) that decide whether counts are rounded up or down.

    They depend on (seed, epoch, n) alone: blocks of equal length have equally many positions selected, so that a
    batch of them needs no padding, and the expectation of every count is exact.
    """
    return np.random.default_rng([seed, epoch, HOW_MANY, n]).random(2)


class MaskedBlock(NamedTuple):
    """One block; `context`, `predicted_visible` and `masked` partition its positions 0..T-1.

    The encoder reads `context` and `predicted_visible`, V positions; K are predicted, `predicted_visible` and `masked`.
    """

    context: np.ndarray  # positions that the encoder sees and that are not predicted
    context_tokens: np.ndarray
    predicted_visible: np.ndarray  # predicted positions at which the encoder sees something
    predicted_visible_tokens: np.ndarray  # what it sees: the token itself, a random one, or [MASK]
    masked: np.ndarray  # predicted positions that the encoder never sees: the decoder puts [MASK] there
    targets: np.ndarray  # (K,) the original tokens at `predicted_visible`, then at `masked`


class MaskedBatch(NamedTuple):
    """What the model reads. Every row carries its position, so the order of rows is free.

    It is this: context, visible predicted tokens, masked positions. The first two are what the encoder sees. Of all
    rows, the last K are predicted, and the last M of those are masked. Each of the three is padded at its own end.
    """

    src_tokens: torch.Tensor  # (B, V) what the encoder sees
    positions: torch.Tensor  # (B, V) their original positions, NO_POSITION for padding
    masked_positions: torch.Tensor  # (B, M) predicted positions that the encoder does not see
    num_predicted: int  # K
    padded: bool = True  # False if the batch is known to have no padding

    @classmethod
    def of(cls, blocks, pad):
        """A batch of `MaskedBlock`, and the targets at its predicted rows; `pad` is the token at padding.

        Returns: (MaskedBatch, int64 tensor (B, K))
        """

        def merge(value, *groups):
            padded = [pad_sequence([torch.from_numpy(row) for row in rows], True, value) for rows in groups]
            return torch.cat(padded, dim=1)

        tokens = merge(pad, [b.context_tokens for b in blocks], [b.predicted_visible_tokens for b in blocks])
        positions = merge(NO_POSITION, [b.context for b in blocks], [b.predicted_visible for b in blocks])
        masked = merge(NO_POSITION, [b.masked for b in blocks])
        target = merge(pad, *zip(*(np.split(b.targets, [len(b.predicted_visible)]) for b in blocks)))
        rows = sum(len(b.context) + len(b.targets) for b in blocks)
        padded = tokens.numel() + masked.numel() > rows
        return cls(tokens, positions, masked, target.size(1), padded), target

    def with_visible_masks(self, target, share, rounding, mask_token, pad):
        """The same batch with a share of the masked positions of each block seen by the encoder, as [MASK].

        They are the first of `masked_positions`, whose order is random, and follow what the encoder sees already.

        Args:
            target: (B, K)
            share: from 0 to 1
            rounding: in [0, 1), drawn uniformly, so that the expectation of the share is exact
        Returns: (MaskedBatch, int64 tensor (B, its K)); K grows by the padding that blocks of different counts need
        """
        masked, M = self.masked_positions, self.masked_positions.size(1)
        counts = (share * masked.ne(NO_POSITION).sum(1, keepdim=True).double() + rounding).long()
        least, most = (int(counts.min()), int(counts.max())) if self.padded else (int(share * M + rounding),) * 2
        visible, target = target.tensor_split([target.size(1) - M], dim=1)
        left_out = torch.arange(M, device=masked.device) >= counts
        seen, hidden = masked[:, :most].masked_fill(left_out[:, :most], NO_POSITION), masked[:, least:]
        target_seen = target[:, :most].masked_fill(left_out[:, :most], pad)
        target_hidden = target[:, least:].masked_fill(~left_out[:, least:], pad)
        tokens = torch.full_like(seen, mask_token).masked_fill(seen.eq(NO_POSITION), pad)
        batch = self._replace(
            src_tokens=torch.cat([self.src_tokens, tokens], dim=1),
            positions=torch.cat([self.positions, seen], dim=1),
            masked_positions=hidden.masked_fill(~left_out[:, least:], NO_POSITION),
            num_predicted=self.num_predicted + most - least,
        )
        return batch, torch.cat([visible, target_seen, target_hidden], dim=1)


class Masking:
    """Draws the masks of a block from (seed, epoch, index) alone, with `MaskSettings`.

    Raises ValueError: whole words are to be masked, and no symbol begins a word
    """

    def __init__(self, settings, dictionary, seed: int):
        self.mask_prob = settings.mask_prob
        unmasked, visible = settings.leave_unmasked_prob, settings.leave_unmasked_prob + settings.random_token_prob
        self.visible_shares = unmasked, visible, visible + settings.encoder_mask_fraction * (1 - visible)
        self.mask_token = dictionary.index(MASK)
        self.text_tokens = range(dictionary.nspecial, len(dictionary))  # `<mask>` is among them
        self.word_starts = word_starts(dictionary) if settings.mask_whole_words else None
        self.seed = seed

    def __call__(self, tokens: np.ndarray, epoch: int, index: int) -> MaskedBlock:
        """Masks a block.

        Args:
            tokens: (T,) int64, `<s>` first; `<s>` is never selected, since classifiers read it
            epoch: counted from 1
            index: of the block in its dataset
        """
        rng = np.random.default_rng([self.seed, epoch, WHICH, index])
        if self.word_starts is None:
            n = len(tokens) - 1
        else:
            # At the beginning of a line, after `</s>`, a word may begin without a mark of its own.
            starts = self.word_starts[tokens[1:]] | (tokens[:-1] < UNKNOWN)
            word = np.cumsum(starts) - 1
            n = int(word[-1]) + 1 if len(word) else 0

        round_n, round_k = rounding(self.seed, epoch, n)
        selected = rng.choice(n, min(n, int(self.mask_prob * n + round_n)), replace=False)
        if self.word_starts is not None:
            chosen = np.zeros(n, dtype=bool)
            chosen[selected] = True
            selected = rng.permutation(np.flatnonzero(chosen[word]))
        selected = selected + 1  # after <s>

        k = len(selected)
        unmasked, random, visible = (min(k, int(share * k + round_k)) for share in self.visible_shares)
        seen = tokens[selected[:visible]]
        if random > unmasked:
            drawn = rng.integers(self.text_tokens.start, self.text_tokens.stop - 1, random - unmasked)
            seen[unmasked:random] = drawn + (drawn >= self.mask_token)
        seen[random:] = self.mask_token

        is_context = np.ones(len(tokens), dtype=bool)
        is_context[selected] = False
        context = np.flatnonzero(is_context)
        return MaskedBlock(context, tokens[context], selected[:visible], seen, selected[visible:], tokens[selected])
