"""Words with tags in experiments/: what archives contain, and the table that records make."""

import io
import tarfile

import pandas as pd
import pytest

import tags
from conftest import ROOT, error_of, run_main
from maelm_fairseq.finetuning.tagged_files import read_tagged
from small_variants import VARIANT_TITLES

PAGE_OF_NEWSPAPER = [
    ("Te", "O"),
    ("Londen", "I-LOC"),
    ("is", "O"),
    ("Jan", "B-PER"),
    ("Smit.", "I-PER"),
    ("De", "O"),
    ("heer", "O"),
    ("P.", "I-PER"),
    ("Smit", "I-PER"),
]
ADDRESSES = (
    "<AddressCollection><AddressString><AddressNumber>1</AddressNumber> "
    "<StreetName>Long Way</StreetName></AddressString></AddressCollection>"
)


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            contents = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            archive.addfile(info, io.BytesIO(contents))


@pytest.fixture
def archives(tmp_path):
    page = "".join(
        f"{word} {number} {tag}\n" for number, (word, tag) in enumerate(PAGE_OF_NEWSPAPER)
    )
    pages = {f"seqlearn/examples/nerdata/{name}.bio": page for name in "ab"}
    write_archive(tmp_path / tags.ARCHIVES["dutch_entities"], pages)
    write_archive(
        tmp_path / tags.ARCHIVES["us_addresses"], {"usaddress/training/labeled.xml": ADDRESSES}
    )
    return tmp_path


def test_sentences_end_at_full_stops_and_entities_begin_with_b(archives):
    archive = archives / tags.ARCHIVES["dutch_entities"]
    first, second, *repeated = tags.dutch_entities(archive)
    assert first == [
        ("Te", "O"),
        ("Londen", "B-LOC"),
        ("is", "O"),
        ("Jan", "B-PER"),
        ("Smit.", "I-PER"),
    ]
    assert second == [("De", "O"), ("heer", "O"), ("P.", "B-PER"), ("Smit", "I-PER")]
    assert repeated == [first, second]


def test_each_sentence_is_in_one_file_that_fine_tuning_reads(archives, tmp_path):
    run_main(tags.main, "files", archives, "--run", tmp_path)
    sentences = {}
    for data in tags.READERS:
        found = []
        for path in sorted((tmp_path / "tags" / "files" / data).iterdir()):
            found += read_tagged(path) if path.stat().st_size else []
        sentences[data] = [(sentence.words, sentence.tags) for sentence in found]
    assert len(sentences["dutch_entities"]) == 2
    words = ["1", "Long", "Way"]
    assert sentences["us_addresses"] == [(words, ["AddressNumber", "StreetName", "StreetName"])]
    fault = error_of(tags.main, "files", tmp_path / "tags", "--run", tmp_path)
    assert "expected seqlearn-0.2.tar.gz, found no such file" in fault


def test_a_record_has_the_encoders_of_all_runs_and_each_baseline_once(tmp_path, monkeypatch):
    monkeypatch.setattr(tags, "RECORDS", tmp_path)
    scores = {"small-1": 50.0, "small-2": 60.0, "untrained-1": 30.0}
    for run, score in scores.items():
        rows = []
        for task, metric in tags.METRICS.items():
            for split in ["dev.txt", "test.txt"]:
                rows.append([task, split, metric, score, 1.0, "encoder", score - 70, 2.0])
                rows.append([task, split, metric, 70.0, 1.0, "CRF", None, None])
                rows.append([task, split, "precision", 10.0, 1.0, "CRF", None, None])
                rows.append([task, split, metric, 75.0, 1.0, "encoder and CRF together", 5.0, 2.0])
        folder = tmp_path / "tags" / run
        folder.mkdir(parents=True)
        columns = (
            "task file metric median standard_error predictor lead lead_standard_error".split()
        )
        pd.DataFrame(rows, columns=columns).to_csv(folder / "results.tsv", sep="\t", index=False)
    folder = tmp_path / "tags" / tags.TRIALS
    folder.mkdir()
    settings = ["batch32-epochs5-1a2b", "batch32-epochs5-3c4d --lr 1"]
    row = ["dutch_entities", "dev.txt", "f1", 40.0, 1.0, "encoder", -30.0, 2.0]
    rows = [[*row, name] for name in settings]
    pd.DataFrame(rows, columns=[*columns, "settings"]).to_csv(
        folder / "results.tsv", sep="\t", index=False
    )
    run_main(tags.main, "record", "--run", tmp_path)
    # Another machine has other runs: what is recorded stays.
    (tmp_path / "tags" / "small-1").rename(tmp_path / "elsewhere")
    (tmp_path / "tags" / tags.TRIALS / "results.tsv").unlink()
    run_main(tags.main, "record", "--run", tmp_path)
    trials = [cells_of(line) for line in tags.trial_table().splitlines()[2:]]
    assert trials == [["batch32-epochs5", "40.00", ""], ["batch32-epochs5 --lr 1", "40.00", ""]]
    assert [cells_of(line) for line in tags.score_table().splitlines()[2:]] == [
        [VARIANT_TITLES["small"], "2", *["55.00"] * 4],
        [f"{VARIANT_TITLES['small']}, together with a CRF", "2", *["75.00"] * 4],
        [VARIANT_TITLES["untrained"], "1", *["30.00"] * 4],
        [f"{VARIANT_TITLES['untrained']}, together with a CRF", "1", *["75.00"] * 4],
        ["CRF", "", *["70.00"] * 4],
    ]
    leads = [cells_of(line) for line in tags.lead_table().splitlines()[2:]]
    assert leads[:2] == [
        [VARIANT_TITLES["small"], *["-15.00 ± 2.00"] * 4],
        [f"{VARIANT_TITLES['small']}, together with a CRF", *["+5.00 ± 2.00"] * 4],
    ]
    assert len(leads) == 4


def cells_of(line):
    """The cells of a row of a table."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_page_has_the_tables_of_the_records():
    page = (ROOT / "experiments" / "SMALL.md").read_text(encoding="utf-8")
    assert f"<!-- tags -->\n{tags.score_table()}<!-- end -->" in page
    assert f"<!-- tag_trials -->\n{tags.trial_table()}<!-- end -->" in page
