"""Checkpoints from strangers: no entry point executes anything from them."""

import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.ctc import CtcCriterion, CtcCriterionConfig

from conftest import PLUGIN, PYTHON, TINY, TINY_MODEL, hydra, prepare, run, succeed
from maelm_fairseq import compat, hub
from maelm_fairseq.checkpoint.__main__ import describe
from maelm_fairseq.errors import UsageError
from maelm_fairseq.huggingface.export import export
from maelm_fairseq.huggingface.import_roberta import import_roberta
from maelm_fairseq.vocabulary import load_dictionary


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def expression(marker):
    """Python source that makes a folder when it is evaluated."""
    return f"__import__('os').mkdir({str(marker)!r})"


def of_model(state, marker):
    state["cfg"]["model"] = {"_name": "wav2vec2", "arch": "mae_lm_tiny", "conv_feature_layers": expression(marker)}


def of_criterion(state, marker):
    state["cfg"]["criterion"] = {"_name": "ctc", "wer_args": expression(marker), "zero_infinity": True}


def of_task(state, marker):
    state["cfg"]["task"]["_name"] = "audio_pretraining"


def of_pickle(state, marker):
    state["extra_state"]["surprise"] = Payload(marker)


HOSTILE = {"model": of_model, "criterion": of_criterion, "task": of_task, "pickle": of_pickle}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    succeed("fairseq-train", data, *TINY, "--save-dir", folder, "--relative-position-num-buckets", 0)
    return folder / "checkpoint_last.pt"


@pytest.fixture(params=HOSTILE)
def hostile(request, trained, tmp_path):
    """A checkpoint that makes the folder `marker` beside it if it is let."""
    state = compat.load_checkpoint(trained)
    HOSTILE[request.param](state, tmp_path / "marker")
    torch.save(state, tmp_path / "hostile.pt")
    return request.param, tmp_path / "hostile.pt", tmp_path / "marker"


def validate(data, path, *options, real=False):
    return run("fairseq-validate", data, *options, "--cpu", "--batch-size", 8, "--path", path, real=real)


OURS = ["--user-dir", PLUGIN, "--task", "mae_lm"]


def test_fairseq_alone_runs_what_such_a_file_says(data, tmp_path):
    # With a task of fairseq's own and without this plugin: or the other tests would show nothing.
    options = ["--task", "masked_lm", "--arch", "roberta", "--encoder-layers", 1, "--encoder-embed-dim", 8]
    options += ["--encoder-ffn-embed-dim", 8, "--encoder-attention-heads", 1, "--criterion", "masked_lm"]
    options += ["--tokens-per-sample", 32, "--max-positions", 32, "--batch-size", 8, "--lr", 0.001, "--max-update", 1]
    succeed("fairseq-train", data, *options, "--optimizer", "adam", "--cpu", "--save-dir", tmp_path / "stock")
    path = tmp_path / "stock" / "checkpoint_last.pt"
    state = compat.load_checkpoint(path)
    of_model(state, tmp_path / "marker")
    torch.save(state, path)
    done = validate(data, path, "--task", "masked_lm", real=True)
    assert (tmp_path / "marker").exists(), done.stdout[-3000:]
    os.rmdir(tmp_path / "marker")
    of_criterion(state, tmp_path / "marker")
    section = state["cfg"]["criterion"]
    config = CtcCriterionConfig(wer_args=section["wer_args"], zero_infinity=True, post_process="letter")
    with pytest.raises(TypeError):  # by what the expression gives
        CtcCriterion(config, SimpleNamespace(target_dictionary=load_dictionary(data)))
    assert (tmp_path / "marker").exists()


def test_validate(hostile, data):
    kind, path, marker = hostile
    done = validate(data, path, *OURS)
    assert done.returncode == 1 and not marker.exists()
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in done.stdout
    if kind == "pickle":
        assert f"{path}: cannot be read as a checkpoint" in error
    else:
        name = {"model": "wav2vec2", "criterion": "ctc", "task": "audio_pretraining"}[kind]
        assert f"{path}: its configuration names the {kind} {name!r}, expected one of this plugin" in error


def test_validate_accepts_our_own(trained, data):
    assert "valid on 'valid' subset" in validate(data, trained, *OURS).stdout


@pytest.mark.parametrize("change", ["weight", "setting"])
def test_validate_says_in_one_line_what_fairseq_cannot_build(change, trained, data, tmp_path):
    state = compat.load_checkpoint(trained)
    if change == "weight":
        state["model"]["encoder.layers.0.ffn.0.bias"] = torch.zeros(3)
    else:
        state["cfg"]["model"]["decoder_layers"] = [1]
    torch.save(state, tmp_path / "changed.pt")
    done = validate(data, tmp_path / "changed.pt", *OURS)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert f"{tmp_path / 'changed.pt'}: fairseq cannot build the model (" in error


