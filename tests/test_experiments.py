"""The experiments: arms that fairseq-train accepts, records, and a page made from them alone."""

import re
import shlex
import shutil
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fairseq import options

import arms
import continuing
import maelm_fairseq.plugin  # noqa: F401  fairseq-train has it from --user-dir
import measure
import page
import page_arms
import page_claims
import page_pilots
import page_ranks
import page_scores
import page_tests
import page_trajectories
import update_times
from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT, documents, run_main, script
from labelled import write_table
from maelm_fairseq import hub
from maelm_fairseq.baselines.baseline_scores import BAG_OF_WORDS
from maelm_fairseq.checkpoints.reading import read_torch_file
from measurements import Measurement
from results import Results

EXPERIMENTS = ROOT / "experiments"
# fairseq uses hydra in ways that it warns of.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning")
    for kind in ["User", "Future", "Deprecation"]
]


def make(*words):
    return script(shutil.which("make"), "-C", EXPERIMENTS, f"PYTHON={PYTHON}", *words).stdout


def test_the_page_is_made_from_the_records_alone(tmp_path):
    shutil.copy(EXPERIMENTS / "RESULTS.md", tmp_path)
    page.remake(tmp_path / "RESULTS.md", EXPERIMENTS / "records", tmp_path / "pictures")
    text = (tmp_path / "RESULTS.md").read_text()
    assert text == (EXPERIMENTS / "RESULTS.md").read_text()
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert set(re.findall(r"pictures/([\w-]+\.png)", text)) == drawn
    assert drawn == {path.name for path in (EXPERIMENTS / "pictures").iterdir()}


def parsed(*words):
    """What fairseq-train makes of its options."""
    return options.parse_args_and_arch(options.get_training_parser(), list(map(str, words)))


def test_all_encoders_are_listed(capsys):
    run_main(arms.main)
    assert capsys.readouterr().out.splitlines() == arms.encoders()


def test_every_arm_differs_from_the_others_and_is_what_fairseq_train_takes(data):
    models = set()
    for name, arm in arms.ARMS.items():
        args = parsed(data, *arms.options_of_arm(f"{name}-1"))
        assert args.max_update == int(args.total_num_update) == arm.updates
        values = {**vars(args), "save_interval_updates": 0, "keep_interval_updates": 0}
        models.add(str(sorted(values.items())))
    assert len(models) == len(arms.ARMS)
    assert len(arms.encoders()) == sum(arm.seeds for arm in arms.ARMS.values())


def test_what_has_a_record_is_not_trained_again(tmp_path):
    recorded, missing = tmp_path / "A-1.csv", tmp_path / "B-1.csv"
    recorded.touch()
    records = f"RECORDS={tmp_path}"
    assert "fairseq-train" not in make("-n", recorded, records, f"RUN={tmp_path}/run")
    assert "arms.py B-1 | xargs fairseq-train" in make("-n", missing, records, "RUN=run")


def test_every_way_to_continue_is_what_fairseq_train_takes(data, tmp_path, monkeypatch):
    monkeypatch.chdir(EXPERIMENTS)
    records = f"RECORDS={tmp_path}"
    text = make("-f", "continuing.mk", "-n", f"RUN={tmp_path}", "TEXT=text.txt", records)
    lines = text.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[1:] for line in lines if "fairseq-train" in line]
    assert len(commands) == 1 + 3 * 2
    runs = set()
    for command in commands:
        folder, *words = [word for word in command if word not in ("--cpu", ">/dev/null")]
        args = parsed(data, *words)
        assert ("base-data" in folder) == (args.finetune_from_model is None)
        masks = (args.encoder_mask_fraction, args.encoder_mask_fade_updates)
        runs.add((folder, args.decoder_layers, masks, args.seed))
    assert len(runs) == len(commands)


def test_continued_models_decide_pairs_of_held_out_text(pretrained, monkeypatch):
    lines = [f"the {noun} is on the top line" for noun in ["movie", "plot", "scene", "story"]]
    monkeypatch.setattr(continuing, "recorded_lines", lambda *arguments: lines)
    monkeypatch.setattr(continuing, "matched_halves", lambda model, lines: (50.0, 1))
    model = hub.from_pretrained(pretrained[1], pretrained[0])
    values = {}
    for row in continuing.without_labels(model):
        values[row.task, row.feature, row.metric] = row.value
    assert values["agreement", "examples", "count"] == 4
    assert 0 <= values["agreement", "masks left out", "pairs"] <= 100


def write_trec(folder):
    """Writes a small task of the name of one that is measured."""
    texts = sorted({line for document in documents(60, 7) for line in document})[:90]
    rows = [(text, "long" if len(text) > 30 else "short") for text in texts]
    write_table(folder / "train.tsv", ["sentence", "label"], rows[:60])
    write_table(folder / "dev.tsv", ["sentence", "label"], rows[60:])


