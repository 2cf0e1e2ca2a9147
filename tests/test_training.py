"""Pretraining with fairseq-train, from data to logs and checkpoints."""

import json
import re

import pytest
import torch
from fairseq.trainer import Trainer

from common import Training
from conftest import (
    ROOT,
    TINY,
    TINY_MODEL,
    VALIDATE,
    binarize,
    documents,
    hydra,
    refuses,
    succeed,
    text_of,
)
from maelm_fairseq.checkpoints.building import load_model
from maelm_fairseq.training.loop import train_step
from maelm_fairseq.vocabulary import load_dictionary
from training import NO_DROPOUT, assert_same_weights, checkpoint, train, updates


def json_lines(log, key):
    """The JSON objects in lines of a log that contain this text."""
    return [json.loads(line[line.index("{") :]) for line in log.splitlines() if key in line]


def losses(log):
    return [float(loss) for loss in re.findall(r'"loss": "([\d.]+)"', log)]


def test_trains_validates_saves_and_logs(data, tmp_path, monkeypatch):
    """As a real process, on a terminal that cannot show the name of the folder."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    save = tmp_path / "\u65e5\u672c"
    printed = train(data, save, "--max-update", 6, "--num-workers", 1, real=True)
    assert "\\u65e5" in printed
    assert "Logging error" not in printed
    assert updates(save) == 6
    assert (save / "checkpoint_best.pt").exists()
    logged = json_lines(printed, 'num_updates"')
    train_log = logged[0]
    valid_log = next(log for log in logged if "valid_loss" in log)
    assert {"loss", "ppl", "accuracy", "wps", "predicted", "visible", "wpb"} <= train_log.keys()
    assert float(train_log["predicted"]) + float(train_log["visible"]) == float(train_log["wpb"])
    assert {"valid_loss", "valid_ppl", "valid_accuracy"} <= valid_log.keys()
    monkeypatch.undo()
    options = [*VALIDATE, "--path", save / "checkpoint_best.pt", "--log-format", "json"]
    validated = succeed("fairseq-validate", data, *options)
    assert f'"valid_loss": "{valid_log["valid_loss"]}"' in validated


def test_hydra_is_the_legacy_command_line(data, tmp_path):
    """Also in the sizes that neither names, which are those of the architecture."""
    succeed("fairseq-hydra-train", *hydra(tmp_path, data, TINY_MODEL), cwd=tmp_path)
    train(data, tmp_path / "legacy")
    assert updates(tmp_path / "hydra") == 4
    assert updates(tmp_path / "legacy") == 4
    assert_same_weights(tmp_path / "hydra", tmp_path / "legacy", 1e-6)


def repeats_its_first_word(document):
    """A document of the same size with a single word."""
    word = document[0].split()[0]
    return [" ".join([word] * len(line.split())) for line in document]


def test_loss_falls(tmp_path):
    # A masked word can be told from the rest.
    repeated = [repeats_its_first_word(document) for document in documents(120, 1)]
    texts = {"train": text_of(repeated), "valid": text_of(repeated[:20])}
    data = binarize(tmp_path / "data", texts)
    schedule = ["--max-update", 120, "--total-num-update", 120]
    schedule += ["--lr", 0.006, "--warmup-updates", 10]
    logged = losses(train(data, tmp_path / "run", *schedule, "--log-interval", 20))
    assert logged[-1] < logged[0] - 1


def test_shards_take_turns(data, tmp_path):
    other = binarize(tmp_path / "other", {"train": text_of(documents(30, 5))}, data / "dict.txt")
    printed = train(f"{data}:{other}", tmp_path / "run", "--max-epoch", 3, "--max-update", 0)
    loaded = re.findall(r"(\w+)/train: [\d,]+ lines", printed)
    assert loaded[:3] == ["data", "other", "data"]


@pytest.mark.parametrize("options", [
    ["--encoder-mask-fraction", 1, "--decoder-layers", 0],
    # An MLM, which has no layers to share.
    ["--share-decoder-layers", "--encoder-mask-fraction", 1, "--decoder-layers", 0],
    ["--encoder-mask-fraction", 0.5, "--random-token-prob", 0.1, "--decoder-relative-bias",
     "--bf16-autocast", "--sample-break-mode", "none"],
    ["--share-decoder-layers", "--encoder-mask-fraction", 0.5, "--bf16-autocast",
     "--update-freq", 2],
])  # fmt: skip
def test_options_of_the_method_train_and_resume(data, tmp_path, options):
    train(data, tmp_path, "--max-update", 2, *options)
    assert "Loaded checkpoint" in train(data, tmp_path, "--max-update", 4, *options)
    assert updates(tmp_path) == 4
    weights = checkpoint(tmp_path)["model"]
    assert all(w.dtype in (torch.float32, torch.int64) for w in weights.values())
    has_decoder = any(name.startswith("decoder.") for name in weights)
    no_decoder = "--share-decoder-layers" in options or "--decoder-layers" in options
    assert has_decoder == (not no_decoder)


def test_masks_fade_in_training_and_not_in_validation(data, tmp_path):
    seen = {}
    validated = {}
    for fade in [0, 4]:
        options = ["--max-update", 6, "--mask-prob", 0.5, "--encoder-mask-fade-updates", fade]
        options += ["--batch-size", 60, "--sample-break-mode", "none", "--num-workers", 1]
        log = train(data, tmp_path / str(fade), *options)
        logs = json_lines(log, '"num_updates": ')
        seen[fade] = [float(stats["visible"]) / float(stats["wpb"]) for stats in logs]
        validated[fade] = set(re.findall(r'"valid_visible": "([\d.]+)"', log))
    assert validated[0] == validated[4]
    assert max(seen[0]) < 0.6
    faded = [1, 0.75, 0.5, 0.25, 0, 0]  # how much of the masked is seen at each update
    expected = [share + left * (1 - share) for share, left in zip(seen[0], faded)]
    assert seen[4] == pytest.approx(expected, abs=0.03)


def test_one_token_samples_and_batches_with_nothing_selected_train(data, tmp_path):
    options = ["--sample-break-mode", "eos", "--batch-size", 1]
    options += ["--mask-prob", 0.02, "--max-update", 12]
    printed = train(data, tmp_path, *options)
    assert updates(tmp_path) == 12
    assert '"predicted": "0"' in printed
    assert not re.search(r"\bnan\b", printed, re.IGNORECASE)


def stepped(data, folder, *more):
    """The weights after an update with one batch and `more`, in a run like fairseq-train's."""
    torch.manual_seed(1)
    options = [*TINY, *NO_DROPOUT, "--optimizer", "sgd", "--warmup-updates", 0]
    training = Training([data, *options, "--save-dir", folder], "cpu")
    train_step(Trainer.train_step, training.trainer, [training.batches[0], *more])
    return training.trainer.get_model().state_dict()


