"""The effective rank of matrices with a known answer, and of models."""

import copy
import csv
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

import naive
from conftest import PYTHON, ROOT, TINY, TINY_MODEL, hydra, run, succeed
from maelm_fairseq import effective_rank as er
from maelm_fairseq.checkpoint import load_model
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary
from test_model import enlarge

FAMILIES = list(er.FAMILIES)


def moments_of(x, family="without_mask", parts=1):
    """The moments of float64 rows (n, C), added in parts."""
    moments = er.TokenMoments()
    for part in x.chunk(parts):
        moments.add(family, [part[None]], torch.ones(1, len(part), dtype=torch.bool))
    return moments


@pytest.mark.parametrize("rank", [1, 2, 7, 16])
def test_equal_directions_have_the_rank_that_holds_the_share(rank):
    directions = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64))[0][:rank]
    values = moments_of(directions * 3).singular_values("without_mask")
    for tau in [0.1, 0.5, 0.9, 1.0]:
        assert er.effective_rank(values, tau).tolist() == [int(np.ceil(rank * tau - 1e-9))]


def test_the_share_is_of_squares():
    values = torch.tensor([3.0, 1.0, 0.0])  # 9 of 10
    assert [int(er.effective_rank(values, tau)) for tau in [0.89, 0.9, 0.91, 1]] == [1, 1, 2, 2]
    assert int(er.effective_rank(torch.zeros(5))) == 0


@pytest.mark.parametrize("parts", [1, 7])
def test_singular_values_are_those_of_the_matrix(parts):
    x = torch.randn(300, 24, dtype=torch.float64) @ torch.randn(24, 24, dtype=torch.float64) + 2
    values = moments_of(x, parts=parts).singular_values("without_mask")[0]
    torch.testing.assert_close(values, torch.linalg.svdvals(x), rtol=1e-9, atol=1e-9)
    expected = np.searchsorted(np.cumsum(torch.linalg.svdvals(x).square().numpy()) / float(x.square().sum()), 0.9) + 1
    assert int(er.effective_rank(values)) == expected


def test_inputs_with_mask_are_the_real_and_the_mask_tokens():
    real, mask = torch.randn(50, 8, dtype=torch.float64), torch.randn(20, 8, dtype=torch.float64)
    moments = moments_of(real, "real_tokens")
    moments.add("mask_tokens", [mask[None]], torch.ones(1, 20, dtype=torch.bool))
    values = moments.singular_values("with_mask")[0]
    torch.testing.assert_close(values, torch.linalg.svdvals(torch.cat([real, mask])))
    assert moments.count("with_mask") == 70


@pytest.mark.parametrize("shared", [0, 1, 2, 3])
def test_dimensions_that_only_masks_have(shared):
    axes = torch.eye(10, dtype=torch.float64)
    moments = moments_of(axes[:4], "real_tokens")
    moments.add("mask_tokens", [axes[None, 4 - shared : 7 - shared]], torch.ones(1, 3, dtype=torch.bool))
    assert moments.mask_dimensions(1.0).tolist() == pytest.approx([3 - shared])


