"""Checkpoints from strangers: no entry point executes anything from them."""

import importlib
import shutil
from collections import OrderedDict
from typing import Tuple

import pytest
import torch

from conftest import TINY, VALIDATE, run, run_main
from hostile_files import FILES, Payload, put, spoil
from maelm_fairseq import effective_rank, hub
from maelm_fairseq.base.errors import InstallationError, UsageError, one_line
from maelm_fairseq.checkpoints import reading, sections
from maelm_fairseq.huggingface.export import export


def expression(marker):
    """Python source that makes a folder when it is evaluated."""
    return f"__import__('os').mkdir({str(marker)!r})"


def attributes(marker):
    """Attributes of an OrderedDict.

    fairseq takes them for options of an old version and prefers them to the configuration.
    """
    options = OrderedDict()
    vars(options).update(
        arch="fconv_lm", task="language_modeling", decoder_layers=expression(marker)
    )
    return options


MODEL = {"_name": "wav2vec2", "arch": "mae_lm_tiny"}
CRITERION = {"_name": "ctc", "zero_infinity": True}


def hostile_model(marker):
    return put("cfg", "model", value={**MODEL, "conv_feature_layers": expression(marker)})


def hostile_criterion(marker):
    return put("cfg", "criterion", value={**CRITERION, "wer_args": expression(marker)})


HOSTILE = {
    "model": hostile_model,
    "criterion": hostile_criterion,
    "task": lambda marker: put("cfg", "task", "_name", value="audio_pretraining"),
    "pickle": lambda marker: put("extra_state", "surprise", value=Payload(marker)),
    "args": lambda marker: put("args", value=attributes(marker)),
}


class Script(torch.nn.Module):
    """A module of TorchScript that writes a file when it is loaded.

    torch before 2.6 loads it even with weights_only.
    """

    def __init__(self, path):
        super().__init__()
        self.path = path

    @torch.jit.export
    def __getstate__(self):
        return (self.path, self.training)

    @torch.jit.export
    def __setstate__(self, state: Tuple[str, bool]):
        self.path, self.training = state
        torch.from_file(self.path, True, 4).fill_(1.0)


def test_a_torch_that_executes_code_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    message = "torch 2.5.1.cpu executes code from some checkpoints.*2.6 or newer"
    with pytest.raises(InstallationError, match=message):
        importlib.reload(reading)


@pytest.mark.parametrize("kind", [*HOSTILE, "script"])
def test_nothing_is_executed(kind, pretrained, tmp_path):
    """Every use of a checkpoint that would make the file or folder `marker` leaves it unmade."""
    prepared, checkpoint = pretrained
    path = tmp_path / "hostile.pt"
    marker = tmp_path / "marker"
    if kind == "script":
        torch.jit.save(torch.jit.script(Script(str(marker))), path)
    else:
        state = reading.read_torch_file(checkpoint)
        HOSTILE[kind](marker)(state)
        torch.save(state, path)
    done = run("fairseq-validate", prepared, *VALIDATE, "--path", path)
    assert_refused(done, kind, path)
    assert not marker.exists()
    (tmp_path / "run").mkdir()
    shutil.copy(path, tmp_path / "run" / "checkpoint_last.pt")
    done = run("fairseq-train", prepared, *TINY, "--save-dir", tmp_path / "run")
    assert done.returncode == (0 if kind in ("task", "args") else 1)
    assert "Traceback" not in done.stdout
    ranks = ["--data", prepared, "--dest", tmp_path / "ranks", "--checkpoint", path]
    for use in [
        lambda: hub.from_pretrained(path, prepared),
        lambda: export(path, prepared, tmp_path / "encoder"),
        lambda: run_main(effective_rank.main, *ranks),
    ]:
        try:
            use()
        except UsageError as error:
            assert "\n" not in str(error)
    assert not marker.exists()


def assert_refused(done, kind, path):
    """fairseq-validate refuses the checkpoint in one line, unless nothing reads what is hostile."""
    assert "Traceback" not in done.stdout
    if kind == "args":  # which nothing reads
        assert "valid on 'valid' subset" in done.stdout
        return
    assert done.returncode == 1
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    if kind in ("pickle", "script"):
        assert f"{path}: " in error
        assert "were not loaded" in error or "a program of TorchScript" in error
        assert "weights_only" not in error
        assert "trust" not in error
    else:
        assert f"{path}: expected a checkpoint of this plugin, found another {kind}" in error


@pytest.mark.parametrize("name, reason", [
    ("one_number_repeated", "a tensor of the shape .200000, 200000. with fewer numbers"),
    ("a_sparse_weight", "a tensor of another kind .torch.sparse_coo"),
    ("a_meta_weight", "a tensor of another kind .torch.strided, meta"),
    ("a_quantized_weight", "a tensor of another kind .*qint8"),
    ("a_nested_weight", "a tensor of another kind"),
    ("complex_numbers", "a value of type complex"),
    ("a_weight_without_a_name", "a key of type NoneType"),
    ("a_number_for_a_name", "name: found 5, expected a string"),
    ("a_number_of_many_digits", "were not loaded"),
    ("a_list_in_itself", "RecursionError"),
    ("names_of_2_000_layers", "--encoder-layers 2000 must be from 1 to 1,000"),
    ("one_wide_row", "damaged, or written by another version: weight"),
])  # fmt: skip
def test_what_is_no_dense_tensor_or_of_no_model_is_refused(name, reason, pretrained, tmp_path):
    data, checkpoint = pretrained
    path = tmp_path / "checkpoint_last.pt"
    shutil.copy(checkpoint, path)
    spoil(path, name)
    with pytest.raises(UsageError, match=reason):
        hub.from_pretrained(path, data)


def test_tensors_that_share_memory_get_their_own(tmp_path):
    weight = torch.arange(6.0)
    torch.save({"a": weight, "b": weight, "c": weight.view(2, 3)[1:]}, tmp_path / "tied.pt")
    weights = reading.read_torch_file(tmp_path / "tied.pt")
    weights["a"][5] = 7
    assert weights["b"][5] == 5
    assert weights["c"].tolist() == [[3, 4, 5]]
    shared = torch.zeros(10**6)
    torch.save([shared[i:] for i in range(100)], tmp_path / "tied.pt")
    with pytest.raises(UsageError, match="far larger than the file"):
        reading.read_torch_file(tmp_path / "tied.pt")


@pytest.mark.parametrize("name", FILES)
def test_no_reader_runs_into_a_stack_trace(name, pretrained, tmp_path):
    """These are the readers that all programs share."""
    data, checkpoint = pretrained
    path = tmp_path / "checkpoint_last.pt"
    shutil.copy(checkpoint, path)
    spoil(path, name)
    for read in [
        lambda: hub.from_pretrained(path, data),
        lambda: sections.sanitized_for_fairseq(reading.read_torch_file(path), path),
    ]:
        try:
            read()
        except UsageError as error:
            assert "\n" not in one_line(error)
            assert str(path) in one_line(error)
        except OSError as error:
            assert one_line(error)
