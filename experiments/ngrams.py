#!/usr/bin/env python3
"""Baselines for minimal pairs: frequencies and 5-grams of the text that pretraining read.

    python ngrams.py --text train.txt --data DATA --pairs blimp --dest DEST \\
      --records evaluation/mlm-1.npz

Two models of an encoder's tokens, `unigrams` and `kneser_ney`, decide pairs as an encoder does:
the sentence with fewer bits is the good one. Beside them stand encoders that recipes/evaluate.sh
has evaluated on the same pairs.

Writes DEST/unigrams.npz and DEST/kneser_ney.npz, records like those of encoders; DEST/ngrams.csv,
a row for each score, with the columns of an evaluation's scores.csv; and tables, DEST/ngrams.md.
The same command resumes.
"""

import collections
import os
import string

import numpy as np
import pandas as pd

from kneser_ney import KneserNey
from maelm_fairseq.base import provenance
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.files import atomic_write
from maelm_fairseq.base.running import run_main
from maelm_fairseq.base.utf8 import read_lines
from maelm_fairseq.evaluation.minimal_pairs import decide_by_bits
from maelm_fairseq.evaluation.model_record import GROUPS_KEY, PAIRS_FEATURE, ModelRecord
from maelm_fairseq.evaluation.pair_files import read_pairs
from maelm_fairseq.evaluation.report import Report, frame_to_markdown
from maelm_fairseq.vocabulary import load_dictionary_and_tokenizer

NGRAM_ORDER = 5
LEAST_OCCURRENCES = 2  # occurrences in the text of a word that counts as known


class Unigrams:
    """The frequencies of tokens in a text, each plus one; arguments as of `KneserNey`."""

    def __init__(self, tokens, sizes, vocabulary):
        counts = np.bincount(tokens, minlength=vocabulary) + 1
        self.token_bits = -np.log2(counts / counts.sum())

    def bits(self, tokens, sizes):
        """The bits of sentences: float64 (S,)."""
        sentences = np.repeat(np.arange(len(sizes)), sizes)
        return np.bincount(sentences, self.token_bits[tokens], minlength=len(sizes))


NGRAM_MODELS = {
    "unigrams": Unigrams,
    "kneser_ney": lambda *text: KneserNey(*text, NGRAM_ORDER),
}


def record_decisions(records, pairs, origin, text, tokenizer):
    """Records how each model decides pairs, which are identified by `origin`.

    Args:
        records: {name of a model: `model_record.ModelRecord`}
        pairs: `pair_files.Pairs`
        origin: dict
        text: path of the text, a sentence on each line
        tokenizer: `tokenizer.Tokenizer`
    Raises:
        UsageError: the text has no words, or a model's records are of something else
    """
    missing = []
    for name in records:
        if not records[name].is_recorded(pairs.name, PAIRS_FEATURE, origin):
            missing.append(name)
    if not missing:
        return
    sentences = tokenizer.encode_plain_text([line for _, line in read_lines(text) if line.strip()])
    if not len(sentences[0]):
        raise UsageError(f"--text {text}: found no words, expected the text that pretraining read")
    compared = tokenizer.encode_plain_text([*pairs.good, *pairs.bad])
    for name in missing:
        model = NGRAM_MODELS[name](*sentences, len(tokenizer.symbols))
        good, bad = model.bits(*compared).reshape(2, -1)
        arrays = {PAIRS_FEATURE: decide_by_bits(good, bad), GROUPS_KEY: pairs.groups}
        records[name].write(pairs.name, PAIRS_FEATURE, origin, arrays)


def words(text):
    """The words of a text: split at white space, lowercased, without punctuation around them."""
    stripped = (word.strip(string.punctuation) for word in text.lower().split())
    return [word for word in stripped if word]


def have_known_words(pairs, text):
    """Whether each word of a pair occurs in a text LEAST_OCCURRENCES times or more: bool (N,)."""
    counts = collections.Counter()
    for _, line in read_lines(text):
        counts.update(words(line))
    known = {word for word, count in counts.items() if count >= LEAST_OCCURRENCES}
    are_known = []
    for good, bad in zip(pairs.good, pairs.bad):
        are_known.append(known.issuperset(words(f"{good} {bad}")))
    return np.array(are_known)


def grams(text, size):
    """The groups of `size` neighbouring words of a text: set of tuples."""
    sequence = words(text)
    return {tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)}


