"""On a GPU, losses and gradients are those of float32 on the CPU, and a recipe resumes.

Without a GPU, the tests of losses and gradients run on the CPU.
"""

import json
import re

import pytest
import torch
from fairseq import utils

from conftest import script
from maelm_fairseq import precision
from maelm_fairseq.criterion import MaeLmCriterion
from small_models import SHARED, Setting

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = dict(
    encoder_layers=4,
    encoder_embed_dim=128,
    encoder_ffn_embed_dim=512,
    encoder_attention_heads=2,
    max_positions=160,
    tokens_per_sample=160,
    relative_position_num_buckets=32,
)
# {name: (options of the task, type of the weights, relative errors of the loss and the gradients)}
PRECISIONS = {
    "float32": ({}, torch.float32, 1e-5, 1e-4),
    "fp16": ({}, torch.half, 1e-3, 3e-2),
    "bf16-autocast": ({"bf16_autocast": True}, torch.float32, 5e-3, 1e-1),
}


def loss_and_gradients(folder, device, dtype=torch.float32, **options):
    """The loss and all gradients of a padded batch.

    The weights are as large as trained ones, so that every layer matters.
    """
    folder.mkdir()
    setting = Setting(folder, "long", torch.float32, **options)
    torch.manual_seed(1)
    for weight in setting.model.parameters():
        if weight.dim() == 2:
            weight.data.normal_(0, weight.size(1) ** -0.5)
    model = setting.model.to(device, dtype)
    batch = utils.apply_to_sample(lambda x: x.to(device), setting.batch)
    loss, _, _ = MaeLmCriterion(setting.task)(model, batch)
    loss.backward()
    gradients = [weight.grad.float().cpu().flatten() for weight in model.parameters()]
    return loss.item(), torch.cat(gradients)


@pytest.mark.parametrize("depth", [{}, {**SHARED, "encoder_layers": 4}], ids=["decoder", "shared"])
@pytest.mark.parametrize("name", PRECISIONS)
def test_results_are_those_of_the_cpu_in_float32(tmp_path, monkeypatch, name, depth):
    monkeypatch.setattr(precision, "is_fast_in_bfloat16", lambda kind: True)
    options, dtype, limit_of_loss, limit_of_gradients = PRECISIONS[name]
    sizes = {**SIZES, **depth}
    expected_loss, expected = loss_and_gradients(tmp_path / "cpu", "cpu", **sizes)
    loss, gradients = loss_and_gradients(tmp_path / "device", DEVICE, dtype, **sizes, **options)
    assert abs(loss / expected_loss - 1) < limit_of_loss
    assert (gradients - expected).norm() / expected.norm() < limit_of_gradients


@pytest.mark.skipif(DEVICE == "cpu", reason="other tests resume on the CPU")
@pytest.mark.parametrize("options", [[], ["--bf16-autocast"]])
def test_a_recipe_resumes(data, tmp_path, options):
    command = ["recipes/pretrain_small.sh", "--data", data, "--save-dir", tmp_path / "run"]
    command += ["--gpus", 1, "--lr", 1e-3, "--warmup-updates", 5, "--log-interval", 1]
    command += ["--tokens-per-sample", 32, *options]
    for updates in [10, 20]:
        script(*command, "--max-update", updates)
    log = (tmp_path / "run" / "train.log").read_text()
    records = [json.loads(text) for text in re.findall(r"train_inner \| (\{.*\})", log)]
    losses = {int(record["num_updates"]): float(record["loss"]) for record in records}
    assert len(records) == len(losses) == 20
    assert max(losses[11], losses[20]) < losses[1]