def test_the_empty_batch_of_a_process_that_has_one_less_changes_nothing(data, tmp_path):
    """fairseq would count the tokens of another batch, or none of the update's."""
    with_empty_batches = stepped(data, tmp_path, {}, {})
    torch.testing.assert_close(with_empty_batches, stepped(data, tmp_path), rtol=0, atol=0)


def test_a_batch_that_does_not_fit_ends_training(data, tmp_path, monkeypatch):
    def forward(*args, **kwargs):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("maelm_fairseq.criterion.MaeLmCriterion.forward", forward)
    refuses("out of memory: reduce the size of the batch", stepped, data, tmp_path)


# Objectives of one's own --------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", [["--share-decoder-layers"], []], ids=["shared", "own"])
def test_an_objective_of_ones_own_trains_and_its_encoder_loads(data, tmp_path, decoder):
    """The example of CONTRIBUTING.md, which needs no change to the package."""
    options = ["--user-dir", ROOT / "docs" / "replaced_tokens"]
    options += ["--arch", "mae_lm_detection", "--criterion", "mae_lm_detection"]
    options += ["--encoder-layers", 2, "--encoder-attention-heads", 2, *decoder]
    options += ["--decoder-layers", 1, *NO_DROPOUT, "--lr", 0.003]
    options += ["--max-update", 30, "--log-interval", 10]
    logged = losses(train(data, tmp_path, *options))
    assert logged[-1] < logged[0]
    state = checkpoint(tmp_path)
    assert state["model"]["detection_head.weight"].shape == (1, 32)
    # All weights have gradients.
    assert len(state["last_optimizer_state"]["state"]) == len(state["model"])
    model = load_model(tmp_path / "checkpoint_last.pt", load_dictionary(data))
    assert model.lm_head is not None
    assert not hasattr(model, "detection_head")


CRITERION = """
from fairseq.criterions import register_criterion
import maelm_fairseq.plugin
from maelm_fairseq.criterion import MaeLmCriterion


@register_criterion('mine')
class Mine(MaeLmCriterion):
    pass
"""


def test_a_criterion_without_options_of_its_own_resumes(data, tmp_path):
    plugin = tmp_path / "mine"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(CRITERION)
    options = [*TINY, "--user-dir", plugin, "--criterion", "mine", "--save-dir", tmp_path / "run"]
    for last in [2, 4]:
        printed = succeed("fairseq-train", data, *options, "--max-update", last)
    assert "@ 2 updates" in printed
    assert '"num_updates": "4"' in printed
