"""The Transformer: buckets of distances, the relative position bias, padding, and layers of some positions."""

import numpy as np
import pytest
import torch

import naive
from maelm_fairseq.layers import AUTHORS, T5, RelativePositionBias, Transformer, relative_position_bucket, t5_bucket


@pytest.mark.parametrize("num_buckets,max_distance", [(4, 3), (8, 12), (10, 7), (32, 128), (128, 256)])
def test_relative_position_bucket(num_buckets, max_distance):
    distances = np.arange(-600, 601)
    buckets = relative_position_bucket(distances, num_buckets, max_distance)
    assert buckets.tolist() == [naive.relative_position_bucket(int(r), num_buckets, max_distance) for r in distances]
    middle = num_buckets // 2 - 1
    assert buckets[600] == middle  # distance 0
    assert buckets.min() == 0 and buckets.max() == 2 * middle == num_buckets - 2
    assert (np.diff(buckets) >= 0).all()
    assert (buckets + buckets[::-1] == 2 * middle).all()
    assert (np.diff(buckets[600 : 600 + num_buckets // 4]) == 1).all()  # short distances have a bucket each
    assert (buckets[distances >= max_distance - 1] == num_buckets - 2).all()
    assert relative_position_bucket(distances.reshape(1, -1), num_buckets, max_distance).shape == (1, 1201)


def test_t5_buckets():
    distances = np.arange(-600, 601)
    for sizes in [(32, 128), (8, 20), (64, 256)]:
        assert t5_bucket(distances, *sizes).tolist() == [naive.t5_bucket(int(r), *sizes) for r in distances]
    # Where MPNet's buckets begin, as its modeling file computes them.
    begin = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    assert t5_bucket(-np.array(begin), 32, 128).tolist() == list(range(16))
    assert t5_bucket(1 - np.array(begin[1:]), 32, 128).tolist() == list(range(15))
    assert t5_bucket(np.array(begin[1:]), 32, 128).tolist() == list(range(17, 32))
    assert t5_bucket(np.array([[-5000, 5000]]), 32, 128).tolist() == [[15, 31]]


def test_the_bias_of_a_pair_is_that_of_its_distance():
    torch.manual_seed(1)
    bias = RelativePositionBias(num_buckets=8, max_distance=12, heads=3, max_positions=40)
    table = bias.table.weight.detach()
    for positions in [list(range(40)), [0, 3, 4, 20, 39]]:
        expected = naive.relative_bias(table, 40, 12)[:, positions][:, :, positions]
        torch.testing.assert_close(bias(*2 * [torch.tensor([positions])])[0], expected)
    assert bias(*2 * [torch.tensor([[0, 1, -1]])]).isfinite().all()  # padding


@pytest.mark.parametrize("buckets", [AUTHORS, T5])
def test_half_of_the_heads_begin_with_their_neighbours(buckets):
    bias = RelativePositionBias(32, max_distance=128, heads=8, max_positions=32, buckets=buckets)
    torch.nn.init.normal_(bias.table.weight, std=0.02)
    before = bias.table.weight.detach().clone()
    bias.init_local_heads()
    of_16 = bias(torch.tensor([[16]]), torch.arange(32)[None])[0, :, 0]  # of position 16, (heads, 32)
    for head, side in enumerate([-1, 1, -1, 1]):
        assert of_16[head].argmax() == 16 + side
        assert (of_16[head, [16 + side * n for n in range(1, 5)]].diff() < 0).all()
    sharpness = of_16.max(-1).values - of_16.median(-1).values
    assert sharpness[0] == sharpness[1] == 2 * sharpness[2] == 2 * sharpness[3] > 0
    assert torch.equal(bias.table.weight[:, 4:], before[:, 4:])


@pytest.mark.parametrize("num_buckets", [0, 8])
@pytest.mark.parametrize("padded", [False, True])
def test_the_last_positions_alone_are_the_last_of_all(num_buckets, padded):
    torch.manual_seed(1)
    model = Transformer(2, 16, 32, 2, 0.0, 0.0, 20, num_buckets, 12).double().eval()
    x, positions = torch.randn(3, 9, 16, dtype=torch.float64), torch.arange(9).repeat(3, 1)
    if padded:
        positions[0, -2:] = -1
    hidden = []
    whole = model(x, positions, padded, hidden=hidden)
    for outputs in [0, 1, 4, 9]:
        torch.testing.assert_close(model(x, positions, padded, outputs), whole[:, 9 - outputs :], rtol=0, atol=1e-12)
    assert len(hidden) == 3 and torch.equal(hidden[-1], whole)
    torch.testing.assert_close(hidden[0], model.norm(x + model.embed_positions(positions + 1)))
