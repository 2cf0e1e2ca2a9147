"""The CPU's attention and dropout against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from maelm_fairseq import cpu_kernels
from maelm_fairseq.cpu_kernels import ChunkedAttention, Dropout, grouped_attention, random_mask
from maelm_fairseq.query_groups import QueryGroup

B, Q, T, H, D = 5, 5, 7, 6, 4
PRECISIONS = pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)]
)


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


def tensors(dtype=torch.float64):
    shapes = [(B, Q, H, D), (B, T, 2, H, D), (B, H, Q, T), (B, Q, H, D)]
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def by_kernel(query, key_value, bias, dropout=0.0):
    group = QueryGroup(query.size(1), key_value.size(1), bias)
    return grouped_attention(query, key_value, [group], dropout)


def by_pytorch(query, key_value, bias):
    q = query.transpose(1, 2)
    k, v = key_value.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


def results(function, inputs):
    """The output of a function, and the gradients of the sum of its squares."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = function(*inputs)
    output.square().sum().backward()
    return [output.detach(), *(x.grad for x in inputs)]


def assert_close(ours, theirs, dtype, tolerance):
    for our_tensor, their_tensor in zip(ours, theirs):
        assert our_tensor.dtype == dtype
        assert (our_tensor.double() - their_tensor).norm() < tolerance * their_tensor.norm()


# A chunk holds one head, some heads, the heads of some sequences, or all.
@pytest.mark.parametrize("matrices", [1, 4, 2 * H, B * H])
@PRECISIONS
def test_values_and_gradients_agree_with_pytorch(matrices, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "CHUNK_SIZE", matrices * Q * T)
    *inputs, scale = tensors(dtype)
    inputs[2][..., -2:] = float("-inf")  # padding
    ours = results(lambda *x: by_kernel(*x) * scale, inputs)
    theirs = results(lambda *x: by_pytorch(*x) * scale.double(), [x.double() for x in inputs])
    assert_close(ours, theirs, dtype, tolerance)
    # Padding has no gradient, neither of keys and values nor of the bias.
    assert not ours[2][:, -2:].any()
    assert not ours[3][..., -2:].any()


def test_the_bias_is_learned_in_chunks_and_may_have_any_shape():
    query, key_value, bias, _ = tensors()
    output = by_kernel(query, key_value, bias.requires_grad_())
    assert "ChunkedAttention" in output.grad_fn.name()
    shared = bias.detach()[:, :1].clone()
    theirs = by_pytorch(query, key_value, shared)
    for bias in [shared, shared.requires_grad_()]:
        torch.testing.assert_close(by_kernel(query, key_value, bias), theirs)
    by_kernel(query, key_value, shared).sum().backward()
    assert shared.grad.shape == shared.shape


def test_groups_attend_to_rows_of_their_own():
    *inputs, _ = tensors()

    def together(query, key_value, bias):
        first = QueryGroup(2, 4, bias[:, :, :2, :4])
        empty = QueryGroup(0, 3, bias[:, :, :0, :3])
        second = QueryGroup(3, 7, bias[:, :, 2:])
        return grouped_attention(query, key_value, [first, empty, second])

    def apart(query, key_value, bias):
        first = by_pytorch(query[:, :2], key_value[:, :4], bias[:, :, :2, :4])
        second = by_pytorch(query[:, 2:], key_value, bias[:, :, 2:])
        return torch.cat([first, second], dim=1)

    torch.testing.assert_close(results(together, inputs), results(apart, inputs))


def test_gradients_with_dropout_agree_with_finite_differences(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "CHUNK_SIZE", 2 * Q * T)

    def attention(*inputs):
        torch.manual_seed(1)
        query, key_value, bias = inputs
        return ChunkedAttention.apply(query, key_value, 0.3, bias[:, :, 1:, :2], bias[:, :, :1])

    query, key_value, bias, _ = tensors()
    # Two sequences and three heads are enough.
    inputs = [query[:2, :, :3], key_value[:2, :, :, :3], bias[:2, :3]]
    assert torch.autograd.gradcheck(attention, [x.clone().requires_grad_() for x in inputs])


def test_attention_dropout_keeps_the_expectation():
    query, key_value, bias, _ = tensors()
    bias.requires_grad_()
    draws = torch.stack([by_kernel(query, key_value, bias, 0.3).detach() for _ in range(4000)])
    expected = by_pytorch(query, key_value, bias)
    error = draws.std(0) / len(draws) ** 0.5
    assert draws.std(0).min() > 0
    assert ((draws.mean(0) - expected).abs() < 5 * error).all()


def test_a_random_mask_has_its_probability_and_the_seed_of_pytorch():
    mask = random_mask(torch.Size([3, 333, 1001]), 0.9)
    n = mask.numel()
    assert mask.dtype == torch.bool
    assert mask.shape == (3, 333, 1001)
    assert abs(mask.double().mean() - 0.9) < 4 * (0.9 * 0.1 / n) ** 0.5
    for dim in range(3):  # Neighbours are independent.
        before = mask.narrow(dim, 0, mask.size(dim) - 1)
        after = mask.narrow(dim, 1, mask.size(dim) - 1)
        assert abs((before & after).double().mean() - 0.81) < 4 * (0.81 * 0.19 / n) ** 0.5 + 1e-3
    other = random_mask(mask.shape, 0.9)
    torch.manual_seed(1)
    assert torch.equal(random_mask(mask.shape, 0.9), mask)
    assert not torch.equal(other, mask)
    # 16 bits cannot tell this probability from 1.
    assert random_mask(torch.Size([100]), 1 - 1e-6).all()
    # A dimension is empty when the encoder has all positions.
    assert random_mask(torch.Size([8, 0, 32]), 0.9).shape == (8, 0, 32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_what_it_keeps(dtype):
    x = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    kept = y != 0
    assert y.dtype == dtype
    assert 0.5 < kept.double().mean() < 0.9
    assert torch.equal(y, torch.where(kept, x / 0.7, 0))
    assert torch.equal(x.grad, torch.where(kept, torch.ones_like(x) / 0.7, 0))
    assert Dropout(0.3).eval()(x) is x
    assert torch.equal(Dropout(0.0)(x), x)
