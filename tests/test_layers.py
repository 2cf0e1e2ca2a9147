"""The Transformer: buckets of distances, the relative position bias."""

import numpy as np
import pytest
import torch

import naive
from maelm_fairseq.layers import (
    AUTHORS,
    T5,
    RelativePositionBias,
    authors_bucket,
    t5_bucket,
)


@pytest.mark.parametrize(
    "num_buckets,max_distance", [(4, 3), (8, 12), (10, 7), (32, 128), (128, 256)]
)
def test_relative_position_bucket(num_buckets, max_distance):
    distances = np.arange(-600, 601)
    sizes = (num_buckets, max_distance)
    buckets = authors_bucket(distances, *sizes)
    expected = [naive.relative_position_bucket(int(r), *sizes) for r in distances]
    assert buckets.tolist() == expected
    assert authors_bucket(distances.reshape(1, -1), *sizes).shape == (1, 1201)


def test_t5_buckets():
    distances = np.arange(-600, 601)
    for sizes in [(32, 128), (8, 20), (64, 256)]:
        expected = [naive.t5_bucket(int(r), *sizes) for r in distances]
        assert t5_bucket(distances, *sizes).tolist() == expected
    # The distances at which MPNet's buckets begin, as its modeling file computes them.
    begin = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91])
    assert t5_bucket(-begin, 32, 128).tolist() == list(range(16))
    assert t5_bucket(1 - begin[1:], 32, 128).tolist() == list(range(15))
    assert t5_bucket(begin[1:], 32, 128).tolist() == list(range(17, 32))
    assert t5_bucket(np.array([[-5000, 5000]]), 32, 128).tolist() == [[15, 31]]


@pytest.mark.parametrize("buckets", [AUTHORS, T5])
def test_half_of_the_heads_begin_with_their_neighbours(buckets):
    bias = RelativePositionBias(32, max_distance=128, num_heads=8, max_positions=32, scheme=buckets)
    torch.nn.init.normal_(bias.table.weight, std=0.02)
    before = bias.table.weight.detach().clone()
    bias.init_local_heads()
    biases = bias(torch.tensor([[16]]), torch.arange(32)[None])
    biases = biases[0, :, 0]  # of position 16: (heads, 32)
    for head, side in enumerate([-1, 1, -1, 1]):
        assert biases[head].argmax() == 16 + side
        nearest_first = [16 + side * n for n in range(1, 5)]
        assert (biases[head, nearest_first].diff() < 0).all()
    sharpness = biases.max(-1).values - biases.median(-1).values
    assert sharpness[0] == sharpness[1] == 2 * sharpness[2] == 2 * sharpness[3] > 0
    assert torch.equal(bias.table.weight[:, 4:], before[:, 4:])