def measure_little(monkeypatch):
    """Lets a measurement take one small task and few steps of everything."""
    for name in ["PROBED_TASKS", "NATURAL_TASKS", "TRAJECTORY_TASKS"]:
        monkeypatch.setattr(measure, name, ["trec"])
    monkeypatch.setattr(measure, "FINE_TUNING", ["--seeds", "1", "--epochs", "1"])
    for name, value in {
        "PARTS_OF_FINE_TUNING": 1,
        "RANK_TOKENS": 2000,
    }.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setitem(arms.ARMS, "D", replace(arms.ARMS["D"], updates=4))
    monkeypatch.setenv("PATH", SCRIPTS_ENVIRONMENT["PATH"])
    monkeypatch.setattr(sys, "executable", PYTHON)


def check_record(table):
    layers = [*map(str, range(13))]
    assert tuple(table) == Measurement._fields
    assert set(table.arm) == {"D"}
    assert set(table.seed) == {1}
    assert table[table.metric == "bits"].updates.tolist() == [1, 2, 3, 4]
    ranks = table[(table.feature == "with_mask") & (table.metric == "rank")]
    assert ranks.layer.tolist() == layers
    probes = table[(table.feature == "mean") & (table.metric == "accuracy")]
    assert probes.layer.tolist() == [*layers, "last", "chosen"]
    assert sorted(table[table.feature == "fine-tuned"].updates) == [1, 4]
    assert table[table.task == "fine-tuning 1/1"].layer.dropna().tolist() == layers


def check_reset(trained, reset):
    """The matrices of layers are new, and what is outside of layers is kept."""
    before = read_torch_file(str(trained))["model"]
    after = read_torch_file(str(reset))["model"]
    for name in before:
        is_kept = torch.equal(before[name], after[name])
        if not name.startswith("encoder.layers."):
            assert is_kept, name
        elif name.endswith("weight") and "norm" not in name:
            assert not is_kept, name


def test_one_encoder_is_trained_measured_and_recorded(prepared, tmp_path, monkeypatch):
    run, trained = tmp_path / "run", tmp_path / "run" / "D-1" / "model.pt"
    run.mkdir()
    (run / "data").symlink_to(prepared)
    make(trained, f"RUN={run}", "UPDATES=4")
    for updates in [2, 3]:  # One checkpoint within the run is enough.
        trained.with_name(f"checkpoint_1_{updates}.pt").unlink()
    write_trec(run / "labelled" / "trec")
    measure_little(monkeypatch)
    run_main(measure.main, "D-1", "--run", run, "--dest", tmp_path / "records")
    check_record(pd.read_csv(tmp_path / "records" / "D-1.csv", dtype={"layer": str}))
    assert (tmp_path / "records" / "D-1.npz").exists()

    monkeypatch.setitem(arms.ARMS, "D", replace(arms.ARMS["D"], updates=5))
    for name, value in {"TIMED": ["D"], "ROUNDS": 1, "UPDATES_PER_TIMING": 1}.items():
        monkeypatch.setattr(update_times, name, value)
    run_main(measure.main, "--seconds", "--run", run, "--dest", tmp_path / "timed")
    (timed,) = pd.read_csv(tmp_path / "timed" / "seconds.csv").itertuples()
    assert (timed.arm, timed.metric) == ("D", "seconds")
    assert 0 < timed.value < 60

    measure.reinitialize_layers(str(trained), str(tmp_path / "reset.pt"))
    check_reset(trained, tmp_path / "reset.pt")


def write_pilots_and_two_arms(path):
    """Records in which trained layers gain 5 points, and arm A one more, with some noise."""
    random = np.random.default_rng(1)
    rows = []
    for arm, seeds in {"A": 6, "B": 6, "A-reset": 0, "D": 0, "D-reset": 0}.items():
        mean = 50
        if not arm.endswith("reset"):
            mean += 5
        if arm == "A":
            mean += 1
        for seed in [*range(1, seeds + 1), *arms.PILOT_SEEDS]:
            for task in measure.NATURAL_TASKS:
                value = mean + 0.1 * random.normal()
                rows.append([arm, seed, 6000, "last", task, "fine-tuned", "accuracy", value])
    pd.DataFrame(rows, columns=Measurement._fields).to_csv(path, index=False)


def test_instrument_and_tests_find_what_is_there(tmp_path):
    write_pilots_and_two_arms(tmp_path / "made-1.csv")
    results = Results(tmp_path)
    assert page_scores.ablations(results) == "Not run yet."
    assert "| fine-tuned | 6 |" in page_pilots.instrument(results)
    assert "layer 1" not in page_pilots.instrument(results)
    first, second, *rows = page_tests.tests(results).splitlines()[4:]
    (of_order,) = [row for row in rows if row.startswith("| word order | shared")]
    (described,) = [row for row in rows if "| decoder" in row]
    assert rows.index(of_order) < rows.index(described)
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[0] == "fine-tuned"
    assert cells[2] == "6"
    assert float(cells[6]) < 0.01
    assert float(cells[3]) == pytest.approx(1, abs=0.15)
    assert cells[8].startswith("not shown")
    assert cells[9] == "shown"
    # Arm D has only pilots, which do not count.
    assert second.startswith("| fine-tuned | MAE-LM minus MLM, 80/10/10 | 0 |")
    pair = "shared layers, 80/10/10 minus MLM, 80/10/10"
    assert of_order.startswith(f"| word order | {pair} | 0 |")
    pair = "decoder, all masks in the encoder minus MLM, 80/10/10"
    assert described.startswith(f"| fine-tuned | {pair} | 0 |")
    natural, order = results.pictures["differences"].axes
    assert len(natural.get_yticks()) == 1
    assert len(order.get_yticks()) == 0


