"""--compile: the same results from kernels that torch.compile makes, checkpoints as without it."""

import shutil

import pytest
import torch

from maelm_fairseq.layers import Masks, Transformer
from training import NO_DROPOUT, assert_same_weights, checkpoint, train, updates

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
    transformer = Transformer(3, 8, 16, 2, 0.1, 0.1, 64, 8, 20)
    traced, expected = count_traces(transformer), 0
    for padded in [False, True]:
        for visible in [0, 2]:  # rows that are predicted
            expected += 1 if visible else 3  # the last layer; before, those of both kinds of rows and of the visible
            for length, masks in [(20, 6), (33, 9), (41, 3), (30, 7)]:
                positions = torch.randperm(length + masks).expand(2, -1)
                late = Masks(torch.randn(2, masks, 8), positions[:, length:], 2)
                x = torch.randn(2, length, 8)
                transformer(x, positions[:, :length], padded, masks + visible, masks=late).sum().backward()
                assert len(traced) == expected, (padded, visible, length)


def test_training_is_as_without_and_resumes_either_way(data, tmp_path):
    options = [*NO_DROPOUT, "--mask-prob", 0.3, "--decoder-layers", 1, "--encoder-layers", 1]
    options += ["--optimizer", "torch_adamw"]
    train(data, tmp_path / "plain", "--max-update", 6, *options)
    train(data, tmp_path / "compiled", "--max-update", 3, *options, "--compile")
    shutil.copytree(tmp_path / "compiled", tmp_path / "resumed")
    train(data, tmp_path / "compiled", "--max-update", 6, *options)
    train(data, tmp_path / "resumed", "--max-update", 6, *options, "--compile")
    for name in ["compiled", "resumed"]:
        assert updates(tmp_path / name) == 6
        assert checkpoint(tmp_path / name)["model"].keys() == checkpoint(tmp_path / "plain")["model"].keys()
        assert_same_weights(tmp_path / name, tmp_path / "plain", 1e-5)
