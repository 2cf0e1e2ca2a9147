"""recipes/adapt.sh from end to end.

A RoBERTa with a vocabulary of bytes is continued, measured and exported.
"""

import os
import shutil

import pytest

import adapt
from conftest import documents, error_of, error_of_script, script, text_of
from huggingface_cases import byte_level_roberta
from maelm_fairseq import hub
from tables import rows_of
from training import updates
from vocabularies import text


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """The folder of a run that was stopped once, and its arguments."""
    folder = tmp_path_factory.mktemp("adapt")
    theirs, _, _ = byte_level_roberta(folder / "source", text(1))
    for name, count, seed in [("train", 60, 3), ("valid", 20, 4)]:
        (folder / f"{name}.txt").write_text(text_of(documents(count, seed)))
    (folder / "words.txt").write_text("kanlo\nkash\n")
    (folder / "pairs.tsv").write_text("good\tbad\nkan lo\tlo kan\nmish\tmish\n")
    arguments = [
        "--model", theirs, "--train", folder / "train.txt", "--valid", folder / "valid.txt",
        "--add-tokens", folder / "words.txt", "--pairs", folder / "pairs.tsv",
        "--dest", folder / "out", "--gpus", 0, "--updates", 9,
        "--extend-positions", 200, "--tokens-per-sample", 32, "--lr", 1e-2,
    ]  # fmt: skip
    text_before = (folder / "train.txt").read_bytes()
    (folder / "train.txt").write_bytes(text_before + b"\xff\n")
    failed = script("recipes/adapt.sh", *arguments, status=1)
    assert failed.stderr.splitlines()[-1].startswith("error: /")
    (folder / "train.txt").write_bytes(text_before)  # The corrected command resumes.
    failed = script("recipes/adapt.sh", *arguments, "--batch-size", 5, status=1)
    assert "must divide the effective batch of 32 sequences" in failed.stderr
    assert "before.json" in os.listdir(folder / "out.work")
    assert not (folder / "out").exists()
    return folder, arguments, script("recipes/adapt.sh", *arguments).stdout


def table_in(output):
    """The table of results, which is the end of what is printed."""
    return output[output.index("|  | before") :]


def test_the_table(adapted):
    folder, _, output = adapted
    table = rows_of("## t\n" + table_in(output), "t")
    _, _, bits_label, halves_label, _ = table
    _, _, bits, halves, pairs = table.values()
    assert float(bits[1]) < float(bits[0]) - 0.1
    assert 0 <= float(halves[1]) <= 100
    assert float(pairs[1]) in (25, 75)
    assert (folder / "out.work" / "adaptation.md").read_text() in output

    model = hub.from_pretrained(folder / "out.work" / "checkpoints", folder / "out.work" / "data")
    assert model.model.max_positions() == 200
    lines = [line for line in (folder / "valid.txt").read_text().splitlines() if line]
    total, tokens = map(sum, zip(*model.score(lines)))
    assert bits[1] == f"{total / tokens:.2f}"
    assert f"({tokens:,} of" in bits_label

    longer = [line.split() for line in lines if len(line.split()) >= 8]
    first_halves = [" ".join(words[: len(words) // 2]) for words in longer]
    second_halves = [" ".join(words[len(words) // 2 :]) for words in longer]
    first = model.embed(first_halves, normalize=True)
    second = model.embed(second_halves, normalize=True)
    correct = [int((vector @ second.T).argmax()) == i for i, vector in enumerate(first)]
    assert halves[1] == f"{100 * sum(correct) / len(correct):.2f}"
    assert f"{len(longer)} lines" in halves_label


def test_the_same_command_has_nothing_left_to_do(adapted):
    folder, arguments, output = adapted
    paths = [*folder.glob("out/*"), *folder.glob("out.work/*.json")]
    times = {path: path.stat().st_mtime_ns for path in paths}
    again = script("recipes/adapt.sh", *arguments).stdout
    assert table_in(again) == table_in(output)
    assert times == {path: path.stat().st_mtime_ns for path in paths}
    message = (
        "out.work: made from different inputs or with different options: "
        "--extend-positions was 200 and is 300"
    )
    assert message in error_of_script("recipes/adapt.sh", *arguments, "--extend-positions", 300)


def test_it_goes_on_to_more_updates(adapted, tmp_path):
    folder, arguments, _ = adapted
    for name in ["out", "out.work"]:
        shutil.copytree(folder / name, tmp_path / name)
    longer_run = [*arguments, "--dest", tmp_path / "out", "--updates", 12]
    assert f"to {tmp_path}/out.earlier\n" in script("recipes/adapt.sh", *longer_run).stdout
    weights_before = (folder / "out" / "model.safetensors").read_bytes()
    kept_weights = tmp_path / "out.earlier" / "model.safetensors"
    new_weights = tmp_path / "out" / "model.safetensors"
    assert kept_weights.read_bytes() == weights_before
    assert new_weights.read_bytes() != weights_before
    assert updates(tmp_path / "out.work" / "checkpoints") == 12

    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()  # This might be the folder of another user.
    assert f"to {tmp_path}/out.earlier2\n" in script("recipes/adapt.sh", *longer_run).stdout
    assert new_weights.exists()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- Pretraining: 12 updates, starting from `out.work/imported.pt`\n" in card


def test_what_is_refused(adapted, tmp_path):
    _, arguments, _ = adapted
    existing, table = tmp_path / "there", tmp_path / "x.tsv"
    existing.mkdir()
    table.write_text("good\n")
    too_few = "--extend-positions 9: the model has 160, expected as many or more"
    too_long = "--tokens-per-sample 256, but the model has 200 positions: lower it, or add --ext"
    for changed, message in [
        (["--dest", existing], "there: exists already; remove it or choose another"),
        (["--update", 3], "unrecognized arguments: --update 3"),
        (["--max-update", 3], "--max-update: the recipe sets it"),
        (["--extend-positions", 9], too_few),
        (["--tokens-per-sample", 256], too_long),
        (["--save-dir", "elsewhere"], "--save-dir: the recipe sets it"),
        (["--updates", 0], "--updates: expected an integer from 1"),
        (["--pairs", table], "expected good and bad"),
        (["--model", existing], "there: no vocabulary, expected"),
    ]:
        assert message in error_of(adapt.main, *arguments, "--dest", tmp_path / "new", *changed)
        assert not (tmp_path / "new.work").exists()
        assert not (tmp_path / "there.work").exists()
    own = tmp_path / "own.work" / "data" / "text.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine\n")
    fault = error_of(adapt.main, *arguments, "--dest", tmp_path / "own")
    assert "own.work: found a folder of other files, without adapt.log" in fault
    assert own.exists()
    missing = ["--dest", tmp_path / "new", "--valid", tmp_path / "none.txt"]
    assert "none.txt" in script("recipes/adapt.sh", *arguments, *missing, status=1).stderr
