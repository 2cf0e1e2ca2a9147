"""Fine-tuning with the recipes: from official files and a checkpoint to scores, a table of results and a submission."""

import argparse
import csv
import json
import re
import shutil
import signal
import sys

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from scipy import stats

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, documents, refused, script
from maelm_fairseq.base.errors import UsageError
from test_preemption import start, trap
from test_squad import key_paragraphs, squad_json

sys.path.insert(0, str(ROOT / "recipes"))
import finetune  # noqa: E402
from finetune_glue import GlueTask  # noqa: E402
from finetune_results import add_rows  # noqa: E402
from finetune_settings import combinations, search_space  # noqa: E402
from trained_model import updates_of  # noqa: E402

SETTINGS = ["--batch-size", 16, "--lr", 1e-3, "--warmup-ratio", 0.1, "--epochs", 2]
RECIPE = "recipes/finetune_glue.sh"


def rows_of(count, seed, label):
    """Pairs of sentences, with a label computed from them."""
    sentences = [document[0] for document in documents(2 * count, seed, lines=1)]
    pairs = zip(sentences[::2], sentences[1::2])
    return [(str(i), a, b, label(a, b)) for i, (a, b) in enumerate(pairs)]


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, pretrained):
    """Prepared data of MNLI (pairs, two dev sets), STS-B (regression) and a custom task (single sentences)."""
    raw, dest = tmp_path_factory.mktemp("glue"), tmp_path_factory.mktemp("prepared")

    header = ["index", "sentence1", "sentence2", "score"]
    for split, count in [("train", 60), ("dev", 20)]:
        rows = rows_of(count, split, lambda a, b: f"{len(a) % 51 / 10}")
        write(raw / "STS-B" / f"{split}.tsv", header, rows)
    write(raw / "STS-B" / "test.tsv", header[:-1], [row[:-1] for row in rows])
    header = ["index", "sentence1", "sentence2", "gold_label"]
    for split in ["train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"]:
        rows = rows_of(40, split, lambda a, b: ["entailment", "neutral", "contradiction"][(len(a) + len(b)) % 3])
        columns = 3 if "test" in split else 4
        write(raw / "MNLI" / f"{split}.tsv", header[:columns], [row[:columns] for row in rows])
    for split, count in [("train", 80), ("dev", 20)]:
        rows = rows_of(count, split, lambda a, b: "up" if a < "m" else "down")
        write(raw / "own" / f"{split}.tsv", ["sentence", "label"], [(a, label) for _, a, _, label in rows])
    script(
        "data-prep/glue.sh", "--input", raw, "--task", "STS-B", "MNLI", "own", "--vocabulary",
        pretrained[0], "--dest", dest, "--max-tokens", 32, "--checkpoint", pretrained[1],
    )  # fmt: skip
    return dest


@pytest.fixture
def arguments(pretrained, tasks, tmp_path):
    return ["--checkpoint", pretrained[1], "--data", tasks, "--save-dir", tmp_path / "save", *SETTINGS]


