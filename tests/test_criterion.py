"""The loss of pretraining and its log, computed from logits that are known."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from maelm_fairseq.criterion import MaeLmCriterion

PAD = 1


def test_accuracy_counts_no_padding():
    cfg = SimpleNamespace(bf16_autocast=False)
    dictionary = SimpleNamespace(pad=lambda: PAD, eos=lambda: 2)
    criterion = MaeLmCriterion(SimpleNamespace(cfg=cfg, target_dictionary=dictionary))
    sizes = dict(npredicted=2, nvisible=10, ntokens=12, nsentences=1)
    sample = dict(net_input={}, target=torch.tensor([[4, 6, PAD]]), **sizes)
    logits = torch.zeros(1, 3, 7)
    logits[0, 0, 4] = 1  # right
    logits[0, 1, 5] = 1  # wrong
    logits[0, 2, PAD] = 1  # padding, where there is padding
    _, _, logged = criterion(lambda: logits, sample)
    assert logged["correct"] == 1


@pytest.mark.parametrize("predicted", [8, 0])
def test_logs_are_per_predicted_token_and_in_bits(predicted):
    loss = torch.tensor(6.0 if predicted else 0.0)
    batch = dict(loss=loss, correct=torch.tensor(1), sample_size=predicted // 2, visible=5)
    with metrics.aggregate() as logged:
        MaeLmCriterion.reduce_metrics([batch, batch])
    values = logged.get_smoothed_values()
    assert values["predicted"] == predicted
    assert values["visible"] == 10
    if predicted:
        assert values["loss"] == pytest.approx(12 / 8 / math.log(2), abs=1e-3)
        assert values["accuracy"] == pytest.approx(100 * 2 / 8)
        assert values["ppl"] == pytest.approx(math.exp(12 / 8), abs=0.01)
