"""The example of CONTRIBUTING.md, an objective of one's own, needs no change to the package."""

import re

import pytest

from conftest import ROOT, TINY, succeed
from maelm_fairseq.checkpoints.building import load_model, read_checkpoint
from maelm_fairseq.vocabulary import load_dictionary

EXAMPLE = ROOT / "docs" / "replaced_tokens"


@pytest.mark.parametrize("decoder", [["--share-decoder-layers"], []], ids=["shared", "own"])
def test_an_objective_of_ones_own_trains_and_its_encoder_loads(data, tmp_path, decoder):
    options = ["--user-dir", EXAMPLE, "--arch", "mae_lm_detection", "--criterion", "mae_lm_detection"]
    options += ["--encoder-layers", 2, "--encoder-attention-heads", 2, *decoder, "--decoder-layers", 1]
    printed = succeed(
        "fairseq-train", data, *TINY, *options, "--dropout", 0, "--attention-dropout", 0, "--lr", 0.003,
        "--max-update", 30, "--save-dir", tmp_path, "--log-interval", 10,
    )  # fmt: skip
    losses = [float(loss) for loss in re.findall(r'"loss": "([\d.]+)"', printed)]
    assert losses[-1] < losses[0]
    state = read_checkpoint(tmp_path / "checkpoint_last.pt")
    assert state["model"]["detection_head.weight"].shape == (1, 32)
    assert len(state["last_optimizer_state"]["state"]) == len(state["model"])  # all weights have gradients
    model = load_model(tmp_path / "checkpoint_last.pt", load_dictionary(data))
    assert model.lm_head is not None and not hasattr(model, "detection_head")


def test_a_criterion_without_options_of_its_own_resumes(data, tmp_path):
    code = "from fairseq.criterions import register_criterion\nimport maelm_fairseq.plugin\n"
    code += "from maelm_fairseq.criterion import MaeLmCriterion\n\n\n"
    code += "@register_criterion('mine')\nclass Mine(MaeLmCriterion):\n    pass\n"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(code)
    options = [*TINY, "--user-dir", tmp_path / "mine", "--criterion", "mine", "--save-dir", tmp_path / "run"]
    for updates in [2, 4]:
        printed = succeed("fairseq-train", data, *options, "--max-update", updates)
    assert "@ 2 updates" in printed and '"num_updates": "4"' in printed