@pytest.mark.parametrize("how", ["resume", "finetune", "hydra"])
def test_training(how, hostile, data, tmp_path):
    kind, path, marker = hostile
    if how == "resume":
        (tmp_path / "run").mkdir()
        shutil.copy(path, tmp_path / "run" / "checkpoint_last.pt")
    if how == "hydra":
        model = {**TINY_MODEL, "relative_position_num_buckets": 0}
        arguments = [*hydra(tmp_path, data, model), f"+checkpoint.finetune_from_model={path}"]
        assert run("fairseq-hydra-train", *arguments).returncode == (1 if kind == "pickle" else 0)
    else:
        start = ["--finetune-from-model", path] * (how == "finetune")
        options = [*TINY, "--relative-position-num-buckets", 0, "--save-dir", tmp_path / "run", *start]
        assert run("fairseq-train", data, *options).returncode == (1 if kind == "pickle" else 0)
    assert not marker.exists()


def test_everything_else(hostile, data, tmp_path):
    kind, path, marker = hostile
    found = []
    for use in [
        lambda: hub.from_pretrained(path, data),
        lambda: export(path, data, tmp_path / "encoder"),
        lambda: import_roberta(path, data, tmp_path / "imported.pt"),
        lambda: describe(path),
    ]:
        try:
            found.append(use())
        except UsageError as error:
            assert "\n" not in str(error)
    program = [PYTHON, "-m", "maelm_fairseq.effective_rank", "--data", data, "--dest", tmp_path / "ranks"]
    done = subprocess.run(
        list(map(str, [*program, "--checkpoint", path])), cwd=PLUGIN.parent, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr and not marker.exists()
    if kind in ["model", "criterion", "task"]:
        untrusted = [line for line in found[-1] if "not of this plugin" in line]
        assert len(untrusted) == 1 and untrusted[0].startswith(f"  {kind}: ")


def test_what_a_checkpoint_contains(trained, tmp_path):
    lines = describe(trained)
    assert lines[0].endswith("bytes, whole") and "not of this plugin" not in "".join(lines)
    assert {"  model: 'mae_lm_tiny'", "  task: 'mae_lm'", "  criterion: 'mae_lm'", "  updates: 4"} <= {*lines}
    assert any(line.startswith("  weights of decoder: ") for line in lines)
    state = compat.load_checkpoint(trained)
    state["model"]["lm_head.bias"][0] = float("nan")
    torch.save(state, tmp_path / "nan.pt")
    assert "  NaN or infinite: 'lm_head.bias', 1 in all" in describe(tmp_path / "nan.pt")
    for value in [3, [state], {}, {"model": 3}, {"model": {"a": 1}, "cfg": 2, "optimizer_history": {}}]:
        torch.save(value, tmp_path / "odd.pt")
        assert len(describe(tmp_path / "odd.pt")) >= 2


def test_allowed_classes_execute_nothing(tmp_path):
    """Each class that may be in a checkpoint, made and filled with what could make something run."""
    marker = tmp_path / "marker"
    hook = [sys.executable, "-c", f"import os; os.mkdir({str(marker)!r})"]
    texts = [expression(marker), "${oc.eval:" + expression(marker) + "}", "!!python/object/apply:os.mkdir [marker]"]
    values = [*texts, hook, {"_target_": "os.mkdir", "path": str(marker)}, {text: text for text in texts}]
    classes = compat._checkpoint_classes()
    tried = 0
    with torch.serialization.safe_globals(classes):
        for kind in classes:
            name = getattr(kind, "__qualname__", None) or kind._name
            for value in values:
                state = {"__setstate__": texts[0], "__reduce__": hook, "_content": value, "_metadata": value}
                for arguments in [(), (value,), (value, value)]:
                    for fill in [None, state]:
                        path = tmp_path / f"{tried}.pt"
                        torch.save({"x": 1}, path)
                        rewrite(path, pickled(kind.__module__, name, arguments, fill))
                        try:
                            repr(compat.load_checkpoint(path))
                        except Exception:  # most cannot be made in this way
                            pass
                        path.unlink()
                        tried += 1
    assert tried == 6 * len(values) * len(classes) > 500 and not marker.exists()


def pickled(module, name, arguments, state):
    """A pickle of `module.name(*arguments)`, then filled with a state unless that is None."""
    content = b"\x80\x02c" + module.encode() + b"\n" + name.encode() + b"\n"
    content += pickle.dumps(arguments, 2)[2:-1] + b"R"
    if state is not None:
        content += pickle.dumps(state, 2)[2:-1] + b"b"
    return content + b"."


def rewrite(path, content):
    """Replaces the pickle in a file of torch.save."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in files.items():
            archive.writestr(name, content if name.endswith("data.pkl") else old)