def table(folder):
    with open(folder / "results.tsv", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


@pytest.fixture(scope="module")
def mnli(pretrained, tasks, tmp_path_factory):
    """Two seeds of MNLI: the recipe's arguments, its folder, the folders of the runs, and its output."""
    save = tmp_path_factory.mktemp("mnli") / "save"
    arguments = ["--task", "MNLI", "--checkpoint", pretrained[1], "--data", tasks, "--save-dir", save, *SETTINGS]
    printed = script(RECIPE, *arguments, "--seeds", 2).stdout
    return arguments, save, sorted((save / "MNLI" / "pretrained").glob("*/seed*")), printed


def submitted(save, name):
    header, *lines = (save / "submission" / f"{name}.tsv").read_text().splitlines()
    assert header == "index\tprediction"
    return [line.split("\t") for line in lines]


def test_scores_results_and_submission(mnli, tasks):
    _, save, runs, printed = mnli
    assert [run.name for run in runs] == ["seed1", "seed2"]
    metrics = [json.loads((run / "metrics.json").read_text()) for run in runs]
    for row, name in zip(table(save), ["accuracy", "accuracy_mismatched"]):
        scores = [each[name] for each in metrics]
        assert (row["task"], row["metric"], row["seeds"]) == ("MNLI", name, "2")
        assert float(row["median"]) == pytest.approx(np.median(scores), abs=0.01)
        assert float(row["deviation"]) == pytest.approx(np.std(scores, ddof=1), abs=0.01)
        assert f"MNLI {name}: {np.median(scores):.2f}, median of 2 seeds" in printed
    # The scores are those of the model on the dev sets, whose size is not a multiple of the batch size.
    task = GlueTask(str(tasks / "MNLI"), "MNLI")
    model = task.load(str(runs[0] / "model.pt"))
    for split, name in [("valid", "accuracy"), ("valid1", "accuracy_mismatched")]:
        predictions, targets = task.predict(model, split), task.targets(split)
        assert len(predictions) == len(targets) == 40
        assert 100 * np.mean(predictions == targets) == pytest.approx(metrics[0][name])
    # The server expects the official index and label of every line.
    best = task.load(str(runs[int(np.argmax([each["accuracy"] for each in metrics]))] / "model.pt"))
    for split, name in [("test", "MNLI-m"), ("test1", "MNLI-mm")]:
        answers = [task.labels[i] for i in task.predict(best, split)]
        assert submitted(save, name) == [[str(i), answer] for i, answer in enumerate(answers)] and len(answers) == 40


def test_a_regression(arguments, tasks, tmp_path):
    script(RECIPE, "--task", "STS-B", *arguments, "--seeds", 1)
    save, task = tmp_path / "save", GlueTask(str(tasks / "STS-B"), "STS-B")
    (run,) = (save / "STS-B" / "pretrained").glob("*/seed1")
    model = task.load(str(run / "model.pt"))
    values = np.clip(task.predict(model, "test"), 0, 5)
    assert submitted(save, "STS-B") == [[str(k), f"{value:.3f}"] for k, value in enumerate(values)]
    predictions, targets = task.predict(model, "valid"), task.targets("valid")
    expected = [100 * correlation(predictions, targets)[0] for correlation in (stats.pearsonr, stats.spearmanr)]
    assert [row["metric"] for row in table(save)] == ["pearson", "spearman"]
    assert [float(row["median"]) for row in table(save)] == pytest.approx(expected, abs=0.01)


def test_fairseq_gives_the_model_the_same_examples(mnli, tasks):
    """The scores are computed from the same tokens that fairseq's task trains on, with the same result."""
    import maelm_fairseq  # noqa: F401

    model_file = str(mnli[2][0] / "model.pt")
    models, _, fairseq_task = checkpoint_utils.load_model_ensemble_and_task([model_file], {"data": str(tasks / "MNLI")})
    fairseq_task.load_dataset("valid")
    dataset = fairseq_task.datasets["valid"]
    batch = dataset.collater([dataset[i] for i in range(len(dataset))])
    models[0].eval()
    with torch.no_grad():
        head = fairseq_task.cfg.classification_head_name
        logits, _ = models[0](**batch["net_input"], features_only=True, classification_head_name=head)
    task, order = GlueTask(str(tasks / "MNLI"), "MNLI"), batch["id"].argsort()
    ours = task.load(model_file).head_logits(task.tokens("valid"))
    torch.testing.assert_close(ours, logits[order], rtol=1e-4, atol=1e-5)
    assert task.targets("valid").tolist() == batch["target"].view(-1)[order].tolist()


def test_a_repeated_command_does_only_what_is_left(mnli):
    arguments, save, runs, _ = mnli
    before = {run: (run / "model.pt").stat().st_mtime_ns for run in runs}
    script(RECIPE, *arguments, "--seeds", 2)
    assert [row["seeds"] for row in table(save)] == ["2"] * 2  # no row is repeated
    script(RECIPE, *arguments, "--seeds", 3)
    assert before == {run: (run / "model.pt").stat().st_mtime_ns for run in runs}
    assert [row["seeds"] for row in table(save)] == ["2", "2", "3", "3"]
    error = refused(RECIPE, *arguments, "--seeds", 2, "--clip-norm", 1)
    assert "with different options: --clip-norm differs" in error and "choose another --save-dir" in error


def test_runs_start_from_the_pretrained_encoder_or_from_scratch(arguments, pretrained, tmp_path):
    """With a learning rate of almost zero, a run ends where it began."""
    still = [*arguments[:6], "--lr", 1e-12, "--batch-size", 16, "--warmup-ratio", 0, "--epochs", 1, "--seeds", 1]
    script(RECIPE, "--task", "own", *still)
    script(RECIPE, "--task", "own", *still, "--from-scratch")
    before = torch.load(pretrained[1], weights_only=True)["model"]
    for kind, same in [("pretrained", True), ("scratch", False)]:
        (run,) = (tmp_path / "save" / "own" / kind).glob("*/seed1")
        after = torch.load(run / "model.pt", weights_only=True)["model"]
        for name in ["embed_tokens.weight", "encoder.layers.1.ffn.0.weight", "encoder.relative_bias.table.weight"]:
            assert torch.allclose(before[name], after[name], atol=1e-6) == same
    assert [row["start"] for row in table(tmp_path / "save")] == [str(pretrained[1]), "scratch"]


def test_a_search_and_then_a_job_for_each_seed(arguments, tmp_path):
    save = tmp_path / "save"
    options = ["--task", "own", *arguments, "--search", "--lr", 1e-3, 1e-6, "--epochs", 1]
    assert "the search is not finished" in refused(RECIPE, *options, "--only-seed", 1)
    printed = script(RECIPE, *options, "--seeds", 1, "--jobs", 2).stdout
    finished = save.glob("own/*/*/*/metrics.json")
    found = {path.parts[-3:-1]: json.loads(path.read_text())["accuracy"] for path in finished}
    searched = {settings: accuracy for (settings, seed), accuracy in found.items() if seed == "seed0"}
    (best,) = [settings for settings, seed in found if seed == "seed1"]
    assert len(searched) == 2 and searched[best] == max(searched.values()) and f"best of 2: {best}" in printed
    script(RECIPE, *options, "--seeds", 2, "--only-seed", 2)
    assert [row["seeds"] for row in table(save)] == ["1"]
    trained = {path: path.stat().st_mtime_ns for path in save.glob("own/*/*/*/model.pt")}
    assert {path.parent.name for path in trained} == {"seed1", "seed2"}
    script(RECIPE, *options, "--seeds", 2)  # collects the results
    assert trained == {path: path.stat().st_mtime_ns for path in trained}
    assert [row["seeds"] for row in table(save)] == ["1", "2"]


def test_the_space_of_a_search_is_the_papers():
    """Batch {16, 32}, lr {1, 2, 3, 4}e-5, warm-up {1/16, 1/10}, and the epochs of the task."""
    args = argparse.Namespace(search=True, batch_size=None, lr=None, warmup_ratio=None, epochs=None)
    found = combinations(args, "RTE", search_space(768, [2, 3]))
    assert len(found) == len(set(found)) == 2 * 4 * 2 * 2
    assert {s.lr for s in found} == {1e-5, 2e-5, 3e-5, 4e-5} and {s.batch_size for s in found} == {16, 32}
    assert {s.warmup_ratio for s in found} == {1 / 16, 1 / 10} and {s.epochs for s in found} == {2, 3}
    assert {s.lr for s in combinations(args, "RTE", search_space(1024, [2]))} == {5e-6, 7e-6, 1e-5, 2e-5}


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(lr=[1e-3, 2e-3]), "--lr 0.001 0.002: give one value"),
        (dict(task="own"), "--batch-size: no default for task own"),
        (dict(batch_size=[0]), "--batch-size 0 must be from 1 to inf"),
        (dict(lr=[float("nan")]), "--lr nan must be from 0"),
        (dict(warmup_ratio=[7.0]), "--warmup-ratio 7.0 must be from 0 to 1"),
    ],
)
def test_wrong_settings(given, message):
    args = {**dict(search=False, batch_size=None, lr=None, warmup_ratio=None, epochs=None, task="RTE"), **given}
    with pytest.raises(UsageError, match=message):
        combinations(argparse.Namespace(**args), args["task"], search_space(768, [2]))


