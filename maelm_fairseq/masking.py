"""Selects the positions to predict and takes them out of what the encoder reads.

Letters in shapes: T tokens of a block, K predicted positions, V positions the encoder sees.
"""

from functools import lru_cache
from typing import NamedTuple, Optional

import numpy as np

# Streams of random numbers that must not meet: one for how many positions, one for which.
HOW_MANY, WHICH = 0, 1


@lru_cache(maxsize=10_000)
def rounding(seed, epoch, n):
    """Two numbers in [0, 1) that decide which way counts are rounded.

    They depend on (seed, epoch, n) alone: blocks of equal length lose equally many positions, so that a batch
    of them needs no padding, and the expectation of every count is exact.
    """
    return np.random.default_rng([seed, epoch, HOW_MANY, n]).random(2)


class MaskedBlock(NamedTuple):
    """One block, its positions in three groups: `context`, `predicted_visible` and `masked` partition 0..T-1.

    The encoder reads `context` and `predicted_visible` (V positions); `predicted_visible` and `masked` are predicted (K).
    """

    context: np.ndarray  # positions that the encoder sees and that are not predicted
    context_tokens: np.ndarray
    predicted_visible: np.ndarray  # predicted positions at which the encoder sees something
    predicted_visible_tokens: np.ndarray  # what it sees: the token itself, a random one, or [MASK]
    masked: np.ndarray  # predicted positions that the encoder never sees: the decoder puts [MASK] there
    targets: np.ndarray  # (K,) the original tokens at `predicted_visible`, then at `masked`


class Masking:
    """Draws the masks of a block from (seed, epoch, index) alone.

    Args:
        mask_prob: share of positions to predict, in (0, 1)
        leave_unmasked_prob: share of those that the encoder sees as they are
        random_token_prob: share of those that the encoder sees as a random token
        encoder_mask_fraction: share of the rest that the encoder sees as [MASK] (Figure 4 of the paper)
        mask_token: index of [MASK]
        random_tokens: first and one-after-last index to draw random tokens from
        word_starts: bool array over the vocabulary, for whole-word masking; None masks single tokens
        seed: of all draws
    """

    def __init__(
        self,
        mask_prob: float,
        leave_unmasked_prob: float,
        random_token_prob: float,
        encoder_mask_fraction: float,
        mask_token: int,
        random_tokens: tuple,
        word_starts: Optional[np.ndarray],
        seed: int,
    ):
        self.mask_prob = mask_prob
        visible = leave_unmasked_prob + random_token_prob
        self.visible_shares = leave_unmasked_prob, visible, visible + encoder_mask_fraction * (1 - visible)
        self.mask_token = mask_token
        self.random_tokens = random_tokens
        self.word_starts = word_starts
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
            starts = self.word_starts[tokens[1:]]
            word = np.cumsum(starts) - starts[:1]  # a block may begin inside a word
            n = int(word[-1]) + 1 if len(word) else 0

        round_n, round_k = rounding(self.seed, epoch, n)
        selected = rng.choice(n, min(n, int(self.mask_prob * n + round_n)), replace=False)
        if self.word_starts is not None:
            chosen = np.zeros(n, dtype=bool)
            chosen[selected] = True
            selected = rng.permutation(np.flatnonzero(chosen[word]))
        selected = selected + 1  # behind <s>

        k = len(selected)
        unmasked, random, visible = (min(k, int(share * k + round_k)) for share in self.visible_shares)
        seen = tokens[selected[:visible]]
        if random > unmasked:
            seen[unmasked:random] = rng.integers(*self.random_tokens, size=random - unmasked)
        seen[random:] = self.mask_token

        is_context = np.ones(len(tokens), dtype=bool)
        is_context[selected] = False
        context = np.flatnonzero(is_context)
        return MaskedBlock(context, tokens[context], selected[:visible], seen, selected[visible:], tokens[selected])
