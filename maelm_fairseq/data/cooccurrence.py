"""Token embeddings from co-occurrence: a start for a model that costs seconds, not epochs.

The embeddings are the largest singular vectors of the positive pointwise mutual information of
neighbours, with the settings that Levy, Goldberg and Dagan recommend (2015, "Improving
Distributional Similarity with Lessons Learned from Word Embeddings"): near neighbours count more,
context frequencies are raised to 0.75, and singular values to 0.5.

Letters in shapes: N vocabulary, C width, n pairs of symbols.
"""

import numpy as np
import torch

WINDOW = 5  # neighbours on each side; the k-th counts 1/k
SMOOTHING = 0.75  # exponent of the frequencies of contexts
# Parameters of the randomised singular value decomposition.
OVERSAMPLING = 10
ITERATIONS = 2


def count_neighbours(blocks, vocabulary_size):
    """How often symbols are neighbours in the same block, near ones weighted more.

    Args:
        blocks: an iterable of lists of blocks, int64 arrays of tokens, that fit into memory
        vocabulary_size: N
    Returns: pairs: int64 (n,), in order, N times one symbol plus the other; counts: float64 (n,)
    """
    pairs = np.empty(0, np.int64)
    counts = np.empty(0)
    for part in blocks:
        tokens = np.concatenate(part)
        block_of_token = np.repeat(np.arange(len(part)), [len(block) for block in part])
        all_pairs = [pairs]
        weights = [counts]
        for distance in range(1, WINDOW + 1):
            in_same_block = block_of_token[:-distance] == block_of_token[distance:]
            left = tokens[:-distance][in_same_block]
            right = tokens[distance:][in_same_block]
            all_pairs += [left * vocabulary_size + right, right * vocabulary_size + left]
            weights.append(np.full(2 * len(left), 1 / distance))
        pairs, pair_of_each = np.unique(np.concatenate(all_pairs), return_inverse=True)
        counts = np.bincount(pair_of_each, np.concatenate(weights))
    return pairs, counts


def positive_information(pairs, counts, vocabulary_size):
    """The positive pointwise mutual information of each pair, in nats.

    Returns: float64 (n,), 0 where the mutual information is negative
    """
    rows, columns = np.divmod(pairs, vocabulary_size)
    symbol_counts = np.bincount(rows, counts, vocabulary_size)
    smoothed_context_counts = symbol_counts**SMOOTHING
    by_chance = symbol_counts[rows] * smoothed_context_counts[columns]
    information = np.log(counts * smoothed_context_counts.sum() / by_chance)
    return np.maximum(information, 0)


def compute_embeddings(pairs, counts, vocabulary_size, width, std):
    """Embeddings of the symbols that have neighbours.

    Args:
        pairs, counts: of `count_neighbours`
        vocabulary_size, width: N, C; C is at most N
        std: the root mean square of the numbers of all embeddings that are not zero
    Returns: float32 (N, C), with zeros for a symbol that has no neighbour more often than by chance
    """
    information = positive_information(pairs, counts, vocabulary_size)
    rows, columns = np.divmod(pairs, vocabulary_size)
    filled = torch.from_numpy(np.bincount(rows, information, vocabulary_size) > 0)
    if not filled.any():  # any two symbols are neighbours as often as by chance
        return torch.zeros(vocabulary_size, width)
    indices = torch.from_numpy(np.stack([rows, columns]))
    values = torch.from_numpy(information).float()
    matrix = torch.sparse_coo_tensor(indices, values, (vocabulary_size, vocabulary_size)).coalesce()
    rank = min(vocabulary_size, width + OVERSAMPLING)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vectors, values, _ = torch.svd_lowrank(matrix, rank, ITERATIONS)
    unscaled = (vectors * values.sqrt())[:, :width] * filled[:, None]
    return unscaled * (std / unscaled[filled].square().mean().sqrt())
