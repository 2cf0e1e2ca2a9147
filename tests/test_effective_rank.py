"""The effective rank of matrices with a known answer, and of models."""

import csv
import subprocess
import sys

import numpy as np
import pytest
import torch

import naive
from conftest import ROOT, TINY, succeed
from maelm_fairseq.analysis import effective_rank as er
from maelm_fairseq.data.vocabulary import load_dictionary
from maelm_fairseq.engine.checkpoints import load_model
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from test_model import enlarge

FAMILIES = list(er.FAMILIES)


def moments_of(x, family="without_mask"):
    """The moments of float64 rows (n, C)."""
    moments = er.TokenMoments()
    moments.add(family, [x[None]], torch.ones(1, len(x), dtype=torch.bool))
    return moments


@pytest.mark.parametrize("rank", [1, 7, 16])
def test_equal_directions_have_the_rank_that_holds_the_share(rank):
    directions = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64))[0][:rank]
    values = moments_of(directions * 3).singular_values("without_mask")
    for tau in [0.1, 0.5, 0.9, 1.0]:
        assert er.effective_rank(values, tau).tolist() == [int(np.ceil(rank * tau - 1e-9))]


def test_the_share_is_of_squares():
    values = torch.tensor([3.0, 1.0, 0.0])  # 9 of 10
    assert [int(er.effective_rank(values, tau)) for tau in [0.89, 0.9, 0.91, 1]] == [1, 1, 2, 2]
    assert int(er.effective_rank(torch.zeros(5))) == 0


@pytest.mark.parametrize("shared", [0, 2])
def test_dimensions_that_only_masks_have(shared):
    axes = torch.eye(10, dtype=torch.float64)
    moments = moments_of(axes[:4], "real_tokens")
    moments.add("mask_tokens", [axes[None, 4 - shared : 7 - shared]], torch.ones(1, 3, dtype=torch.bool))
    assert moments.mask_dimensions(1.0).tolist() == pytest.approx([3 - shared])
    assert moments.count("with_mask") == 7


def test_a_direction_at_an_angle_counts_with_the_square_of_its_sine():
    moments = moments_of(torch.tensor([[1.0, 0.0]], dtype=torch.float64), "real_tokens")
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


def families(blocks, hidden_of):
    """{family: (layer, tokens, C)}, from a function of tokens and masks (T,), which gives (layer, T, C)."""
    found = {family: [] for family in FAMILIES}
    for tokens, masked in blocks:
        found["without_mask"].append(hidden_of(tokens, torch.zeros_like(masked)))
        hidden = hidden_of(tokens, masked)
        found["with_mask"].append(hidden)
        found["real_tokens"].append(hidden[:, ~masked])
        found["mask_tokens"].append(hidden[:, masked])
    return {family: torch.cat(parts, 1) for family, parts in found.items()}


def naive_representations(model, blocks):
    """Computed block by block and without padding."""

    def hidden_of(tokens, masked):
        shown, hidden = torch.where(masked, model.mask, tokens), []
        model.forward_encoder(shown[None], torch.arange(len(tokens))[None], False, hidden)
        return torch.stack(hidden)[:, 0]

    return families(blocks, hidden_of)


def naive_shared_representations(model, blocks):
    """The same for shared decoder layers, by the naive implementation."""
    cfg = model.cfg
    w = {name: weight.detach() for name, weight in model.named_parameters()}
    of_model = cfg.encoder_attention_heads, cfg.relative_position_max_distance

    def hidden_of(tokens, masked):
        late, hidden = masked[None], []
        x = w["embed_tokens.weight"][torch.where(late, model.mask, tokens)]
        who, entering = naive.who_sees_whom(~late, late), naive.entering(late, cfg.decoder_layers)
        hidden.append(naive.transformer(w, "encoder", x, who, *of_model, entering, hidden))
        for x in hidden[: cfg.encoder_layers - cfg.decoder_layers]:
            x[late] = 0  # not there yet
        return torch.cat(hidden)

    return families(blocks, hidden_of)


