"""Attention by parts beside PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from maelm_fairseq import attention
from maelm_fairseq.attention import AttentionByParts, attend

B, Q, T, H, D = 5, 5, 7, 6, 4


def tensors(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = [(B, Q, H, D), (B, T, 2, H, D), (B, H, Q, T), (B, Q, H, D)]
    return [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in shapes]


def by_pytorch(query, key_value, bias, dropout=0.0):
    k, v = key_value.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(query.transpose(1, 2), k, v, attn_mask=bias).transpose(1, 2)


def gradients(function, inputs, gradient):
    inputs = [x.clone().requires_grad_() for x in inputs]
    attended = function(*inputs)
    attended.backward(gradient)
    return [attended.detach(), *(x.grad for x in inputs)]


@pytest.mark.parametrize("matrices", [1, 4, 2 * H, B * H])  # of a part: of one head, some heads, sequences, all
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
def test_values_and_gradients_are_pytorchs(matrices, dtype, tolerance, monkeypatch):
    monkeypatch.setattr(attention, "PART", matrices * Q * T)
    *inputs, gradient = tensors(dtype)
    ours = gradients(attend, inputs, gradient)
    theirs = gradients(by_pytorch, [x.double() for x in inputs], gradient.double())
    for found, expected in zip(ours, theirs):
        assert found.dtype == dtype
        assert (found.double() - expected).norm() < tolerance * expected.norm()


def test_the_bias_is_learned_by_parts_and_whatever_its_shape():
    query, key_value, bias, _ = tensors()
    assert "AttentionByParts" in attend(query, key_value, bias.requires_grad_()).grad_fn.name()
    shared = bias.detach()[:, :1].clone()
    theirs = by_pytorch(query, key_value, shared)
    for bias in [shared, shared.requires_grad_()]:
        torch.testing.assert_close(attend(query, key_value, bias), theirs)
    attend(query, key_value, shared).sum().backward()
    assert shared.grad.shape == shared.shape


def test_hidden_keys_get_no_weight_and_no_gradient():
    query, key_value, bias, gradient = tensors()
    bias[..., -2:] = float("-inf")
    _, d_query, d_key_value, d_bias = gradients(attend, [query, key_value, bias], gradient)
    assert d_query.isfinite().all()
    assert not d_key_value[:, -2:].any() and not d_bias[..., -2:].any()
    assert d_key_value[:, :-2].all()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_gradient_is_that_of_the_function(dropout):
    def attention(*inputs):
        torch.manual_seed(1)
        return AttentionByParts.apply(*inputs, dropout)

    *inputs, _ = tensors()
    assert torch.autograd.gradcheck(attention, [x.requires_grad_() for x in inputs])


def test_dropout_leaves_the_expectation():
    query, key_value, bias, _ = tensors()
    bias.requires_grad_()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        draws = torch.stack([attend(query, key_value, bias, 0.3).detach() for _ in range(4000)])
    expected = by_pytorch(query, key_value, bias)
    error = draws.std(0) / len(draws) ** 0.5
    assert draws.std(0).min() > 0
    assert ((draws.mean(0) - expected).abs() < 5 * error).all()
