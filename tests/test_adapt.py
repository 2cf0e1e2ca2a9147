"""recipes/adapt.sh from end to end: a RoBERTa with a vocabulary of bytes, continued, measured and exported."""

import os
import shutil

import pytest

import adapt
from conftest import documents, error_of, refused, script, text_of
from huggingface_cases import byte_level_roberta
from maelm_fairseq import hub
from test_evaluate import rows_of
from test_huggingface_tokenizer import text
from training import updates


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
        "--model", theirs, "--train", folder / "train.txt", "--valid", folder / "valid.txt", "--dest", folder / "out",
        "--gpus", 0, "--max-update", 9, "--add-tokens", folder / "words.txt", "--pairs", folder / "pairs.tsv",
        "--extend-positions", 200, "--tokens-per-sample", 32, "--lr", 1e-2,
    ]  # fmt: skip
    whole = (folder / "train.txt").read_bytes()
    (folder / "train.txt").write_bytes(whole + b"\xff\n")
    assert script("recipes/adapt.sh", *arguments, status=1).stderr.splitlines()[-1].startswith("error: /")
    (folder / "train.txt").write_bytes(whole)  # the corrected command resumes
    failed = script("recipes/adapt.sh", *arguments, "--batch-size", 5, status=1)
    assert "must divide the effective batch of 32 sequences" in failed.stderr
    assert "before.json" in os.listdir(folder / "out.work") and not (folder / "out").exists()
    return folder, arguments, script("recipes/adapt.sh", *arguments).stdout


def test_the_table(adapted):
    folder, _, output = adapted
    table = rows_of("## t\n" + output[output.index("|  | before") :], "t")
    _, _, bits, halves, pairs = table.values()
    assert float(bits[1]) < float(bits[0]) - 0.1 and 0 <= float(halves[1]) <= 100 and float(pairs[1]) in (25, 75)
    assert (folder / "out.work" / "adaptation.md").read_text() in output
    model = hub.from_pretrained(folder / "out.work" / "checkpoints", folder / "out.work" / "data")
    assert model.model.max_positions() == 200
    lines = [line for line in (folder / "valid.txt").read_text().splitlines() if line]
    total, tokens = map(sum, zip(*model.score(lines)))
    assert bits[1] == f"{total / tokens:.2f}" and f"({tokens:,} of" in list(table)[2]
    longer = [line.split() for line in lines if len(line.split()) >= 8]
    first = model.embed([" ".join(words[: len(words) // 2]) for words in longer], normalize=True)
    second = model.embed([" ".join(words[len(words) // 2 :]) for words in longer], normalize=True)
    found = [int((vector @ second.T).argmax()) == i for i, vector in enumerate(first)]
    assert halves[1] == f"{100 * sum(found) / len(found):.2f}" and f"{len(longer)} lines" in list(table)[3]


def test_the_same_command_has_nothing_left_to_do(adapted):
    folder, arguments, output = adapted
    before = {path: path.stat().st_mtime_ns for path in [*folder.glob("out/*"), *folder.glob("out.work/*.json")]}
    again = script("recipes/adapt.sh", *arguments).stdout
    assert again[again.index("|  | before") :] == output[output.index("|  | before") :]
    assert before == {path: path.stat().st_mtime_ns for path in before}
    other = [*arguments, "--extend-positions", 300]
    message = "out.work: made from different inputs or with different options: --extend-positions was 200 and is 300"
    assert message in refused("recipes/adapt.sh", *other)


def test_it_goes_on_to_more_updates(adapted, tmp_path):
    folder, arguments, _ = adapted
    for name in ["out", "out.work"]:
        shutil.copytree(folder / name, tmp_path / name)
    more = [*arguments, "--dest", tmp_path / "out", "--max-update", 12]
    assert f"to {tmp_path}/out.earlier\n" in script("recipes/adapt.sh", *more).stdout
    weights = [tmp_path / name / "model.safetensors" for name in ["out.earlier", "out"]]
    assert weights[0].read_bytes() == (folder / "out" / "model.safetensors").read_bytes() != weights[1].read_bytes()
    assert updates(tmp_path / "out.work" / "checkpoints") == 12
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").mkdir()  # somebody's
    assert f"to {tmp_path}/out.earlier2\n" in script("recipes/adapt.sh", *more).stdout
    assert weights[1].exists()
    assert "- Updates: 12, after those of `imported.pt`\n" in (tmp_path / "out" / "README.md").read_text()


def test_what_is_refused(adapted, tmp_path):
    _, arguments, _ = adapted
    (tmp_path / "there").mkdir()
    (tmp_path / "x.tsv").write_text("good\n")
    for changed, message in [
        (["--dest", tmp_path / "there"], "there: exists already; remove it or choose another"),
        (["--max-updates", 3], "unrecognized arguments: --max-updates 3"),
        (["--extend-positions", 9], "--extend-positions 9: the model has 160, expected as many or more"),
        (
            ["--tokens-per-sample", 256],
            "--tokens-per-sample 256, but the model has 200 positions: lower it, or add --ext",
        ),
        (["--save-dir", "elsewhere"], "--save-dir: the recipe sets it"),
        (["--max-update", 0], "--max-update: expected a whole number from 1"),
        (["--pairs", tmp_path / "x.tsv"], "expected good and bad"),
        (["--model", tmp_path / "there"], "there: no vocabulary, expected"),
    ]:
        assert message in error_of(adapt.main, *arguments, "--dest", tmp_path / "new", *changed)
        assert not (tmp_path / "new.work").exists() and not (tmp_path / "there.work").exists()
    missing = ["--dest", tmp_path / "new", "--valid", tmp_path / "none.txt"]
    assert "none.txt" in script("recipes/adapt.sh", *arguments, *missing, status=1).stderr