def assert_singular_values(model, blocks, expected, monkeypatch):
    """Measures in batches of any size, and compares with representations {family: (layer, tokens, C)}."""
    for batch_tokens in [1, 70, 10_000]:
        monkeypatch.setattr(er, "BATCH_TOKENS", batch_tokens)
        moments = er.measure(model, blocks)
        for family in FAMILIES:
            assert moments.count(family) == expected[family].size(1)
            values = moments.singular_values(family)
            svd = torch.linalg.svdvals(expected[family])
            torch.testing.assert_close(values[:, : svd.size(1)], svd, rtol=1e-6, atol=1e-6)
            assert moments.ranks()[family].tolist() == er.effective_rank(svd).tolist()


def test_a_model_has_the_singular_values_of_its_representations(model, blocks, monkeypatch):
    with torch.no_grad():
        expected = naive_representations(model, blocks)
    model.train()  # measuring is without dropout, and leaves the model as it was
    assert_singular_values(model, blocks, expected, monkeypatch)
    assert model.training
    model.eval()


@pytest.mark.parametrize("layers, pretraining", [(1, True), (3, False)])
def test_a_model_with_shared_layers_has_masks_from_the_first_of_them(data, blocks, monkeypatch, layers, pretraining):
    model = shared_model(data, layers, pretraining)
    expected = naive_shared_representations(model, blocks)
    assert_singular_values(model, blocks, expected, monkeypatch)
    ranks = er.measure(model, blocks).ranks()
    before, after = ranks["mask_tokens"].tolist()[: 3 - layers], ranks["mask_tokens"].tolist()[3 - layers :]
    assert not any(before) and all(after)
    assert ranks["with_mask"].tolist()[: 3 - layers] == ranks["real_tokens"].tolist()[: 3 - layers]


def program(*arguments):
    command = [sys.executable, "-m", "maelm_fairseq.effective_rank", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def table(path):
    with open(path, encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_the_program_writes_tables_spectra_and_a_figure(data, trained, tmp_path):
    succeed("fairseq-train", data, *TINY, "--share-decoder-layers", "--save-dir", tmp_path)
    done = program(
        "--checkpoint", trained, tmp_path / "checkpoint_last.pt", "--names", "MAE-LM", "shared", "--data", data,
        "--dest", tmp_path / "out", "--tokens", 300, "--tau", 0.9, 0.5,
    )  # fmt: skip
    assert "MAE-LM: effective rank at tau = 0.9" in done.stdout and done.stderr == ""
    rows = table(tmp_path / "out" / "ranks.csv")
    assert len(rows) == 2 * 2 * 3 * 4  # checkpoints, taus, layers, families
    count = {row["family"]: int(row["tokens"]) for row in rows}
    assert count["without_mask"] == count["with_mask"] == count["real_tokens"] + count["mask_tokens"] >= 300
    assert 0.1 < count["mask_tokens"] / count["with_mask"] < 0.2
    without = {(row["checkpoint"], row["layer"], row["family"]) for row in rows if row["rank"] == "0"}
    assert without == {("shared", "0", "mask_tokens")}
    spectra = np.load(tmp_path / "out" / "spectra.npz")
    for row in rows:
        values = spectra[f"{row['checkpoint']}/{row['family']}"]
        rank = er.effective_rank(torch.from_numpy(values[int(row["layer"])]), float(row["tau"]))
        assert int(rank) == int(row["rank"]) <= 32
    assert len(table(tmp_path / "out" / "mask_dimensions.csv")) == 2 * 2 * 3
    assert (tmp_path / "out" / "ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "options, message",
    [
        (["--tokens-per-sample", 64], "has 32 positions"),
        (["--names", "a", "b"], "--names a b: expected 1"),
        (["--checkpoint", "nothing.pt"], "nothing.pt: not found"),
    ],
)
def test_wrong_options_are_refused(data, trained, tmp_path, options, message):
    done = program("--checkpoint", trained, "--data", data, "--dest", tmp_path / "out", *options)
    (error,) = done.stderr.strip().splitlines()
    assert done.returncode == 1 and error.startswith("error: ") and message in error
    assert not (tmp_path / "out").exists()
