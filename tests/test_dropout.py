"""Dropout of cheaper random numbers: its shares, scale, gradient and seeds."""

import pytest
import torch

from maelm_fairseq.dropout import Dropout, draw


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


def test_draws_have_their_probability():
    found = draw(torch.Size([3, 333, 1001]), 0.9)
    n = found.numel()
    assert found.dtype == torch.bool and found.shape == (3, 333, 1001)
    assert abs(found.double().mean() - 0.9) < 4 * (0.9 * 0.1 / n) ** 0.5
    for dim in range(3):  # and neighbours do not know of each other
        a, b = found.narrow(dim, 0, found.size(dim) - 1), found.narrow(dim, 1, found.size(dim) - 1)
        assert abs((a & b).double().mean() - 0.81) < 4 * (0.81 * 0.19 / n) ** 0.5 + 1e-3


def test_the_seed_is_pytorchs():
    shape = torch.Size([1001])
    first, second = draw(shape, 0.5), draw(shape, 0.5)
    torch.manual_seed(1)
    assert torch.equal(draw(shape, 0.5), first) and not torch.equal(second, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_kept_is_scaled_and_has_a_gradient(dtype):
    x = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    kept = y != 0
    assert y.dtype == dtype and 0.5 < kept.double().mean() < 0.9
    assert torch.equal(y, torch.where(kept, x / 0.7, 0))
    assert torch.equal(x.grad, torch.where(kept, torch.ones_like(x) / 0.7, 0))


def test_without_training_or_probability_nothing_is_dropped():
    x = torch.randn(7, 33)
    assert Dropout(0.3).eval()(x) is x and torch.equal(Dropout(0.0)(x), x)
