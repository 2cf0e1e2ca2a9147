"""The simulation of GPU memory counts what exists at a time."""

import sys

import pytest
import torch
import torch.nn.functional as F

from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu_memory  # noqa: E402


def test_tensors_count_while_they_exist():
    with gpu_memory.Memory(0) as memory:
        x = torch.empty(1000, device="meta")
        assert memory.highest == 4000
        y = x * 2
        y = y.view(10, 100)[:5]  # shares memory
        assert memory.highest == 8000
        del y
        z = (x + 1).half()
        assert memory.highest == 10000 and z.dtype == torch.half


@pytest.mark.parametrize("aligned", [True, False])
def test_attention_keeps_its_input_and_copies_a_bias_that_is_not_aligned(aligned):
    B, H, T, D = 2, 3, 13, 16
    query = torch.empty(B, H, T, D, device="meta", requires_grad=True)
    bias = torch.empty(B, H, T, 16 if aligned else T, device="meta", requires_grad=True)[..., :T]
    with gpu_memory.Memory(0) as memory:
        output = gpu_memory.fused_attention(query, query, query, attn_mask=bias)
    kept = 4 * B * H * T * (D + 1)  # the output, and a number for each row
    assert memory.highest == kept + (0 if aligned else 4 * B * H * T * 16)
    output.sum().backward()
    real = F.scaled_dot_product_attention(*(torch.zeros(B, H, T, D) for _ in range(3)))
    assert output.shape == real.shape and query.grad.shape == query.shape


def test_a_recipe_needs_what_its_weights_do_and_more_for_more_sequences():
    options = gpu_memory.training_options(str(ROOT / "recipes" / "pretrain_base.sh"))
    options += ["--arch", "mae_lm_tiny", "--encoder-embed-dim", "256", "--encoder-ffn-embed-dim", "256"]
    one, two, three = (gpu_memory.gibibytes(options, size, 1000) for size in [1, 2, 3])
    weights = 2**-30 * gpu_memory.BYTES_OF_A_WEIGHT * 256 * 1000  # of the token embedding alone
    assert weights < one < two < three
    assert (three - two) == pytest.approx(two - one, rel=0.1)
    assert gpu_memory.gibibytes(gpu_memory.roberta_options(options), 1, 1000) > one
    sizes = ["--encoder-layers", "4"]  # as many as the decoder has
    whole, shared = (
        gpu_memory.gibibytes(of, 1, 1000) for of in [options + sizes, [*options, *sizes, "--share-decoder-layers"]]
    )
    assert weights < shared < whole


def test_the_peer_has_the_size_of_the_recipe():
    for recipe, arch in [("pretrain_base.sh", "roberta_base"), ("pretrain_large_plus_plus.sh", "roberta_large")]:
        options = gpu_memory.roberta_options(gpu_memory.training_options(str(ROOT / "recipes" / recipe)))
        assert options[options.index("--arch") + 1] == arch and "--dropout" in options