def test_a_killed_run_resumes(arguments, tmp_path):
    """After a kill during training, the same command ends with the weights of a run that was not killed."""
    sent = trap(tmp_path, "Saved checkpoint", signal.SIGKILL, group=True)  # the recipe and fairseq-train
    command = ["--task", "own", *arguments, "--seeds", 1, *sent]
    process = start([ROOT / RECIPE, *command], PATH=REAL_SCRIPTS_ENVIRONMENT["PATH"])
    process.stdout.read()
    assert process.wait() == -signal.SIGKILL
    (run,) = tmp_path.glob("save/own/pretrained/*/seed1")
    # One epoch of two: 80 examples in batches of 16.
    assert updates_of(str(run / "checkpoint_last.pt")) == 5
    assert not (run / "model.pt").exists() and not (run / "metrics.json").exists()
    (sent[1] / "__init__.py").write_text("import maelm_fairseq\n")
    assert "Loaded checkpoint" in script(RECIPE, *command).stdout
    script(RECIPE, *command, "--save-dir", tmp_path / "whole")
    resumed, whole = (
        torch.load(path, weights_only=True)["model"]
        for path in [run / "model.pt", *tmp_path.glob("whole/own/pretrained/*/seed1/model.pt")]
    )
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=1e-4, atol=1e-5)
    # Killed between training and evaluation: only the evaluation is repeated.
    metrics, before = (run / "metrics.json").read_text(), (run / "model.pt").stat().st_mtime_ns
    (run / "metrics.json").unlink()
    script(RECIPE, *command)
    assert (run / "metrics.json").read_text() == metrics and (run / "model.pt").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "file, change, message",
    [
        ("task.json", dict(splits={"train": {"examples": 40}}), "splits: found no valid"),
        ("test.index", "0\n1\n", "test.index: found 2 examples, expected 40; prepare the data again"),
        ("input1/test.bin", "0", "input1/test.bin has 1 bytes, but .idx implies"),
        ("label/valid1.idx", "0", "valid1.idx"),
    ],
)
def test_damaged_data(tasks, mnli, tmp_path, file, change, message):
    folder = shutil.copytree(tasks / "MNLI", tmp_path / "MNLI")
    if isinstance(change, dict):
        change = json.dumps({**json.loads((folder / file).read_text()), **change})
    (folder / file).write_text(change)
    with pytest.raises(UsageError, match=re.escape(message)):
        task, model_file = GlueTask(str(folder), "MNLI"), str(mnli[2][0] / "model.pt")
        task.evaluate(model_file)
        task.write_submission(model_file, tmp_path)


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("run.json", {"checkpoint": None, "data": "x", "options": [1]}, "options: item 1: found 1, expected a text"),
        ("metrics.json", {"accuracy": "99"}, "metrics.json: accuracy: found '99', expected a number"),
        ("metrics.json", {}, "its runs have different metrics; remove each metrics.json"),
    ],
)
def test_damaged_records_of_runs(mnli, tmp_path, file, content, message):
    arguments, save, _, _ = mnli
    shutil.copytree(save, tmp_path / "save")
    (run,) = tmp_path.glob("save/MNLI/pretrained/*/seed1")
    (run / file).write_text(json.dumps(content))
    assert message in refused(RECIPE, *arguments, "--save-dir", tmp_path / "save", "--seeds", 2)