def test_a_direction_at_an_angle_counts_with_the_square_of_its_sine():
    real = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    moments = moments_of(real, "real_tokens")
    mask = torch.tensor([[np.cos(0.5), np.sin(0.5)]], dtype=torch.float64)
    moments.add("mask_tokens", [mask[None]], torch.ones(1, 1, dtype=torch.bool))
    assert moments.mask_dimensions().tolist() == pytest.approx([np.sin(0.5) ** 2])


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A tiny checkpoint."""
    folder = tmp_path_factory.mktemp("trained")
    succeed("fairseq-train", data, *TINY, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def model(data, trained):
    return load_model(trained, load_dictionary(data)).double()


def shared_model(data, layers, pretraining=True):
    """A model of three layers, of which the last ones are its decoder, too."""
    sizes = dict(encoder_layers=3, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=2)
    cfg = MaeLmConfig(**sizes, max_positions=32, decoder_layers=layers, share_decoder_layers=True)
    torch.manual_seed(1)
    model = MaeLmModel(cfg, load_dictionary(data), pretraining).double()
    enlarge(model)
    return model


@pytest.fixture(scope="module")
def blocks(data):
    """Random blocks of different lengths with masks."""
    rng = torch.Generator().manual_seed(1)
    made = []
    for length in [5, 9, 9, 14, 20, 20, 31, 32]:
        tokens = torch.randint(4, len(load_dictionary(data)) - 1, (length,), generator=rng)
        masked = torch.rand(length, generator=rng) < 0.3
        masked[0] = False
        masked[1] = True
        made.append((tokens, masked))
    return made


def naive_representations(model, blocks):
    """{family: (layer, tokens, C)}, computed block by block and without padding."""
    found = {family: [] for family in FAMILIES}
    for tokens, masked in blocks:
        for with_mask in [False, True]:
            shown = torch.where(masked, model.mask, tokens) if with_mask else tokens
            hidden = []
            model.forward_encoder(shown[None], torch.arange(len(tokens))[None], False, hidden)
            hidden = torch.stack(hidden)[:, 0]
            found["with_mask" if with_mask else "without_mask"].append(hidden)
            if with_mask:
                found["real_tokens"].append(hidden[:, ~masked])
                found["mask_tokens"].append(hidden[:, masked])
    return {family: torch.cat(parts, 1) for family, parts in found.items()}


def naive_shared_representations(model, blocks):
    """The same for shared decoder layers, by the naive implementation."""
    cfg, found = model.cfg, {family: [] for family in FAMILIES}
    w = {name: weight.detach() for name, weight in model.named_parameters()}
    for tokens, masked in blocks:
        for with_mask in [False, True]:
            late, hidden = masked[None] & with_mask, []
            hidden.append(
                naive.transformer(
                    w,
                    "encoder",
                    w["embed_tokens.weight"][torch.where(late, model.mask, tokens)],
                    naive.who_sees_whom(~late, late),
                    cfg.encoder_attention_heads,
                    cfg.relative_position_max_distance,
                    naive.entering(late, cfg.decoder_layers),
                    hidden,
                )
            )
            for x in hidden[: cfg.encoder_layers - cfg.decoder_layers]:
                x[late] = 0  # not there yet
            hidden = torch.cat(hidden)
            found["with_mask" if with_mask else "without_mask"].append(hidden)
            if with_mask:
                found["real_tokens"].append(hidden[:, ~masked])
                found["mask_tokens"].append(hidden[:, masked])
    return {family: torch.cat(parts, 1) for family, parts in found.items()}


def assert_singular_values(model, blocks, expected, monkeypatch):
    """Measures in batches of any size, and compares with representations {family: (layer, tokens, C)}."""
    for batch_tokens in [1, 70, 10_000]:
        monkeypatch.setattr(er.measurement, "BATCH_TOKENS", batch_tokens)
        for order in [blocks, blocks[::-1], random.Random(1).sample(blocks, len(blocks))]:
            moments = er.measure(model, order)
            for family in FAMILIES:
                assert moments.count(family) == expected[family].size(1)
                values = moments.singular_values(family)
                svd = torch.linalg.svdvals(expected[family])
                torch.testing.assert_close(values[:, : svd.size(1)], svd, rtol=1e-6, atol=1e-6)
                assert moments.ranks()[family].tolist() == er.effective_rank(svd).tolist()


def test_a_model_has_the_singular_values_of_its_representations(model, blocks, monkeypatch):
    with torch.no_grad():
        expected = naive_representations(model, blocks)
    assert_singular_values(model, blocks, expected, monkeypatch)


@pytest.mark.parametrize("pretraining", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_model_with_shared_layers_has_masks_from_the_first_of_them(data, blocks, monkeypatch, layers, pretraining):
    model = shared_model(data, layers, pretraining)
    expected = naive_shared_representations(model, blocks)
    assert_singular_values(model, blocks, expected, monkeypatch)
    ranks = er.measure(model, blocks).ranks()
    before, after = ranks["mask_tokens"].tolist()[: 3 - layers], ranks["mask_tokens"].tolist()[3 - layers :]
    assert not any(before) and all(after)
    assert ranks["with_mask"].tolist()[: 3 - layers] == ranks["real_tokens"].tolist()[: 3 - layers]


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_a_constructed_model_has_the_known_ranks(data, model, blocks, layers):
    """Words on three axes, [MASK] on a fourth, and layers that add nothing, some of which may be shared."""
    model = shared_model(data, layers) if layers else copy.deepcopy(model)
    width = model.cfg.encoder_embed_dim
    with torch.no_grad():
        model.embed_tokens.weight.zero_()
        # Pairs of opposite signs, so that subtracting LayerNorm's mean changes nothing.
        for token in range(len(model.embed_tokens.weight)):
            axis = 3 if token == model.mask else token % 3
            model.embed_tokens.weight[token, 2 * axis] = 1
            model.embed_tokens.weight[token, 2 * axis + 1] = -1
        model.encoder.embed_positions.weight.zero_()
        for layer in model.encoder.layers:
            layer.attention.out.weight.zero_(), layer.attention.out.bias.zero_()
            layer.ffn[1].weight.zero_(), layer.ffn[1].bias.zero_()
        for module in model.encoder.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.fill_(1), module.bias.zero_()
    moments = er.measure(model, blocks)
    depths = model.cfg.encoder_layers + 1
    masks = [0] * (depths - 1 - layers) + [1] * (layers + 1) if layers else [1] * depths
    assert moments.singular_values("without_mask").shape == (depths, width)
    ranks = {family: found.tolist() for family, found in moments.ranks(0.99).items()}
    assert ranks == {
        "without_mask": [3] * depths,
        "with_mask": [3 + rank for rank in masks],
        "real_tokens": [3] * depths,
        "mask_tokens": masks,
    }
    assert moments.mask_dimensions(0.99).tolist() == pytest.approx(masks)


def test_measuring_leaves_the_model_as_it_was(model, blocks):
    model.train()
    er.measure(model, blocks)
    assert model.training
    model.eval()


def program(*arguments, check=True, real=False):
    done = subprocess.run(
        [sys.executable if real else PYTHON, "-m", "maelm_fairseq.effective_rank", *map(str, arguments)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done


def table(path):
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_program_writes_tables_spectra_and_a_figure(data, trained, tmp_path):
    files = {"MAE-LM": trained}
    for name, options in {
        "MLM": ["--decoder-layers", 0, "--encoder-mask-fraction", 1],
        "shared": ["--share-decoder-layers"],
    }.items():
        succeed("fairseq-train", data, *TINY, *options, "--save-dir", tmp_path / name)
        files[name] = tmp_path / name / "checkpoint_last.pt"
    done = program(
        "--checkpoint", *files.values(), "--names", *files, "--data", data,
        "--dest", tmp_path / "out", "--tokens", 300, "--tau", 0.9, 0.5, real=True,
    )  # fmt: skip
    assert "MAE-LM: effective rank at tau = 0.9" in done.stdout and done.stderr == ""
    rows = table(tmp_path / "out" / "ranks.csv")
    assert len(rows) == 3 * 2 * 3 * 4  # checkpoints, taus, layers, families
    count = {row["family"]: int(row["tokens"]) for row in rows}
    assert count["without_mask"] == count["with_mask"] == count["real_tokens"] + count["mask_tokens"] >= 300
    assert 0.1 < count["mask_tokens"] / count["with_mask"] < 0.2
    assert all(int(row["rank"]) <= 32 and int(row["tokens_half"]) < int(row["tokens"]) for row in rows)
    without = {(row["checkpoint"], row["layer"], row["family"]) for row in rows if row["rank"] == "0"}
    assert without == {("shared", "0", "mask_tokens")}
    spectra = np.load(tmp_path / "out" / "spectra.npz")
    for row in rows:
        values = spectra[f"{row['checkpoint']}/{row['family']}"]
        assert values.shape == (3, 32)
        rank = er.effective_rank(torch.from_numpy(values[int(row["layer"])]), float(row["tau"]))
        assert int(rank) == int(row["rank"])
    for row in table(tmp_path / "out" / "mask_dimensions.csv"):
        ranks = {
            r["family"]: int(r["rank"])
            for r in rows
            if all(r[key] == row[key] for key in ["checkpoint", "layer", "tau"])
        }
        assert int(row["with_mask_less_without"]) == ranks["with_mask"] - ranks["without_mask"]
        assert 0 <= float(row["mask_outside_real"]) <= ranks["mask_tokens"]
    assert (tmp_path / "out" / "ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "options, message",
    [
        (["--tau", 0], "--tau 0.0 must be over 0"),
        (["--tau", "nan"], "--tau nan must be over 0"),
        (["--tokens", 0], "--tokens 0 must be"),
        (["--tokens-per-sample", 0], "--tokens-per-sample 0 must be at least 2"),
        (["--tokens-per-sample", -1], "--tokens-per-sample -1 must be at least 2"),
        (["--seed", -1], "--seed -1 must be at least 0"),
        (["--mask-prob", "nan"], "--mask-prob nan must be"),
        (["--names", "a", "b"], "--names a b: expected 1"),
        (["--tokens-per-sample", 64], "has 32 positions"),
        (["--split", "test"], "expected the binarized split 'test'"),
        (["--checkpoint", "nothing.pt"], "nothing.pt: not found"),
        (["--mask-prob", 1.5], "--mask-prob 1.5 must be"),
        (["--sample-break-mode", "pages"], "--sample-break-mode"),
    ],
)
def test_wrong_options_are_refused(data, trained, tmp_path, options, message):
    arguments = ["--checkpoint", trained, "--data", data, "--dest", tmp_path / "out", *options]
    done = program(*arguments, check=False)
    assert done.returncode == 1
    (error,) = done.stderr.strip().splitlines()
    assert error.startswith("error: ") and message in error
    assert not (tmp_path / "out").exists()


def validations(log):
    return [json.loads(line[line.index("{") :]) for line in log.splitlines() if "| valid | {" in line]


@pytest.mark.parametrize("decoder", [[], ["--share-decoder-layers"]])
def test_training_logs_the_ranks_of_the_last_layer(data, tmp_path, decoder):
    options = [*decoder, "--effective-rank-tokens", 200, "--tensorboard-logdir", tmp_path / "tensorboard"]
    log = succeed("fairseq-train", data, *TINY, *options, "--save-dir", tmp_path / "run")
    logged = validations(log)[-1]
    program(
        "--checkpoint", tmp_path / "run" / "checkpoint_last.pt", "--data", data, "--dest", tmp_path, "--tokens", 200
    )
    last = {row["family"]: row["rank"] for row in table(tmp_path / "ranks.csv") if row["layer"] == "2"}
    assert {family: logged[f"valid_rank_{family}"] for family in FAMILIES} == last
    events = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard" / "valid").iterdir())
    assert b"rank_mask_tokens" in events


def test_training_logs_no_ranks_unless_asked(data, tmp_path):
    log = succeed("fairseq-train", data, *TINY, "--save-dir", tmp_path / "run")
    assert validations(log) and not any(key.startswith("valid_rank") for row in validations(log) for key in row)


def test_hydra_logs_ranks_too(data, tmp_path):
    arguments = hydra(tmp_path, data, TINY_MODEL)
    log = succeed("fairseq-hydra-train", *arguments, "+task.effective_rank_tokens=200", cwd=tmp_path)
    assert '"valid_rank_without_mask": ' in log


def test_a_negative_number_of_tokens_is_refused(data, tmp_path):
    done = run("fairseq-train", data, *TINY, "--effective-rank-tokens", -1, "--save-dir", tmp_path)
    assert done.returncode == 1 and "error: --effective-rank-tokens -1 must be a number of tokens, or 0" in done.stdout
