"""The example of CONTRIBUTING.md, an objective of one's own, needs no change to the package."""

import re

from conftest import ROOT, TINY, succeed
from maelm_fairseq.checkpoints.building import load_model, read_checkpoint
from maelm_fairseq.vocabulary import load_dictionary

EXAMPLE = ROOT / "docs" / "replaced_tokens"


def test_an_objective_of_ones_own_trains_and_its_encoder_loads(data, tmp_path):
    options = ["--user-dir", EXAMPLE, "--arch", "mae_lm_detection", "--criterion", "mae_lm_detection"]
    options += ["--encoder-layers", 2, "--encoder-attention-heads", 2, "--share-decoder-layers", "--decoder-layers", 1]
    printed = succeed(
        "fairseq-train", data, *TINY, *options, "--dropout", 0, "--attention-dropout", 0, "--lr", 0.003,
        "--max-update", 30, "--save-dir", tmp_path, "--log-interval", 10,
    )  # fmt: skip
    losses = [float(loss) for loss in re.findall(r'"loss": "([\d.]+)"', printed)]
    assert losses[-1] < losses[0]
    weights = read_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    assert weights["detection_head.weight"].shape == (1, 32)
    model = load_model(tmp_path / "checkpoint_last.pt", load_dictionary(data))
    assert model.lm_head is not None and not hasattr(model, "detection_head")