def overlapping(texts, path, size=8):
    """Whether each text shares `size` neighbouring words with a line of a file: bool (N,)."""
    grams_of_texts = [grams(text, size) for text in texts]
    wanted = set().union(*grams_of_texts)
    shared = set()
    for _, line in read_lines(path):
        shared |= wanted & grams(line, size)
    return np.array([bool(of_text & shared) for of_text in grams_of_texts], bool)


def restrict(records, name, restricted, chosen):
    """Adds a part of the pairs, `chosen` (N,), to a model's arrays under another name.

    The model's file stays as it is.
    """
    for key in [PAIRS_FEATURE, GROUPS_KEY]:
        records.arrays[f"{restricted}/{key}"] = records.arrays[f"{name}/{key}"][chosen]


def parse_args():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add(
        "--text",
        required=True,
        metavar="FILE",
        help="text that pretraining read, a sentence on each line, plain or gzip",
    )
    add(
        "--data",
        required=True,
        metavar="DIR",
        help="folder with the vocabulary, from data-prep/prepare.sh",
    )
    add("--pairs", required=True, metavar="PATH", help="minimal pairs, as for recipes/evaluate.sh")
    add("--dest", required=True, metavar="DIR", help="folder to write to")
    add(
        "--records",
        action="extend",
        nargs="+",
        default=[],
        metavar="MODEL.npz",
        help="records of encoders that recipes/evaluate.sh has evaluated on the same pairs",
    )
    add(
        "--twice",
        action="store_true",
        help="also score the pairs whose words all occur twice in the text, or more often",
    )
    return parser.parse_args()


def read_encoders(args, pairs, origin):
    """The records that --records names; raises a UsageError if they cannot be compared.

    They have to be of different models, which have decided these pairs.
    """
    encoders = [ModelRecord(path) for path in args.records]
    for encoder in encoders:
        if not encoder.is_recorded(pairs.name, PAIRS_FEATURE, origin):
            fault = f"found no pairs called {pairs.name}, expected some"
            raise UsageError(f"{encoder.path}: {fault}; evaluate it with --pairs {args.pairs}")
    names = [*NGRAM_MODELS, *(encoder.model for encoder in encoders)]
    if len(set(names)) < len(names):
        fault = f"found {', '.join(names)}, expected different names"
        raise UsageError(f"--records: {fault}; rename a file")
    return encoders


def print_summary(args, pairs, records):
    """Prints the summary, and writes the tables of all models."""
    sets = [pairs.name]
    counts = f"{len(pairs.good):,} pairs"
    if args.twice:
        chosen = have_known_words(pairs, args.text)
        if not chosen.any():
            fault = f"found no pair whose words all occur {LEAST_OCCURRENCES} times in {args.text}"
            raise UsageError(f"{args.pairs}: {fault}; leave out --twice")
        sets.append(f"{pairs.name}, known words")
        for record in records:
            restrict(record, *sets, chosen)
        counts += f"; {chosen.sum():,} of known words, each {LEAST_OCCURRENCES} times or more "
        counts += "in the text"
    tables = Report(records, [], sets)
    summary = tables.decided(pairs.name).drop(columns="pairs").rename_axis("model")
    summary = summary.rename(columns={"right": "all pairs"})
    if args.twice:
        summary["known words"] = tables.decided(sets[1]).right
    text = f"{counts}.\n\n{frame_to_markdown(summary)}"
    print(text)
    scores = pd.concat([record.table() for record in records])
    with atomic_write(os.path.join(args.dest, "ngrams.csv")) as stream:
        scores[scores.task.isin(sets)].to_csv(stream, index=False, lineterminator="\n")
    with atomic_write(os.path.join(args.dest, "ngrams.md")) as stream:
        stream.write(f"# Minimal pairs, encoders and n-grams\n{text}\n{tables.text()}")


def main():
    args = parse_args()
    pairs = read_pairs(args.pairs)
    origin = {"pairs": pairs.sha256}
    encoders = read_encoders(args, pairs, origin)
    _, tokenizer = load_dictionary_and_tokenizer(args.data)
    files = [args.text, os.path.join(args.data, "dict.txt"), tokenizer.path]
    source = " ".join(provenance.compute_sha256s(files).values())
    os.makedirs(args.dest, exist_ok=True)
    own = {}
    for name in NGRAM_MODELS:
        own[name] = ModelRecord(os.path.join(args.dest, f"{name}.npz"), source)
    record_decisions(own, pairs, origin, args.text, tokenizer)
    print_summary(args, pairs, [*own.values(), *encoders])


if __name__ == "__main__":
    run_main(main)