def test_the_table_of_results_keeps_what_is_there(tmp_path):
    path, row = tmp_path / "results.tsv", [f"{i}" for i in range(10)]
    path.touch()
    add_rows(path, [[*row, "a\tb\n\udcff"]])
    path.write_text(path.read_text() + "a line without its end")
    add_rows(path, [["tomorrow", *row[1:], "a\tb\n\udcff"], [*row, "other"]])
    rows = ["\t".join([*row, settings]) for settings in ["a\\tb\\n\\udcff", "other"]]
    assert path.read_text().splitlines()[1:] == [rows[0], "a line without its end", rows[1]]
    assert table(tmp_path)[2]["settings"] == "other"


def test_wrong_input(arguments, tasks, tmp_path):
    """Later options override earlier ones."""
    checkpoint = refused(RECIPE, "--task", "MNLI", *arguments, "--checkpoint", tmp_path / "nosuch.pt")
    assert "nosuch.pt: not found" in checkpoint
    assert "--seeds 0 must be over 0" in refused(RECIPE, "--task", "MNLI", *arguments, "--seeds", 0)
    assert "--task WNLI: not in" in refused(RECIPE, "--task", "WNLI", *arguments)
    other = shutil.copytree(tasks, tmp_path / "other")
    words = (other / "MNLI" / "dict.txt").read_text().splitlines()
    for path in [other / "MNLI" / "dict.txt", other / "MNLI" / "input0" / "dict.txt"]:
        path.write_text("\n".join(words[::-1]) + "\n")
    assert "another dict.txt" in refused(RECIPE, "--task", "MNLI", *arguments, "--data", other)
    record = json.loads((tasks / "STS-B" / "task.json").read_text())
    (other / "STS-B" / "task.json").write_text(json.dumps(dict(record, max_tokens=64)))
    assert "--max-tokens 64, but" in refused(RECIPE, "--task", "STS-B", *arguments, "--data", other)
    assert not (tmp_path / "save").exists()  # nothing was trained