def test_verdicts():
    assert page_claims.verdict(pd.Series([1.0, 1.1, 0.9, 1.2]))[2] == "shown"
    assert page_claims.verdict(pd.Series([-1.0, -1.1, -0.9, -1.2]))[2] == "reversed"
    assert page_claims.verdict(pd.Series([1.0, -1.1, 0.9, -1.2]))[2] == "not shown"
    assert page_claims.verdict(pd.Series([1.0, 1.1, 1.2]))[2] == "described"
    assert page_claims.verdict(pd.Series([2.0] * 4))[1:] == (
        "+2.0 dimensions in each seed",
        "described",
    )


def test_intervals_within_the_margin_are_equivalent():
    assert page_tests.equivalence(-0.9, 0.9) == "equivalent (-0.90 to 0.90)"
    assert page_tests.equivalence(-1.02, 0.9).startswith("not shown")
    assert page_tests.equivalence(-0.9, 1.02).startswith("not shown")


def test_equivalence_is_reported_only_where_the_instrument_tells_layers_apart():
    tested = page_tests.compute_tests(Results(EXPERIMENTS / "records"))
    reported = tested[tested[page_tests.EQUIVALENT] != ""]
    assert set(reported.on) == {"fine-tuned", "word order"}


def test_the_interval_of_equivalence_is_narrower_than_that_of_the_difference():
    primary = page_tests.compute_tests(Results(EXPERIMENTS / "records")).iloc[0]
    low, high = map(float, re.search(r"\((.+) to (.+)\)", primary[page_tests.EQUIVALENT]).groups())
    assert primary["from"] < low
    assert high < primary.to


def test_means_without_trec_have_the_four_other_tasks():
    tasks, _, pairs = page_tests.UNPLANNED_COMPARISONS[page_tests.WITHOUT_TREC]
    assert tasks == ["rotten_tomatoes", "tweets", "nyt_editorials", "amazon_reviews"]
    assert set(page_tests.PLANNED_TESTS["fine-tuned"][2]) <= set(pairs)


def records_with_a_bag(folder, value):
    """Some records, and one of a bag of words that scores `value` on every task."""
    for path in (EXPERIMENTS / "records").glob("[ABD]-*.csv"):
        shutil.copy(path, folder)
    rows = []
    for task in measure.NATURAL_TASKS:
        rows.append([BAG_OF_WORDS, 1, 0, "last", task, "fine-tuned", "accuracy", value])
    table = pd.DataFrame(rows, columns=Measurement._fields)
    table.to_csv(folder / "bag_of_words.csv", index=False)
    return Results(folder)


def cells_of(table, name):
    """The cells of the row of a table in Markdown that begins with `name`."""
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in row.strip("| ").split("|")]


@pytest.mark.parametrize("block", ["scores", "masked", "by_task", "baseline"])
def test_a_recorded_bag_of_words_is_a_row_of_every_table_of_fine_tuned_scores(tmp_path, block):
    table = page.BLOCKS[block](records_with_a_bag(tmp_path, 70.0))
    assert "70.00" in cells_of(table, BAG_OF_WORDS)


def test_without_a_record_no_table_has_a_bag_of_words(tmp_path):
    records_with_a_bag(tmp_path, 70.0)
    (tmp_path / "bag_of_words.csv").unlink()
    results = Results(tmp_path)
    assert BAG_OF_WORDS not in page_scores.scores(results)
    assert BAG_OF_WORDS not in page_scores.by_task(results)
    assert page_scores.baseline(results).endswith(page_scores.NO_BAG)


@pytest.mark.parametrize("value, lower", [(70.0, 3), (10.0, 0)])
def test_the_baseline_counts_the_arms_below_the_bag_of_words(tmp_path, value, lower):
    text = page_scores.baseline(records_with_a_bag(tmp_path, value))
    assert f"the bag of words scores {value:.1f}" in text
    assert f"{lower} of 3 arms score lower" in text


def test_two_seeds_are_drawn_and_not_a_standard_deviation():
    records = Results(EXPERIMENTS / "records")
    page_trajectories.trajectories(records)
    page_ranks.lemma(records)
    of_two_seeds = records.pictures["trajectories"].axes[0]
    of_many_seeds = records.pictures["lemma"].axes[0]
    assert not of_two_seeds.containers
    ends_of_the_mlm = 2
    mean_and_seeds = 1 + 2
    expected = ends_of_the_mlm + len(arms.TRAJECTORIES) * mean_and_seeds
    assert len(of_two_seeds.lines) == expected
    assert len(of_many_seeds.containers) == len({"A", *page_arms.MLMS})
