"""Fine-tuning with the recipes: from official files and a checkpoint to scores, a table of results and a submission."""

import csv
import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from scipy import stats

from conftest import REAL_SCRIPTS_ENVIRONMENT, ROOT, SCRIPTS_ENVIRONMENT, TINY, documents, succeed
from maelm_fairseq.checkpoint import load_model
from maelm_fairseq.vocabulary import load_dictionary
from test_squad import key_paragraphs, squad_json

sys.path.insert(0, str(ROOT / "recipes"))
import finetune  # noqa: E402
import finetune_results  # noqa: E402
from finetune_glue import GlueTask  # noqa: E402
from trained_model import updates_of  # noqa: E402

SETTINGS = ["--batch-size", 16, "--lr", 1e-3, "--warmup-ratio", 0.1, "--epochs", 2]


def script(*arguments, check=True, real=False):
    """Runs a script of the repository; returns the finished process."""
    done = subprocess.run(
        list(map(str, arguments)), env=REAL_SCRIPTS_ENVIRONMENT if real else SCRIPTS_ENVIRONMENT,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True,
    )  # fmt: skip
    assert not check or done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done


def glue(*arguments, check=True):
    return script(ROOT / "recipes" / "finetune_glue.sh", *arguments, check=check)


def refused(*arguments):
    """Runs the recipe, which must fail; returns its one line of error."""
    done = glue(*arguments, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    (error,) = done.stderr.strip().splitlines()
    assert error.startswith("error: ")
    return error


def sentence(rng):
    return " ".join(documents(1, rng.random(), lines=1)[0])


def rows_of(count, seed, label):
    """Pairs of sentences, with a label computed from them."""
    rng = random.Random(seed)
    pairs = [(sentence(rng), sentence(rng)) for _ in range(count)]
    return [(str(i), a, b, label(a, b)) for i, (a, b) in enumerate(pairs)]


def write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory, pretrained):
    """Prepared data of RTE and MNLI (pairs), STS-B (regression) and a custom task (single sentences)."""
    raw, dest = tmp_path_factory.mktemp("glue"), tmp_path_factory.mktemp("prepared")

    def entailed(a, b):
        return "entailment" if a < b else "not_entailment"

    header = ["index", "sentence1", "sentence2", "label"]
    for split, count in [("train", 90), ("dev", 27)]:
        write(raw / "RTE" / f"{split}.tsv", header, rows_of(count, split, entailed))
    write(raw / "RTE" / "test.tsv", header[:3], [row[:3] for row in rows_of(21, "test", entailed)])

    def stsb(rows):
        return [[row[0], "g", "f", "y", row[0], "s", "s", *row[1:]] for row in rows]

    header = "index genre filename year old_index source1 source2 sentence1 sentence2 score".split()
    for split, count in [("train", 60), ("dev", 20)]:
        rows = rows_of(count, split, lambda a, b: f"{len(a) % 51 / 10}")
        write(raw / "STS-B" / f"{split}.tsv", header, stsb(rows))
    write(raw / "STS-B" / "test.tsv", header[:-1], [row[:-1] for row in stsb(rows)])

    def mnli(rows, labels):
        return [[row[0], row[0], row[0], "g", "p", "p", "p", "p", row[1], row[2], *labels(row[3])] for row in rows]

    def inferred(a, b):
        return ["entailment", "neutral", "contradiction"][(len(a) + len(b)) % 3]

    start = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"]
    start += ["sentence1_parse", "sentence2_parse", "sentence1", "sentence2"]
    five = [f"label{i}" for i in range(1, 6)]
    train = mnli(rows_of(40, 1, inferred), lambda label: [label, label])
    write(raw / "MNLI" / "train.tsv", [*start, "label1", "gold_label"], train)
    for name in ["matched", "mismatched"]:
        rows = rows_of(15, name, inferred)
        dev = mnli(rows, lambda label: [label] * 6)
        write(raw / "MNLI" / f"dev_{name}.tsv", [*start, *five, "gold_label"], dev)
        write(raw / "MNLI" / f"test_{name}.tsv", start, mnli(rows, lambda label: []))

    for split, count in [("train", 80), ("dev", 20)]:
        rows = [(a, "up" if a < "m" else "down") for _, a, _, _ in rows_of(count, split, entailed)]
        write(raw / "own" / f"{split}.tsv", ["sentence", "label"], rows)
    script(
        ROOT / "data-prep" / "glue.sh", "--input", raw, "--task", "RTE", "STS-B", "MNLI", "own", "--vocabulary",
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
def rte(pretrained, tasks, tmp_path_factory):
    """Two seeds of RTE: the recipe's arguments, its folder, the folders of the runs, and its output."""
    save = tmp_path_factory.mktemp("rte") / "save"
    arguments = ["--task", "RTE", "--checkpoint", pretrained[1], "--data", tasks, "--save-dir", save, *SETTINGS]
    printed = glue(*arguments, "--seeds", 2).stdout
    return arguments, save, sorted((save / "RTE" / "pretrained").glob("*/seed*")), printed


def test_scores_results_and_submission(rte, tasks):
    _, save, runs, printed = rte
    assert [run.name for run in runs] == ["seed1", "seed2"]
    scores = [json.loads((run / "metrics.json").read_text())["accuracy"] for run in runs]
    row = table(save)[0]
    assert float(row["median"]) == pytest.approx(np.median(scores), abs=0.01)
    assert (row["task"], row["metric"], row["seeds"]) == ("RTE", "accuracy", "2")
    assert float(row["deviation"]) == pytest.approx(np.std(scores, ddof=1), abs=0.01)
    assert f"RTE accuracy: {np.median(scores):.2f}, median of 2 seeds" in printed
    # The accuracy is that of the model on the dev set, whose size is not a multiple of the batch size.
    task = GlueTask(str(tasks / "RTE"), "RTE")
    model = task.load(str(runs[0] / "model.pt"))
    predictions, targets = task.predict(model, "valid"), task.targets("valid")
    assert len(predictions) == len(targets) == 27
    assert 100 * np.mean(predictions == targets) == pytest.approx(scores[0])
    # The server expects the official index and label of every line.
    lines = (save / "submission" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 1 + 21
    best = task.load(str(runs[int(np.argmax(scores))] / "model.pt"))
    answers = [task.labels[i] for i in task.predict(best, "test")]
    assert lines[1:] == [f"{i}\t{answer}" for i, answer in enumerate(answers)]


def test_fairseq_gives_the_model_the_same_examples(rte, tasks):
    """The scores are computed from the same tokens that fairseq's task trains on, with the same result."""
    import maelm_fairseq  # noqa: F401

    model_file = str(rte[2][0] / "model.pt")
    models, _, fairseq_task = checkpoint_utils.load_model_ensemble_and_task([model_file], {"data": str(tasks / "RTE")})
    fairseq_task.load_dataset("valid")
    dataset = fairseq_task.datasets["valid"]
    batch = dataset.collater([dataset[i] for i in range(len(dataset))])
    models[0].eval()
    with torch.no_grad():
        head = fairseq_task.cfg.classification_head_name
        logits, _ = models[0](**batch["net_input"], features_only=True, classification_head_name=head)
    task, order = GlueTask(str(tasks / "RTE"), "RTE"), batch["id"].argsort()
    ours = task.load(model_file).head_logits(task.tokens("valid"))
    torch.testing.assert_close(ours, logits[order], rtol=1e-4, atol=1e-5)
    assert task.targets("valid").tolist() == batch["target"].view(-1)[order].tolist()


def test_a_repeated_command_does_only_what_is_left(rte):
    arguments, save, runs, _ = rte
    before = {run: (run / "model.pt").stat().st_mtime_ns for run in runs}
    glue(*arguments, "--seeds", 2)
    assert [row["seeds"] for row in table(save)] == ["2"]  # no row is repeated
    glue(*arguments, "--seeds", 3)
    assert before == {run: (run / "model.pt").stat().st_mtime_ns for run in runs}
    assert [row["seeds"] for row in table(save)] == ["2", "3"]
    error = refused(*arguments, "--seeds", 2, "--clip-norm", 1)
    assert "contains a run with different options (run.json)" in error and "choose another --save-dir" in error


def test_runs_start_from_the_pretrained_encoder_or_from_scratch(arguments, pretrained, tasks, tmp_path):
    """With a learning rate of almost zero, a run ends where it began."""
    still = [*arguments[:6], "--lr", 1e-12, "--batch-size", 16, "--warmup-ratio", 0, "--epochs", 1, "--seeds", 1]
    glue("--task", "own", *still)
    glue("--task", "own", *still, "--from-scratch")
    before = torch.load(pretrained[1], weights_only=True)["model"]
    for start, same in [("pretrained", True), ("scratch", False)]:
        (run,) = (tmp_path / "save" / "own" / start).glob("*/seed1")
        after = torch.load(run / "model.pt", weights_only=True)["model"]
        for name in ["embed_tokens.weight", "encoder.layers.1.ffn.0.weight", "encoder.relative_bias.table.weight"]:
            assert torch.allclose(before[name], after[name], atol=1e-6) == same
    starts = [row["start"] for row in table(tmp_path / "save")]
    assert starts == [str(pretrained[1]), "scratch"]


def test_shared_decoder_layers_stay_in_the_configuration(arguments, pretrained, tmp_path):
    """The effective ranks of a fine-tuned model are measured as those of the pretrained one."""
    succeed("fairseq-train", pretrained[0], *TINY, "--share-decoder-layers", "--save-dir", tmp_path / "shared")
    checkpoint = ["--checkpoint", tmp_path / "shared" / "checkpoint_last.pt"]
    glue("--task", "own", *arguments, *checkpoint, "--seeds", 1, "--epochs", 1)
    (model,) = (tmp_path / "save").glob("*/*/*/seed1/model.pt")
    model = load_model(model, load_dictionary(pretrained[0]))
    assert model.lm_head is None and (model.cfg.share_decoder_layers, model.cfg.decoder_layers) == (True, 1)


def test_two_dev_sets_and_a_regression(arguments, tasks, tmp_path):
    glue("--task", "MNLI", *arguments, "--seeds", 1)
    glue("--task", "STS-B", *arguments, "--seeds", 1)
    save = tmp_path / "save"
    metrics = [(row["task"], row["metric"]) for row in table(save)]
    assert metrics == [
        ("MNLI", "accuracy"), ("MNLI", "accuracy_mismatched"), ("STS-B", "pearson"), ("STS-B", "spearman"),
    ]  # fmt: skip
    medians = [float(row["median"]) for row in table(save)]

    def load(name):
        task, (run,) = GlueTask(str(tasks / name), name), (save / name / "pretrained").glob("*/seed1")
        return task, task.load(str(run / "model.pt"))

    def submitted(name):
        lines = (save / "submission" / f"{name}.tsv").read_text().splitlines()
        assert lines[0] == "index\tprediction"
        return [line.split("\t") for line in lines[1:]]

    task, model = load("MNLI")
    for i, (number, name) in enumerate([("", "MNLI-m"), ("1", "MNLI-mm")]):
        correct = sum(task.predict(model, "valid" + number) == task.targets("valid" + number))
        assert len(task.targets("valid" + number)) == 15 and medians[i] == pytest.approx(100 * correct / 15, abs=0.01)
        names = [task.labels[k] for k in task.predict(model, "test" + number)]
        assert submitted(name) == [[str(k), name] for k, name in enumerate(names)] and len(names) == 15
    assert sorted(task.labels) == ["contradiction", "entailment", "neutral"]

    task, model = load("STS-B")
    values = np.clip(task.predict(model, "test"), 0, 5)
    assert submitted("STS-B") == [[str(k), f"{value:.3f}"] for k, value in enumerate(values)] and len(values) == 20
    predictions, targets = task.predict(model, "valid"), task.targets("valid")
    assert medians[2] == pytest.approx(100 * stats.pearsonr(predictions, targets)[0], abs=0.01)
    assert medians[3] == pytest.approx(100 * stats.spearmanr(predictions, targets)[0], abs=0.01)


def test_a_search_tries_all_and_reports_other_seeds(arguments, tmp_path):
    search = [*arguments, "--search", "--seeds", 1, "--lr", 1e-3, 1e-6, "--epochs", 1]
    plan = glue("--task", "own", *search, "--dry-run").stdout.splitlines()
    assert len(plan) == 2 and all(line.startswith("to do: fairseq-train ") for line in plan)
    printed = glue("--task", "own", *search).stdout
    folders = sorted((tmp_path / "save" / "own" / "pretrained").glob("*/seed*"))
    assert [folder.name for folder in folders].count("seed0") == 2
    scores = {
        folder.parent.name: json.loads((folder / "metrics.json").read_text())["accuracy"]
        for folder in folders
        if folder.name == "seed0"
    }
    (final,) = [folder for folder in folders if folder.name == "seed1"]
    assert scores[final.parent.name] == max(scores.values())
    assert f"best of 2: {final.parent.name}" in printed
    assert [folder.name for folder in folders if (folder / "model.pt").exists()] == ["seed1"]
    assert all(line.startswith("done: ") for line in glue("--task", "own", *search, "--dry-run").stdout.splitlines())


def metrics_of(save):
    return {str(path.relative_to(save)): json.loads(path.read_text()) for path in save.glob("own/*/*/*/metrics.json")}


def test_runs_at_the_same_time_and_one_by_one_give_the_same(arguments, tmp_path):
    options = ["--task", "own", *arguments, "--search", "--lr", 1e-3, 1e-6, "--epochs", 1, "--seeds", 2]
    save = tmp_path / "save"
    refused_array = refused(*options, "--only-seed", 1)
    assert "the search is not finished" in refused_array
    printed = glue(*options, "--jobs", 2).stdout
    assert re.search(r"lr0.001-.*, seed 1: accuracy", printed)
    at_once, (row,) = metrics_of(save), table(save)
    assert len(at_once) == 4
    shutil.rmtree(save)

    glue(*options[:-1], 1)  # the search, and seed 1
    (save / "results.tsv").unlink()
    for seed, done in [(1, 3), (2, 4)]:
        glue(*options, "--only-seed", seed)
        assert len(metrics_of(save)) == done and not (save / "results.tsv").exists()
    assert metrics_of(save) == at_once
    trained = {path: path.stat().st_mtime_ns for path in save.glob("own/*/*/*/model.pt")}
    glue(*options)  # collects the results
    assert trained == {path: path.stat().st_mtime_ns for path in trained}
    (collected,) = table(save)
    assert {**collected, "date": 0} == {**row, "date": 0}


@pytest.mark.parametrize(
    "options, message",
    [(["--jobs", 0], "--jobs 0 must be over 0"), (["--only-seed", 4, "--seeds", 3], "--only-seed 4 must be from 1 to")],
)
def test_wrong_numbers_of_jobs_and_seeds_are_refused(arguments, options, message):
    assert message in refused("--task", "own", *arguments, *options)


def test_the_space_of_a_search_is_the_papers(arguments, pretrained, tasks, tmp_path):
    """Batch {16, 32}, lr {1, 2, 3, 4}e-5, warm-up {1/16, 1/10}, epochs {2, 3, 5} and for small tasks 10."""
    for task, epochs in [("RTE", [2, 3, 5, 10]), ("MNLI", [2, 3, 5])]:
        plan = glue("--task", task, *arguments[:6], "--search", "--dry-run").stdout.splitlines()
        found = set()
        for line in plan:
            words = shlex.split(line)
            value = dict(zip(words, words[1:])).get
            updates, warmup = int(value("--max-update")), int(value("--warmup-updates"))
            size, rate, passes = int(value("--batch-size")), float(value("--lr")), int(value("--max-epoch"))
            examples = {"RTE": 90, "MNLI": 40}[task]
            assert updates == -(-examples // size) * passes == int(value("--total-num-update"))
            ratio = min([1 / 16, 1 / 10], key=lambda r: abs(warmup - r * updates))
            found.add((size, rate, passes, str(value("--save-dir")), ratio))
        assert len(plan) == len(found) == 2 * 4 * 2 * len(epochs)
        assert {rate for _, rate, _, _, _ in found} == {1e-5, 2e-5, 3e-5, 4e-5}
        assert {size for size, _, _, _, _ in found} == {16, 32}
        assert {passes for _, _, passes, _, _ in found} == set(epochs)


# A --user-dir that is the plugin's, and kills the recipe and fairseq-train right after a checkpoint if TRAP exists.
TRAP = """
import os, signal
from fairseq import checkpoint_utils
import maelm_fairseq

save = checkpoint_utils.save_checkpoint

def save_and_be_killed(*args, **kwargs):
    save(*args, **kwargs)
    if os.path.exists("{trap}"):
        os.remove("{trap}")
        os.killpg(0, signal.SIGKILL)

checkpoint_utils.save_checkpoint = save_and_be_killed
"""


def test_a_killed_run_resumes(arguments, tmp_path):
    """After a kill during training, the same command ends with the weights of a run that was not killed."""
    trap = tmp_path / "trap"
    (tmp_path / "plugin_with_trap").mkdir()
    (tmp_path / "plugin_with_trap" / "__init__.py").write_text(TRAP.format(trap=trap))
    command = ["--task", "own", *arguments[:-1], 6, "--seeds", 1, "--user-dir", tmp_path / "plugin_with_trap"]
    glue(*command)
    save = tmp_path / "save"
    (run,) = (save / "own" / "pretrained").glob("*/seed1")
    whole = torch.load(run / "model.pt", weights_only=True)["model"]
    shutil.rmtree(save)
    trap.touch()
    process = subprocess.Popen(
        [str(ROOT / "recipes" / "finetune_glue.sh"), *map(str, command)],
        env=REAL_SCRIPTS_ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.wait() == -signal.SIGKILL and not trap.exists()
    # One epoch of six: 80 examples in batches of 16.
    assert updates_of(str(run / "checkpoint_last.pt")) == 5
    assert not (run / "model.pt").exists() and not (run / "metrics.json").exists()
    printed = glue(*command).stdout
    assert "Loaded checkpoint" in printed
    resumed = torch.load(run / "model.pt", weights_only=True)["model"]
    for name in whole:
        torch.testing.assert_close(resumed[name], whole[name], rtol=1e-4, atol=1e-5)
    # Killed between training and evaluation: only the evaluation is repeated.
    metrics = (run / "metrics.json").read_text()
    (run / "metrics.json").unlink()
    before = (run / "model.pt").stat().st_mtime_ns
    glue(*command)
    assert (run / "metrics.json").read_text() == metrics and (run / "model.pt").stat().st_mtime_ns == before


def test_wrong_input(arguments, pretrained, tasks, tmp_path):
    def changed(option, value):
        at = arguments.index(option)
        return [*arguments[: at + 1], value, *arguments[at + 2 :]]

    assert "nosuch.pt: not found" in refused("--task", "RTE", *changed("--checkpoint", tmp_path / "nosuch.pt"))
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"no checkpoint")
    assert "broken.pt: cannot be read as a checkpoint" in refused("--task", "RTE", *changed("--checkpoint", broken))
    assert "--task WNLI: not in" in refused("--task", "WNLI", *arguments)
    assert "--lr 0.001 0.002: give one value" in refused("--task", "RTE", *arguments, "--lr", 1e-3, 2e-3)
    assert "--epochs 0 must be over 0" in refused("--task", "RTE", *arguments, "--epochs", 0)
    for ratio in ["1.0", "nan", "inf", "-inf", "-0.1"]:
        error = refused("--task", "RTE", *arguments, "--warmup-ratio=" + ratio)
        assert f"--warmup-ratio {ratio} must be at least 0 and below 1" in error
    for lr in ["nan", "inf", "0.0", "-0.1"]:
        assert f"--lr {lr} must be over 0, and finite" in refused("--task", "RTE", *arguments, "--lr=" + lr)
    assert "--seeds 0 must be at least 1" in refused("--task", "RTE", *arguments, "--seeds", 0)
    assert "no default for task own" in refused("--task", "own", *arguments[:6])
    other = tmp_path / "other"
    shutil.copytree(tasks, other)
    words = (other / "RTE" / "dict.txt").read_text().splitlines()
    for path in [other / "RTE" / "dict.txt", other / "RTE" / "input0" / "dict.txt"]:
        path.write_text("\n".join(words[::-1]) + "\n")
    assert "another dict.txt" in refused("--task", "RTE", *changed("--data", other))
    record = json.loads((tasks / "RTE" / "task.json").read_text())
    (tmp_path / "table").write_bytes(b"\xff")
    error = refused("--task", "RTE", *arguments, "--results", tmp_path / "table")
    assert f"{tmp_path}/table: not a table of results" in error
    (other / "STS-B" / "task.json").write_text(json.dumps(dict(record, max_tokens=64)))
    assert "--max-tokens 64, but" in refused("--task", "STS-B", *changed("--data", other))
    assert not (tmp_path / "save").exists()  # nothing was trained


def test_squad(pretrained, tmp_path):
    """The same for questions: scores by kind of question, and the answers in the official format."""
    files = {
        name: squad_json(tmp_path / f"{name}.json", key_paragraphs(seed, count, impossible=True), "2.0")
        for name, seed, count in [("train", 1, 40), ("dev", 2, 21)]
    }
    script(
        ROOT / "data-prep" / "squad.sh", "--train", files["train"], "--dev", files["dev"], "--vocabulary",
        pretrained[0], "--dest", tmp_path / "data", "--max-tokens", 32, "--stride", 8, "--max-question", 8,
    )  # fmt: skip
    arguments = ["--checkpoint", pretrained[1], "--data", tmp_path / "data", "--save-dir", tmp_path / "save"]
    recipe = ROOT / "recipes" / "finetune_squad.sh"
    printed = script(recipe, *arguments, *SETTINGS, "--seeds", 1, real=True).stdout
    rows = {row["metric"]: float(row["median"]) for row in table(tmp_path / "save")}
    assert {row["task"] for row in table(tmp_path / "save")} == {"squad_2.0"}
    assert list(rows)[:2] == ["f1", "exact"] and f"squad_2.0 f1: {rows['f1']:.2f}" in printed
    assert rows["f1"] == pytest.approx((14 * rows["HasAns_f1"] + 7 * rows["NoAns_f1"]) / 21, abs=0.02)
    assert rows["f1_at_best_threshold"] >= rows["f1"]
    answers = json.loads((tmp_path / "save" / "submission" / "squad_2.0.json").read_text())
    gold = {
        question["id"]: {answer["text"].lower() for answer in question["answers"]}
        for article in json.loads(files["dev"].read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    assert answers.keys() == gold.keys() and len(gold) == 21
    exact = sum(answers[name].lower() in (texts or {""}) for name, texts in gold.items())
    assert rows["exact"] == pytest.approx(100 * exact / 21, abs=0.01)
    plan = script(recipe, *arguments, "--search", "--dry-run").stdout.splitlines()
    assert len(plan) == 2 * 4 * 2 * 2  # batch sizes, rates, warm-ups, epochs 2 and 3


def test_rows_are_appended_once(tmp_path, capsys):
    path = tmp_path / "results.tsv"
    first = ["2026-01-01", "RTE", "accuracy"]
    finetune_results.append_rows(str(path), [first])
    finetune_results.append_rows(str(path), [["2026-01-02", "RTE", "accuracy"], ["2026-01-02", "RTE", "f1"]])
    lines = path.read_text().splitlines()
    assert lines[0].split("\t") == finetune_results.COLUMNS
    assert lines[1:] == ["2026-01-01\tRTE\taccuracy", "2026-01-02\tRTE\tf1"]


@pytest.mark.parametrize("task", ["own", "STS-B"])
def test_fine_tuning_in_bfloat16(arguments, tmp_path, task):
    """It is computed with other roundings, and learns the same."""
    models = []
    for extra in [[], ["--bf16-autocast"]]:
        save = tmp_path / f"save{len(extra)}"
        glue("--task", task, *arguments, "--save-dir", save, "--seeds", 1, "--dropout", 0, *extra)
        (model,) = save.glob("*/*/*/seed1/model.pt")
        models.append(torch.load(model, weights_only=True)["model"])
        own = GlueTask(str(arguments[3] / task), task)
        assert own.load(str(model)).head_logits(own.tokens("valid")).dtype == torch.float32
    exact, rounded = (model["embed_tokens.weight"] for model in models)
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=5e-3)


def test_precision_on_gpus(arguments, monkeypatch):
    assert finetune.device_options([]) == ["--cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert finetune.device_options(["--update-freq", "2"]) == ["--fp16"]
    assert finetune.device_options(["--bf16-autocast"]) == []
    monkeypatch.undo()
    done = glue("--task", "own", *arguments, "--bf16-autocast", "--fp16", check=False)
    assert done.returncode == 1 and "--bf16-autocast contradicts --fp16: choose one" in done.stdout
