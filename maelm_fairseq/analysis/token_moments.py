"""How many dimensions token representations use, layer by layer: the mathematics.

This is what the paper's Figures 1 and 5 show.

Letters in shapes: B sequences, T tokens of a sequence, C width, L layers of the encoder,
D = L + 1 depths: layer 0 is the encoder's input, the embeddings after their LayerNorm.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from ..base.errors import UsageError
from ..data.batching import batches_of_similar_length
from ..masking import NO_POSITION, Masking, MaskSettings

TOKEN_GROUPS = {
    "without_mask": "all tokens, inputs without [MASK]",
    "with_mask": "all tokens, inputs with [MASK]",
    "real_tokens": "real tokens, inputs with [MASK]",
    "mask_tokens": "[MASK] tokens",
}
PARTS_OF_GROUP = {"with_mask": ["real_tokens", "mask_tokens"]}
TAU = 0.9
BATCH_TOKENS = 8192


def effective_rank(singular_values, tau=TAU):
    """The smallest number of singular values whose squares make up a share `tau` of all squares.

    Args:
        singular_values: (..., C), largest first
        tau: greater than 0, at most 1
    Returns: int64 (...); 0 if all are zero
    """
    energy = singular_values.double().square().cumsum(-1)
    total = energy[..., -1:]
    below = energy < total * (tau - 1e-12)  # a share such as 0.9 is not exact in binary
    return torch.where(total[..., 0] > 0, below.sum(-1) + 1, 0)


class TokenMoments:
    """X^T X of the representations X of each group at each depth, exact for any number of tokens.

    `matrices` maps each group that has been added to float64 (D, C, C), and `num_tokens` to the
    number of its tokens.
    """

    def __init__(self):
        self.matrices = {}
        self.num_tokens = {}

    def add(self, group, hidden, chosen):
        """Adds tokens of a batch.

        Args:
            group: name of TOKEN_GROUPS
            hidden: list of D tensors (B, T, C)
            chosen: bool (B, T), which tokens are added
        """
        if group not in self.matrices:
            width = hidden[0].size(-1)
            shape = len(hidden), width, width
            self.matrices[group] = hidden[0].new_zeros(shape, dtype=torch.float64)
            self.num_tokens[group] = 0
        for matrix, layer in zip(self.matrices[group], hidden):
            x = layer[chosen].double()
            matrix.addmm_(x.t(), x)
        self.num_tokens[group] += int(chosen.sum())

    def matrix(self, group):
        """float64 (D, C, C); `with_mask` is the sum of real tokens and [MASK] tokens."""
        return sum(self.matrices[part] for part in PARTS_OF_GROUP.get(group, [group]))

    def count(self, group):
        """The number of tokens of a group."""
        return sum(self.num_tokens[part] for part in PARTS_OF_GROUP.get(group, [group]))

    def singular_values(self, group):
        """float64 (D, C), largest first."""
        return torch.linalg.eigvalsh(self.matrix(group)).flip(-1).clamp(min=0).sqrt()

    def effective_ranks(self, tau=TAU):
        """Effective ranks: {group: int64 (D,)}."""
        return {group: effective_rank(self.singular_values(group), tau) for group in TOKEN_GROUPS}

    def mask_dimensions(self, tau=TAU):
        """The number of dimensions that [MASK] tokens use and the real tokens beside them do not.

        This is about Theorem 2.2. Each group spans the subspace of its leading singular
        directions, as many as its effective rank. A direction of [MASK] counts sin^2 of its
        principal angle to the subspace of the real tokens: 0 within it, 1 if orthogonal.

        Returns: float64 (D,), from 0 to the effective rank of [MASK] tokens
        """
        spans = []
        for group in ["mask_tokens", "real_tokens"]:
            ranks = effective_rank(self.singular_values(group), tau).tolist()
            directions = torch.linalg.eigh(self.matrix(group)).eigenvectors.flip(-1)
            spans.append([vectors[:, :rank] for vectors, rank in zip(directions, ranks)])
        shared = [(mask.t() @ real).square().sum() for mask, real in zip(*spans)]
        outside = [mask.size(1) - cosines for mask, cosines in zip(spans[0], shared)]
        return torch.stack(outside)


def sample_blocks(dataset, min_tokens, mask_prob=0.15, seed=1):
    """Draws blocks of text, and the positions of each to mask.

    Args:
        dataset: `masked_items.MaskedBlockDataset`
        min_tokens: fewer if the dataset has fewer
        mask_prob: share of the positions that are masked, never `<s>`
        seed: seed of both draws
    Returns: list of (tokens (T,) int64, masked (T,) bool)
    """
    settings = MaskSettings(mask_prob, encoder_mask_fraction=1)
    masking = Masking(settings, dataset.dictionary, seed)
    order = np.random.default_rng(seed).permutation(len(dataset))
    num_blocks = int(np.searchsorted(np.cumsum(dataset.sizes[order]), min_tokens)) + 1
    blocks = []
    for index in order[:num_blocks]:
        block = dataset.tokens(index)
        masked = np.zeros(len(block), dtype=bool)
        masked[masking(block, 1, int(index)).predicted_visible] = True
        blocks.append((torch.from_numpy(block), torch.from_numpy(masked)))
    if not any(masked.any() for _, masked in blocks):
        raise UsageError(
            f"--mask-prob {mask_prob}: no token of {len(blocks):,} blocks of at most "
            f"{dataset.sizes.max()} tokens is masked; raise it, or --tokens-per-sample"
        )
    return blocks


@torch.no_grad()
def measure_moments(model, blocks, progress=None):
    """Runs an encoder over blocks of text, without and with [MASK].

    Args:
        model: `model.MaeLmModel`, pretrained or fine-tuned
        blocks: from `sample_blocks`
        progress: function called with the number of blocks of each batch
    Returns: the `TokenMoments`
    """
    moments = TokenMoments()
    device = model.embed_tokens.weight.device
    training = model.training
    model.eval()
    lengths = torch.tensor([len(tokens) for tokens, _ in blocks])
    for rows in batches_of_similar_length(lengths, BATCH_TOKENS):
        tokens, masked = zip(*(blocks[row] for row in rows))
        tokens = pad_sequence(tokens, batch_first=True, padding_value=model.pad).to(device)
        masked = pad_sequence(masked, batch_first=True, padding_value=False).to(device)
        padding = tokens.eq(model.pad)
        hidden = model.forward_encoder(tokens, has_padding=bool(padding.any()), all_layers=True)
        moments.add("without_mask", hidden, ~padding)
        hidden = encode_with_mask(model, tokens, masked, padding)
        moments.add("real_tokens", hidden, ~(padding | masked))
        moments.add("mask_tokens", hidden, masked)
        if progress:
            progress(len(tokens))
    model.train(training)
    return moments


def encode_with_mask(model, tokens, masked, padding):
    """The representations of inputs with [MASK].

    With shared decoder layers, [MASK] enters before these layers and is only read by other masks,
    as in pretraining. At the depths before them, its rank is 0, and inputs with [MASK] are their
    real tokens. This needs only the encoder and the options of pretraining: a fine-tuned model is
    measured in the same way if it has `--share-decoder-layers`, as in the recipes.

    Args:
        tokens: (B, T)
        masked, padding: bool (B, T)
    Returns: list of D tensors (B, T, C), zero where there is no [MASK] yet
    """
    if not model.num_shared_layers:
        inputs = tokens.masked_fill(masked, model.mask_id)
        return model.forward_encoder(inputs, has_padding=bool(padding.any()), all_layers=True)
    T = tokens.size(1)
    positions = torch.arange(T, device=tokens.device).expand_as(tokens)
    visible = positions.masked_fill(masked | padding, NO_POSITION)
    predicted = positions.masked_fill(~masked, NO_POSITION)
    hidden = model.forward_encoder_with_masks(tokens, visible, predicted, all_layers=True)
    # Each layer has the T real tokens, then perhaps T places for [MASK].
    hidden = [F.pad(x, (0, 0, 0, 2 * T - x.size(1))) for x in hidden]
    return [torch.where(masked[:, :, None], x[:, T:], x[:, :T]) for x in hidden]


def analyse(model, blocks, taus=(TAU,), progress=None):
    """Computes what the tables and the figure show of one model.

    Args:
        model, blocks, progress: as for `measure_moments`
        taus: thresholds tau of the effective rank
    Returns:
        rows: list of dicts: layer, token_group, tau, tokens, rank
        dimensions: list of dicts: layer, tau, mask_outside_real (`TokenMoments.mask_dimensions`)
        spectra: {group: float64 (D, C) singular values}
    """
    moments = measure_moments(model, blocks, progress)
    rows = []
    dimensions = []
    for tau in taus:
        for group, ranks in moments.effective_ranks(tau).items():
            row = dict(token_group=group, tau=tau, tokens=moments.count(group))
            for layer, rank in enumerate(ranks.tolist()):
                rows.append(dict(layer=layer, **row, rank=rank))
        for layer, outside in enumerate(moments.mask_dimensions(tau).tolist()):
            dimensions.append(dict(layer=layer, tau=tau, mask_outside_real=round(outside, 2)))
    spectra = {group: moments.singular_values(group).cpu().numpy() for group in TOKEN_GROUPS}
    return rows, dimensions, spectra
