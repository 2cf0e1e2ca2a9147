"""--compile: the same results from kernels that torch.compile makes, checkpoints as without it."""

import shutil
from functools import partialmethod

import pytest
import torch
from torch import nn

from maelm_fairseq.layers import Masks, Transformer
from maelm_fairseq.model import MaeLmConfig
from test_model import MLM, Setting

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")


def count_traces(transformer):
    """A list that receives an entry whenever a layer is traced, which raises at what cannot be."""
    torch.compiler.reset()  # it compiles a function 8 times at most
    traced = []

    def backend(graph, inputs):
        traced.append(graph)
        return graph

    for layer in transformer.layers:
        layer.compile(dynamic=True, fullgraph=True, backend=backend)
    return traced


def test_layers_are_traced_whole_and_once_for_all_lengths():
    torch.manual_seed(1)
    sizes = dict(encoder_embed_dim=8, encoder_ffn_embed_dim=16, encoder_attention_heads=2, max_positions=64)
    cfg = MaeLmConfig(**sizes, relative_position_num_buckets=8, relative_position_max_distance=20)
    transformer = Transformer(cfg, 3, 0.1, 0.1)
    traced, expected = count_traces(transformer), 0
    for padded in [False, True]:
        for visible in [0, 2]:  # rows that are predicted
            expected += 1 if visible else 3  # the last layer; before, those of both kinds of rows and of the visible
            for length, masks in [(20, 6), (33, 9), (30, 7)]:
                positions = torch.randperm(length + masks).expand(2, -1)
                late = Masks(torch.randn(2, masks, 8), positions[:, length:], 2)
                x = torch.randn(2, length, 8)
                transformer(x, positions[:, :length], padded, masks + visible, masks=late).sum().backward()
                assert len(traced) == expected, (padded, visible, length)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.nightly)])
def test_training_is_as_without_and_so_are_checkpoints(tmp_path, monkeypatch, backend):
    """`inductor`, PyTorch's default, takes half a minute to make its kernels."""
    torch.compiler.reset()  # PyTorch would give up a function that the other test has compiled many times
    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=backend))
    options = dict(MLM, encoder_layers=1, lengths="equal", dtype=torch.float32)
    plain, compiled = Setting(tmp_path, **options), Setting(tmp_path, compile=True, **options)
    for setting in [plain, compiled]:
        setting.loss().backward()
    assert [bool(s.model.encoder.layers[0]._compiled_call_impl) for s in [plain, compiled]] == [False, True]
    assert torch._dynamo.config.cache_size_limit == 64
    assert compiled.model.state_dict().keys() == plain.model.state_dict().keys()
    torch.testing.assert_close(compiled.loss(), plain.loss(), rtol=1e-5, atol=0)
    ours, expected = ([weight.grad for weight in setting.model.parameters()] for setting in [compiled, plain])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
