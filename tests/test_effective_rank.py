"""The effective rank of matrices with a known answer, and of models."""

import csv
import re

import numpy as np
import pytest
import torch

import naive
from conftest import TINY, error_of, run_main, succeed
from maelm_fairseq.analysis import token_moments
from maelm_fairseq.effective_rank import main
from small_models import Setting


def moments_of(**groups):
    """The moments of float64 rows (n, C) of each group."""
    moments = token_moments.TokenMoments()
    for group, x in groups.items():
        moments.add(group, [x[None]], torch.ones(1, len(x), dtype=torch.bool))
    return moments


def test_the_share_is_of_squares():
    values = torch.tensor([3.0, 1.0, 0.0])  # The share of the first is 9 of 10.
    for tau, rank in [(0.89, 1), (0.9, 1), (0.91, 2), (1, 2)]:
        assert int(token_moments.effective_rank(values, tau)) == rank
    assert int(token_moments.effective_rank(torch.zeros(5))) == 0


@pytest.mark.parametrize("shared", [0, 2])
def test_dimensions_that_only_masks_have(shared):
    axes = torch.eye(10, dtype=torch.float64)
    moments = moments_of(real_tokens=axes[:4], mask_tokens=axes[4 - shared : 7 - shared])
    assert moments.mask_dimensions(1.0).tolist() == pytest.approx([3 - shared])
    assert moments.count("with_mask") == 7


def test_a_direction_at_an_angle_counts_with_the_square_of_its_sine():
    real = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[np.cos(0.5), np.sin(0.5)]], dtype=torch.float64)
    moments = moments_of(real_tokens=real, mask_tokens=mask)
    assert moments.mask_dimensions().tolist() == pytest.approx([np.sin(0.5) ** 2])


def naive_hidden(model, tokens, masked):
    """The hidden states of one block, (layer, tokens, C), by the naive implementation."""
    cfg = model.cfg
    w = {name: weight.detach() for name, weight in model.named_parameters()}
    x = w["embed_tokens.weight"][torch.where(masked, model.mask_id, tokens)][None]
    masked = masked[None]
    visible = torch.ones(1, 1, len(tokens), dtype=torch.bool)
    late = None
    if cfg.share_decoder_layers:
        visible = naive.who_sees_whom(~masked, masked)
        late = naive.entering(masked, cfg.decoder_layers)
    sizes = cfg.encoder_attention_heads, cfg.relative_position_max_distance
    hidden = []
    output = naive.transformer(w, "encoder", x, visible, *sizes, late, hidden)
    hidden.append(output)
    if cfg.share_decoder_layers:
        # In these layers, masks have not entered yet.
        for x in hidden[: cfg.encoder_layers - cfg.decoder_layers]:
            x[masked] = 0
    return torch.cat(hidden)


def naive_representations(model, blocks):
    """{group: (layer, tokens, C)}, block by block and without padding."""
    parts = {group: [] for group in token_moments.TOKEN_GROUPS}
    for tokens, masked in blocks:
        parts["without_mask"].append(naive_hidden(model, tokens, torch.zeros_like(masked)))
        hidden = naive_hidden(model, tokens, masked)
        parts["with_mask"].append(hidden)
        parts["real_tokens"].append(hidden[:, ~masked])
        parts["mask_tokens"].append(hidden[:, masked])
    return {group: torch.cat(hidden, 1) for group, hidden in parts.items()}


@pytest.mark.parametrize("shared, pretraining", [(0, True), (1, True), (3, False)])
def test_a_model_has_the_singular_values_of_its_representations(
    tmp_path, monkeypatch, shared, pretraining
):
    """In batches of any size, and without dropout.

    With shared decoder layers, masks are there from the first of these layers on.
    """
    depth = dict(encoder_layers=3, decoder_layers=shared or 1, share_decoder_layers=shared > 0)
    setting = Setting(tmp_path, **depth, dropout=0.1, attention_dropout=0.1)
    model = setting.model
    blocks = token_moments.sample_blocks(setting.task.dataset("train"), 1000, mask_prob=0.3)
    if not pretraining:
        model.decoder = model.lm_head = None
    expected = naive_representations(model, blocks)
    for batch_tokens in [1, 70, 10_000]:
        monkeypatch.setattr(token_moments, "BATCH_TOKENS", batch_tokens)
        moments = token_moments.measure_moments(model, blocks)
        for group in token_moments.TOKEN_GROUPS:
            assert moments.count(group) == expected[group].size(1)
            values = moments.singular_values(group)
            svd = torch.linalg.svdvals(expected[group])
            torch.testing.assert_close(values[:, : svd.size(1)], svd, rtol=1e-6, atol=1e-6)
            assert (
                moments.effective_ranks()[group].tolist()
                == token_moments.effective_rank(svd).tolist()
            )
    assert model.training


def table(path):
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_program_writes_tables_spectra_and_a_figure(pretrained, tmp_path, capsys):
    data, checkpoint = pretrained
    succeed("fairseq-train", data, *TINY, "--share-decoder-layers", "--save-dir", tmp_path)
    out = tmp_path / "out"
    # One checkpoint is given as a file, the other one as a folder.
    options = ["--data", data, "--dest", out, "--checkpoint", checkpoint, tmp_path]
    names = ["--names", "MAE-LM", "shared"]
    run_main(main, *options, *names, "--tokens", 300, "--tau", 0.9, 0.5, 0.9)
    printed = capsys.readouterr()
    assert "MAE-LM: effective rank at tau = 0.9, of 3" in printed.out
    assert printed.err == ""
    rows = table(out / "ranks.csv")
    assert len(rows) == 2 * 2 * 3 * 4  # checkpoints, taus, layers, groups
    count = {row["token_group"]: int(row["tokens"]) for row in rows}
    assert count["without_mask"] == count["with_mask"]
    assert count["with_mask"] == count["real_tokens"] + count["mask_tokens"]
    assert count["with_mask"] >= 300
    assert 0.1 < count["mask_tokens"] / count["with_mask"] < 0.2
    rank_0 = [row for row in rows if row["rank"] == "0"]
    places = {(row["checkpoint"], row["layer"], row["token_group"]) for row in rank_0}
    assert places == {("shared", "0", "mask_tokens")}
    spectra = np.load(out / "spectra.npz")
    for row in rows:
        spectrum = spectra[f"{row['checkpoint']}/{row['token_group']}"][int(row["layer"])]
        rank = token_moments.effective_rank(torch.from_numpy(spectrum), float(row["tau"]))
        assert int(rank) == int(row["rank"]) <= 32
    assert len(table(out / "mask_dimensions.csv")) == 2 * 2 * 3
    assert (out / "ranks.png").read_bytes().startswith(b"\x89PNG")
    assert "out: exists already" in error_of(main, *options)


@pytest.mark.parametrize("options, message", [
    (["--tokens-per-sample", 64], "has 32 positions"),
    (["--names", "a", "b"], "--names: found a b, expected 1"),
    (["--checkpoint", "nothing.pt"], "nothing.pt: not found"),
    (["--tokens-per-sample", 2],
     r"--mask-prob 0.15: no token of [\d,]+ blocks of at most 2 tokens is"),
])  # fmt: skip
def test_wrong_options_are_refused(pretrained, tmp_path, options, message):
    data, checkpoint = pretrained
    arguments = ["--checkpoint", checkpoint, "--data", data, "--dest", tmp_path / "out"]
    assert re.search(message, error_of(main, *arguments, *options))
    assert not (tmp_path / "out").exists()
