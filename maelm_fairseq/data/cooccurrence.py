"""Token embeddings from co-occurrence: what a model can start from that costs seconds, not epochs.

Positive pointwise mutual information of neighbours, and its largest singular vectors, with the settings that Levy,
Goldberg and Dagan (2015, "Improving Distributional Similarity with Lessons Learned from Word Embeddings") recommend:
near neighbours count more, context frequencies are raised to 0.75, and singular values to 0.5.

Letters in shapes: N vocabulary, C width, n pairs of symbols.
"""

import numpy as np
import torch

WINDOW = 5  # neighbours on each side; the k-th counts 1/k
SMOOTHING = 0.75  # exponent of the frequencies of contexts
OVERSAMPLING, ITERATIONS = 10, 2  # of the randomised singular value decomposition


def count_neighbours(blocks, vocabulary):
    """How often symbols are neighbours in the same block, near ones weighted more.

    Args:
        blocks: an iterable of lists of blocks, int64 arrays of tokens, that fit into memory
        vocabulary: N
    Returns: pairs: int64 (n,), in order, N times one symbol plus the other; counts: float64 (n,)
    """
    pairs, counts = np.empty(0, np.int64), np.empty(0)
    for some in blocks:
        tokens = np.concatenate(some)
        block = np.repeat(np.arange(len(some)), [len(each) for each in some])
        found, weights = [pairs], [counts]
        for distance in range(1, WINDOW + 1):
            together = block[:-distance] == block[distance:]
            left, right = tokens[:-distance][together], tokens[distance:][together]
            found += [left * vocabulary + right, right * vocabulary + left]
            weights.append(np.full(2 * len(left), 1 / distance))
        pairs, which = np.unique(np.concatenate(found), return_inverse=True)
        counts = np.bincount(which, np.concatenate(weights))
    return pairs, counts


def positive_information(pairs, counts, vocabulary):
    """The positive pointwise mutual information of each pair, in nats: float64 (n,), 0 where it is negative."""
    rows, columns = np.divmod(pairs, vocabulary)
    of_symbol = np.bincount(rows, counts, vocabulary)
    of_context = of_symbol**SMOOTHING
    information = np.log(counts * of_context.sum() / (of_symbol[rows] * of_context[columns]))
    return np.maximum(information, 0)


def embeddings(pairs, counts, vocabulary, width, deviation):
    """Embeddings of the symbols that have neighbours.

    Args:
        pairs, counts: of `count_neighbours`
        vocabulary, width: N, C; C is at most N
        deviation: the root mean square of the numbers of all embeddings that are found
    Returns: float32 (N, C), with zeros for a symbol without neighbours that it has more often than by chance
    """
    information = positive_information(pairs, counts, vocabulary)
    rows, columns = np.divmod(pairs, vocabulary)
    filled = torch.from_numpy(np.bincount(rows, information, vocabulary) > 0)
    if not filled.any():  # any two symbols are neighbours as often as by chance
        return torch.zeros(vocabulary, width)
    places, values = torch.from_numpy(np.stack([rows, columns])), torch.from_numpy(information).float()
    matrix = torch.sparse_coo_tensor(places, values, (vocabulary, vocabulary)).coalesce()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        vectors, values, _ = torch.svd_lowrank(matrix, min(vocabulary, width + OVERSAMPLING), ITERATIONS)
    found = (vectors * values.sqrt())[:, :width] * filled[:, None]
    return found * (deviation / found[filled].square().mean().sqrt())
