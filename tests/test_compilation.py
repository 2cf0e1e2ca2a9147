"""Compiled layers compute what others do, without graph breaks, and are compiled once a shape."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from conftest import TINY
from maelm_fairseq.criterion import MaeLmCriterion
from small_models import SHARED, Setting
from training import error_of_command, train

DECODER = dict(encoder_layers=3)
NO_BIAS = {"relative_position_num_buckets": 0}


def loss_and_gradients(setting):
    setting.model.zero_grad()
    loss, _, _ = MaeLmCriterion(setting.task)(setting.model, setting.batch)
    loss.backward()
    return loss, {name: weight.grad for name, weight in setting.model.named_parameters()}


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet():
    torch._dynamo.reset()


@pytest.mark.parametrize("options, lengths", [
    (DECODER, "equal"), (SHARED, "mixed"), (NO_BIAS, "mixed"),
])  # fmt: skip
def test_losses_and_gradients_are_those_of_layers_that_are_not_compiled(tmp_path, options, lengths):
    setting = Setting(tmp_path, lengths, **options)
    names = list(setting.model.state_dict())
    loss, gradients = loss_and_gradients(setting)
    # This backend traces as for a compiler, and runs the graph without one.
    setting.model.compile_layers(backend="aot_eager", fullgraph=True)
    compiled_loss, compiled_gradients = loss_and_gradients(setting)
    assert list(setting.model.state_dict()) == names
    torch.testing.assert_close(compiled_loss, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(compiled_gradients, gradients, rtol=1e-9, atol=1e-12)


def test_layers_of_one_shape_are_compiled_once(tmp_path):
    """The encoder's last layer and the decoder's differ in their queries; the head is one graph."""
    setting = Setting(tmp_path, "equal", **DECODER)
    counter = CompileCounterWithBackend("aot_eager")
    setting.model.compile_layers(backend=counter)
    loss_and_gradients(setting)
    first = counter.frame_count
    assert first < len(setting.model.encoder.layers) + len(setting.model.decoder.layers) + 1
    loss_and_gradients(setting)
    assert counter.frame_count == first


def test_more_shapes_than_pytorch_compiles_by_itself_are_no_error(tmp_path):
    """Such as the shapes of training and validation, and those of the last batches of epochs."""
    setting = Setting(tmp_path, "equal", encoder_layers=1, decoder_layers=1)
    setting.model.compile_layers(backend="eager")
    with torch.no_grad():
        for length in range(2, 13):
            tokens = setting.inputs["src_tokens"][:, :length]
            encoded = setting.model.forward_encoder(tokens)
            assert encoded.shape[:2] == tokens.shape
    loss, _ = loss_and_gradients(setting)
    assert torch.isfinite(loss)


def test_a_run_with_compiled_layers_saves_the_weights_of_any_other(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # Compiling takes most of a minute.
    train(data, tmp_path, "--sample-break-mode", "none", "--compile-layers", "--max-update", 2)
    assert "@ 2 updates" in train(data, tmp_path, "--sample-break-mode", "none", "--max-update", 3)


NEEDED = (
    "--compile-layers needs --sample-break-mode none, whose blocks have one length; "
    "it is complete_doc"
)
FADE = "--sample-break-mode none --encoder-mask-fade-updates 3"


@pytest.mark.parametrize("options, message", [
    ("", NEEDED),
    (FADE, "contradicts --encoder-mask-fade-updates 3"),
])  # fmt: skip
def test_inputs_of_many_shapes_are_refused(data, tmp_path, options, message):
    error = error_of_command(
        data, *TINY, "--save-dir", tmp_path, "--compile-layers", *options.split()
    )
    assert message in error
