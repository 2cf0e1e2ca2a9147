"""Own text and 1,000 labels: what is labelled is not in the text, and the page has the record."""

import json
import re

import pandas as pd
import pytest

import addresses
from conftest import ROOT, error_of, run_main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of 100 addresses, one in each second year, of 60 sentences each."""
    monkeypatch.setattr(addresses, "ADDRESSES", 100)
    monkeypatch.setattr(addresses, "LABELS_OF_SPLIT", {"train": 20, "dev": 10, "test": 20})
    (tmp_path / "package").mkdir()
    for year in range(1790, 1990, 2):
        sentences = [f"Sentence {number} of {year}" + " goes on" * 6 + "." for number in range(60)]
        contents = {"year": year, "text": " ".join(sentences)}
        (tmp_path / "package" / f"{year}_president_d.json").write_text(json.dumps(contents))
    return tmp_path / "package"


def test_labelled_sentences_are_of_other_addresses_than_the_text(folder, tmp_path):
    run_main(addresses.main, "text", folder, "--run", tmp_path)
    years = {"text": {*re.findall(r"of (\d+)", (tmp_path / "text.txt").read_text())}}
    for split, count in addresses.LABELS_OF_SPLIT.items():
        table = pd.read_csv(tmp_path / f"century/{split}.tsv", sep="\t", dtype=str)
        labels = [*addresses.HALF_CENTURIES.values()]
        assert table.label.value_counts().to_dict() == dict.fromkeys(labels, count)
        years[split] = {*table.sentence.str.extract(r"of (\d+)")[0]}
        for row in table.itertuples():
            year = int(re.search(r"of (\d+)", row.sentence)[1])
            assert row.label == addresses.half_century(year)
    assert len(years["text"]) == 75
    assert sum(map(len, years.values())) == len(set().union(*years.values()))


def test_another_folder_is_refused(tmp_path):
    fault = error_of(addresses.main, "text", tmp_path, "--run", tmp_path)
    assert f"{tmp_path}: found 0 addresses, expected the 233 of the package" in fault


def test_the_page_has_the_table_of_the_record():
    page = (ROOT / "docs" / "own_text.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- addresses -->\n(.*?)<!-- end -->", page, flags=re.S)
    assert block.strip() == addresses.accuracy_table("addresses").strip()


def test_a_record_names_predictors(tmp_path, monkeypatch):
    columns = ["file", "median", "standard_error", "seeds", "predictor"]
    tables = {
        "pretrained": [
            ["dev.tsv", 61.0, 2.0, 5, "encoder"],
            ["dev.tsv", 60.0, 2.5, 1, "bag of words"],
        ],
        "scratch": [
            ["dev.tsv", 50.0, 3.0, 5, "encoder"],
            ["dev.tsv", 60.0, 2.5, 1, "bag of words"],
        ],
    }
    for start, rows in tables.items():
        (tmp_path / start).mkdir()
        table = pd.DataFrame(rows, columns=columns)
        table.to_csv(tmp_path / start / "results.tsv", sep="\t", index=False)
    monkeypatch.setattr(addresses, "RECORD", tmp_path / "record.csv")
    run_main(addresses.main, "record", "--run", tmp_path)
    record = pd.read_csv(tmp_path / "record.csv")
    assert [*record.predictor] == ["pretrained", "bag of words", "scratch"]
    rows = addresses.accuracy_table("addresses").splitlines()[2:]
    assert [row.split("|")[2].strip() for row in rows] == ["61.0 ± 2.0", "60.0 ± 2.5", "50.0 ± 3.0"]