def test_squad(pretrained, tmp_path):
    """The same for questions: scores by kind of question, and the answers in the official format."""
    train, dev = (squad_json(tmp_path / f"{i}.json", key_paragraphs(i, count)) for i, count in [(1, 40), (2, 21)])
    (vocabulary, checkpoint), data, save = pretrained, tmp_path / "data", tmp_path / "save"
    prepare = ["--train", train, "--dev", dev, "--vocabulary", vocabulary, "--checkpoint", checkpoint, "--dest", data]
    prepare += ["--stride", 8, "--max-question", 8]
    assert "has 32 positions: give --max-tokens 32" in refused("data-prep/squad.sh", *prepare)
    script("data-prep/squad.sh", *prepare, "--max-tokens", 32)
    arguments = ["--checkpoint", checkpoint, "--data", data, "--save-dir", save, *SETTINGS, "--lr", 1e-9]
    printed = script("recipes/finetune_squad.sh", *arguments, "--epochs", 1, "--bf16-autocast", "--seeds", 1).stdout
    rows = {row["metric"]: float(row["median"]) for row in table(save)}
    assert {row["task"] for row in table(save)} == {"squad_2.0"}
    assert list(rows)[:2] == ["f1", "exact"] and f"squad_2.0 f1: {rows['f1']:.2f}" in printed
    assert rows["f1"] == pytest.approx((14 * rows["HasAns_f1"] + 7 * rows["NoAns_f1"]) / 21, abs=0.02)
    assert rows["f1_at_best_threshold"] >= rows["f1"]
    answers = json.loads((save / "submission" / "squad_2.0.json").read_text())
    assert answers.keys() == set(re.findall(r'"id": "(.*?)"', dev.read_text())) and len(answers) == 21
    # With a learning rate of almost zero, a run ends where it began: at the pretrained encoder.
    (model,) = save.glob("squad_2.0/pretrained/*/seed1/model.pt")
    before, after = (torch.load(path, weights_only=True)["model"] for path in [checkpoint, model])
    assert after["classification_heads.squad.weight"].shape == (2, 32)
    for key in after:
        if not key.startswith("classification_heads"):
            torch.testing.assert_close(after[key], before[key], rtol=0, atol=1e-6)


def test_precision_on_gpus(monkeypatch):
    assert finetune.device_options([]) == ["--cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert finetune.device_options(["--update-freq", "2"]) == ["--fp16"]
    assert finetune.device_options(["--bf16-autocast"]) == []
