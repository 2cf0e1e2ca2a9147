"""Selects the positions to predict and takes them out of what the encoder reads.

Letters in shapes: B blocks, T tokens of a block, V positions the encoder sees, M masked ones it
does not, K predicted.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from .base.errors import UsageError
from .base.option_fields import check_ranges, setting
from .base.tokenizer import MASK, UNKNOWN
from .vocabulary import dictionary_word_starts

NO_POSITION = -1  # the position of padding
# Different streams of random numbers: how many positions are selected, and which.
COUNT_STREAM = 0
POSITION_STREAM = 1


@dataclass
class MaskSettings:
    """Options of the task: how many positions are predicted, and what the encoder sees there.

    Raises UsageError: a setting is out of range, or they contradict each other
    """

    mask_prob: float = setting(
        0.15, "share of positions that are predicted", minimum=0, maximum=1, excluded=(0, 1)
    )
    leave_unmasked_prob: float = setting(
        0.0,
        "share of the predicted positions that the encoder sees unchanged",
        minimum=0,
        maximum=1,
    )
    random_token_prob: float = setting(
        0.0,
        "share of the predicted positions at which the encoder sees a random token",
        minimum=0,
        maximum=1,
    )
    encoder_mask_fraction: float = setting(
        0.0,
        "share of masked positions that the encoder sees as [MASK]; 1 for MLM",
        minimum=0,
        maximum=1,
    )
    mask_whole_words: bool = setting(
        False, "select whole words (needs a vocabulary that marks where words begin)"
    )

    def __post_init__(self):
        check_ranges(self, MaskSettings)
        if self.leave_unmasked_prob + self.random_token_prob > 1:
            raise UsageError(
                f"--leave-unmasked-prob {self.leave_unmasked_prob} and "
                f"--random-token-prob {self.random_token_prob} add up to more than 1: "
                "they are shares of the same positions"
            )


@lru_cache(maxsize=10_000)
def rounding_offsets(seed, epoch_or_update, num_candidates):
    """Two offsets in [0, 1), which are added to counts before these are rounded down.

    They depend on the arguments alone: blocks of equal length have equally many positions selected,
    so that a batch of them needs no padding, and the expectation of every count is exact.

    Args:
        seed: seed of the run
        epoch_or_update: the epoch; or the update, for masks that fade
        num_candidates: how many positions or words a block has; 0 for all blocks together
    """
    return np.random.default_rng([seed, epoch_or_update, COUNT_STREAM, num_candidates]).random(2)


class MaskedBlock(NamedTuple):
    """One block; `context`, `predicted_visible` and `masked` partition its positions 0..T-1.

    The encoder reads `context` and `predicted_visible`, V positions. `predicted_visible` and
    `masked`, K positions, are predicted.
    """

    context: np.ndarray  # positions that the encoder sees and that are not predicted
    context_tokens: np.ndarray
    predicted_visible: np.ndarray  # predicted positions at which the encoder sees something
    predicted_visible_tokens: np.ndarray  # what it sees: the token itself, a random one, or [MASK]
    # Predicted positions that the encoder never sees: the decoder puts [MASK] there.
    masked: np.ndarray
    targets: np.ndarray  # (K,) the original tokens at `predicted_visible`, then at `masked`

    @property
    def visible_targets(self):
        return self.targets[: len(self.predicted_visible)]

    @property
    def masked_targets(self):
        return self.targets[len(self.predicted_visible) :]


class MaskedBatch(NamedTuple):
    """What the model reads. Every row carries its position, so the order of rows is free.

    This order is: context, visible predicted tokens, masked positions. The encoder sees the first
    two. The last K of all rows are predicted, and the last M of those are masked. Each of the three
    is padded at its own end.
    """

    src_tokens: torch.Tensor  # (B, V) what the encoder sees
    positions: torch.Tensor  # (B, V) their original positions, NO_POSITION for padding
    masked_positions: torch.Tensor  # (B, M) predicted positions that the encoder does not see
    num_predicted: int  # K
    has_padding: bool = True  # False if the batch is known to have no padding

    def with_visible_masks(self, target, share, offset, mask_id, pad):
        """The same batch, but the encoder sees a share of each block's masked positions as [MASK].

        They are the first of `masked_positions`, whose order is random. They are appended to what
        the encoder sees already; the others stay in `masked_positions`.

        Args:
            target: (B, K)
            share: from 0 to 1
            offset: of `rounding_offsets`, added to counts before they are rounded down
        Returns: (MaskedBatch, int64 tensor (B, its K)); K grows by as many
            columns of padding as the counts of blocks differ by
        """
        counts, min_count, max_count = self._count_visible_masks(share, offset)
        M = self.masked_positions.size(1)
        is_visible = torch.arange(M, device=counts.device) < counts  # (B, M)

        def split_columns(values, padding):
            """Splits columns into those with visible masks and those with other masks.

            Between `min_count` and `max_count`, a column has visible masks in some rows and other
            masks in the rest: it is in both results, each with `padding` in the rows of the other.
            """
            visible = values.masked_fill(~is_visible, padding)[:, :max_count]
            others = values.masked_fill(is_visible, padding)[:, min_count:]
            return visible, others

        visible, masked = split_columns(self.masked_positions, NO_POSITION)
        tokens = torch.full_like(visible, mask_id).masked_fill(visible.eq(NO_POSITION), pad)
        batch = self._replace(
            src_tokens=torch.cat([self.src_tokens, tokens], dim=1),
            positions=torch.cat([self.positions, visible], dim=1),
            masked_positions=masked,
            num_predicted=self.num_predicted + max_count - min_count,
        )
        already_visible, mask_values = target.tensor_split([target.size(1) - M], dim=1)
        return batch, torch.cat([already_visible, *split_columns(mask_values, pad)], dim=1)

    def _count_visible_masks(self, share, offset):
        """How many masks of each block the encoder sees.

        Returns: int64 (B, 1), its minimum, its maximum
        """
        masks = self.masked_positions.ne(NO_POSITION).sum(1, keepdim=True)
        counts = (share * masks.double() + offset).long()
        if self.has_padding:
            return counts, int(counts.min()), int(counts.max())
        # Each block has M masks: no need to wait for the device.
        count = int(share * self.masked_positions.size(1) + offset)
        return counts, count, count


def collate(blocks, pad):
    """The batch of some blocks, and the targets at its predicted rows.

    Args:
        blocks: list of `MaskedBlock`
        pad: the token at padding
    Returns: (MaskedBatch, int64 tensor (B, K))
    """

    def padded(rows, padding):
        tensors = [torch.from_numpy(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=padding)

    context_tokens = padded([block.context_tokens for block in blocks], pad)
    visible_tokens = padded([block.predicted_visible_tokens for block in blocks], pad)
    context = padded([block.context for block in blocks], NO_POSITION)
    predicted_visible = padded([block.predicted_visible for block in blocks], NO_POSITION)
    visible_targets = padded([block.visible_targets for block in blocks], pad)
    masked_targets = padded([block.masked_targets for block in blocks], pad)
    masked_positions = padded([block.masked for block in blocks], NO_POSITION)
    tokens = torch.cat([context_tokens, visible_tokens], dim=1)
    positions = torch.cat([context, predicted_visible], dim=1)
    target = torch.cat([visible_targets, masked_targets], dim=1)
    num_positions = sum(len(block.context) + len(block.targets) for block in blocks)
    has_padding = tokens.numel() + masked_positions.numel() > num_positions
    batch = MaskedBatch(tokens, positions, masked_positions, target.size(1), has_padding)
    return batch, target


class Masking:
    """Draws the masks of a block from (seed, epoch, index) alone, with `MaskSettings`.

    Raises UsageError: whole words are to be masked, and no symbol begins a word
    """

    def __init__(self, settings, dictionary, seed: int):
        self.mask_prob = settings.mask_prob
        # Of the selected positions, the encoder sees the first ones unchanged, then random tokens,
        # then [MASK]; the rest it does not see. These are the shares at which each kind ends.
        end_of_unchanged = settings.leave_unmasked_prob
        end_of_random = end_of_unchanged + settings.random_token_prob
        masks = settings.encoder_mask_fraction * (1 - end_of_random)
        self.cumulative_shares = end_of_unchanged, end_of_random, end_of_random + masks
        self.mask_id = dictionary.index(MASK)
        # `<mask>` is among them.
        self.random_candidates = range(dictionary.nspecial, len(dictionary))
        self.word_starts = dictionary_word_starts(dictionary) if settings.mask_whole_words else None
        self.seed = seed

    def __call__(self, tokens: np.ndarray, epoch: int, index: int) -> MaskedBlock:
        """Masks a block.

        Args:
            tokens: (T,) int64, `<s>` first; `<s>` is never selected, since classifiers read it
            epoch: counted from 1
            index: index of the block in its dataset
        """
        rng = np.random.default_rng([self.seed, epoch, POSITION_STREAM, index])
        words = None if self.word_starts is None else self._word_of_each(tokens)
        num_candidates = len(tokens) - 1 if words is None else int(words.max(initial=-1)) + 1
        selected_offset, visible_offset = rounding_offsets(self.seed, epoch, num_candidates)
        num_selected = int(self.mask_prob * num_candidates + selected_offset)
        num_selected = min(num_candidates, num_selected)
        selected = self._select(rng, num_candidates, num_selected, words)
        visible_tokens = self._visible_tokens(rng, tokens[selected], visible_offset)
        num_visible = len(visible_tokens)
        is_context = np.ones(len(tokens), dtype=bool)
        is_context[selected] = False
        context = np.flatnonzero(is_context)
        return MaskedBlock(
            context=context,
            context_tokens=tokens[context],
            predicted_visible=selected[:num_visible],
            predicted_visible_tokens=visible_tokens,
            masked=selected[num_visible:],
            targets=tokens[selected],
        )

    def _select(self, rng, num_candidates, num_selected, words):
        """Draws the positions to predict: int64 (K,), in random order.

        Args:
            num_candidates: how many tokens after `<s>`, or words, are to be chosen from
            num_selected: how many of them
            words: the word of each token after `<s>`; None if tokens are chosen
        """
        chosen = rng.choice(num_candidates, num_selected, replace=False)
        if words is not None:
            is_chosen = np.zeros(num_candidates, dtype=bool)
            is_chosen[chosen] = True
            chosen = rng.permutation(np.flatnonzero(is_chosen[words]))
        return chosen + 1  # <s> is at 0

    def _visible_tokens(self, rng, selected_tokens, offset):
        """What the encoder sees at the first selected positions, of which there may be none.

        Args:
            selected_tokens: (K,)
            offset: of `rounding_offsets`
        Returns: int64 (visible,): unchanged tokens, then random ones, then [MASK]
        """
        K = len(selected_tokens)
        ends = [min(K, int(share * K + offset)) for share in self.cumulative_shares]
        end_of_unchanged, end_of_random, end_of_visible = ends
        visible_tokens = selected_tokens[:end_of_visible].copy()
        if end_of_random > end_of_unchanged:
            random_tokens = self._random_tokens(rng, end_of_random - end_of_unchanged)
            visible_tokens[end_of_unchanged:end_of_random] = random_tokens
        visible_tokens[end_of_random:] = self.mask_id
        return visible_tokens

    def _word_of_each(self, tokens):
        """The index of the word that each token after `<s>` belongs to: int64 (T - 1,)."""
        # At the beginning of a line, after `</s>`, a word may begin without a mark of its own.
        starts = self.word_starts[tokens[1:]] | (tokens[:-1] < UNKNOWN)
        return np.cumsum(starts) - 1

    def _random_tokens(self, rng, count):
        """Tokens drawn uniformly from the vocabulary, none of which is [MASK]: int64 (count,)."""
        drawn = rng.integers(self.random_candidates.start, self.random_candidates.stop - 1, count)
        return drawn + (drawn >= self.mask_id)
