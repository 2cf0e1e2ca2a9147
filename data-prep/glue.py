#!/usr/bin/env python3
"""Turns GLUE's official files, or tasks of your own, into data for fairseq's sentence_prediction.

INPUT/TASK/train.tsv, dev.tsv and test.tsv become DEST/TASK. A task that is not one of GLUE's has a header with
`sentence`, or `sentence1` and `sentence2`, and `label`. Running the same command again skips the tasks that are there.
"""

import hashlib
import json
import math
import os
import shutil
from collections import Counter, namedtuple
from itertools import islice

from vocabulary import compare_with_checkpoint, load_vocabulary

# The plugin, which vocabulary.py imports, comes before fairseq: it keeps it quiet, and tells why one cannot import it.
# isort: split
import torch
from check import UNKNOWN, spelled, spells, visible
from encode import EOS
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, make_builder
from program import InputError, Parser, Progress, complete_folder, cpu_count, positive, remove_abandoned, run, say
from raw_text import check_files, read_lines
from write_dict import FAIRSEQ_SPECIALS, all_pieces

BATCH = 4096  # examples encoded at a time
SAMPLE = 5  # examples of each batch that are compared with their text in the end
UNKNOWN_PIECES = 10  # the commonest are kept
NAMED = 5  # malformed lines of a file that are named
MAXIMUM_MALFORMED = 0.01
MAXIMUM_UNKNOWN_RATE = 0.01
MINIMUM_TOKENS = 6  # `<s> a </s> </s> b </s>` with one token of each sentence
RECORD = "task.json"

Task = namedtuple("Task", "name sentences label labels index files published header")
Task.__doc__ = """How the files of a task are read.

    name: of its folder
    sentences: names of the columns of its sentences: one, or two for pairs
    label: name of the column of labels
    labels: its labels in order; None for numbers; [] where the training set tells
    index: name of the column that numbers the test examples; None: they are counted from 0
    files: file of each split
    published: number of examples of each split, {} for tasks of one's own
    header: names of the columns of train and dev where these files have no header, else None
"""

FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    "valid": "dev_matched.tsv",
    "valid1": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test1": "test_mismatched.tsv",
}


def official(name, sentences, label, labels, *published, index="index", files=FILES, header=None):
    return Task(name, sentences, label, labels, index, files, dict(zip(files, published)), header)


ENTAILMENT = ["not_entailment", "entailment"]
COLA_COLUMNS = ["source", "label", "original label", "sentence"]
GLUE = {
    task.name: task
    for task in [
        official("CoLA", ["sentence"], "label", ["0", "1"], 8551, 1043, 1063, header=COLA_COLUMNS),
        official("SST-2", ["sentence"], "label", ["0", "1"], 67349, 872, 1821),
        official("MRPC", ["#1 String", "#2 String"], "Quality", ["0", "1"], 3668, 408, 1725),
        official(
            "QQP", ["question1", "question2"], "is_duplicate", ["0", "1"], 363846, 40430, 390965, index="id"
        ),
        official("STS-B", ["sentence1", "sentence2"], "score", None, 5749, 1500, 1379),
        official(
            "MNLI", ["sentence1", "sentence2"], "gold_label", ["contradiction", "neutral", "entailment"],
            392702, 9815, 9832, 9796, 9847, files=MNLI_FILES,
        ),
        official("QNLI", ["question", "sentence"], "label", ENTAILMENT, 104743, 5463, 5463),
        official("RTE", ["sentence1", "sentence2"], "label", ENTAILMENT, 2490, 277, 3000),
    ]
}  # fmt: skip


def own_task(name, path, regression):
    """The Task of files that are not GLUE's, after the header of their training file, `path`."""
    header = read_header(path)
    pair = "sentence1" in header and "sentence2" in header
    if not pair and "sentence" not in header:
        raise InputError(
            f"{path}: found the columns {', '.join(header)}; expected a header with label, and sentence (or"
            " sentence1 and sentence2 for pairs); add it as the first line, tabs between"
        )
    sentences = ["sentence1", "sentence2"] if pair else ["sentence"]
    return Task(name, sentences, "label", None if regression else [], None, FILES, {}, None)


def is_test(split):
    return split.startswith("test")


# Reading -----------------------------------------------------------------------------------------------------------


def read_header(path):
    """The names in the first line of a file."""
    try:
        return next(read_lines([path])).decode("utf-8").split("\t")
    except UnicodeDecodeError:
        raise InputError(f"{path}: line 1 is not UTF-8; expected the names of the columns; convert the file to UTF-8")


class Table:
    """The examples of a file: iterates over (sentences, label), or (sentences, index) in a test file.

    Malformed lines are left out and counted, the first of them named.

    Args:
        path: of the file
        task: Task
        split: train, valid, valid1, test or test1
        labels: those that may occur; None for numbers, [] for any
    Attributes (complete after the iteration):
        lines: without the header
        malformed: how many of them
        progress: a Progress, for the caller to close
    Raises:
        InputError: a column is missing, a label is unknown, a test file has a malformed line, or too many are malformed
    """

    def __init__(self, path, task, split, labels):
        self.path, self.test, self.labels = path, is_test(split), labels
        self.lines = self.malformed = 0
        self.progress = Progress(path, os.path.getsize(path))
        self.first = None
        self.has_header = self.test or task.header is None
        self.columns = read_header(path) if self.has_header else task.header
        names = list(task.sentences)
        if not self.test:
            names.append(task.label)
        elif task.index:
            names.append(task.index)
        missing = [name for name in names if name not in self.columns]
        if missing:
            kind = "sentence pairs" if len(task.sentences) == 2 else "single sentences"
            raise InputError(
                f"{path}: no column {', '.join(missing)} among {', '.join(self.columns)}; {task.name} is a task of"
                f" {kind}, with the columns {', '.join(names)}; give a file of that form, with a header"
            )
        self.places = [self.columns.index(name) for name in names]
        self.counted = self.test and not task.index

    def __iter__(self):
        lines = enumerate(read_lines([self.path], self.progress), 1)
        for number, line in islice(lines, int(self.has_header), None):
            self.lines += 1
            example = self.parse(number, line)
            if example:
                yield example
        if self.malformed > MAXIMUM_MALFORMED * self.lines:
            raise InputError(
                f"{self.path}: {self.malformed:,} of {self.lines:,} lines are malformed (the first: {self.first}), at"
                f" most {MAXIMUM_MALFORMED:.0%} may be; mend the file, or get it again"
            )
        if not self.lines:
            raise InputError(f"{self.path} holds no examples; expected one a line after the header; get the file again")

    def parse(self, number, line):
        """An example, or None where the line is malformed."""
        try:
            fields = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            return self.skip(number, "not UTF-8")
        if len(fields) != len(self.columns):
            return self.skip(number, f"{len(fields)} columns where there should be {len(self.columns)}")
        values = [fields[place] for place in self.places]
        if self.counted:
            return values, str(self.lines - 1)
        answer = values.pop().strip()
        if not answer:
            return self.skip(number, "no index" if self.test else "no label")
        if not self.test and self.labels is None and not is_number(answer):
            return self.skip(number, f"the label {answer!r} is not a number")
        if not self.test and self.labels and answer not in self.labels:
            raise InputError(
                f"{self.path}: line {number}: the label {answer!r} is not one of the task's, {', '.join(self.labels)};"
                " mend the line, or the training set if it is the first of its label, or say --regression for numbers"
            )
        if not answer.isprintable() or answer in FAIRSEQ_SPECIALS:
            return self.skip(number, f"{answer!r} cannot be a label in fairseq's dictionary")
        return values, answer

    def skip(self, number, why):
        problem = f"line {number}: {why}"
        if self.test:
            raise InputError(
                f"{self.path}: {problem}; every test example needs an answer: mend it, or get the file again"
            )
        self.malformed += 1
        self.first = self.first or problem
        if self.malformed <= NAMED:
            say(f"{self.path}: {problem}; skipped")


def is_number(text):
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# Writing -----------------------------------------------------------------------------------------------------------


def cut(sentences, max_tokens):
    """Shortens the longest sentence from its end until `<s> a </s>`, or `<s> a </s> </s> b </s>`, fits.

    Args:
        sentences: one or two lists of ids, without specials; changed in place
    Returns:
        whether they had to be cut
    """
    room = max_tokens - 2 * len(sentences)
    if sum(map(len, sentences)) <= room:
        return False
    while sum(map(len, sentences)) > room:
        max(sentences, key=len).pop()
    return True


def encode(processor, texts):
    """fairseq's ids of texts, without `</s>`."""
    encoded = processor.encode(texts, num_threads=cpu_count())
    return [[UNKNOWN if piece == 0 else piece + 1 for piece in ids] for ids in encoded]


def write_inputs(table, inputs, folder, split, processor, max_tokens):
    """Writes a split's sentences as fairseq-preprocess would, `</s>` after each.

    Args:
        table: Table
        inputs: `input0`, or `input0` and `input1`
    Returns:
        labels or indices as text, counts for the record, and a sample: (number of the example, its sentences)
    """
    symbols = processor.get_piece_size() + 1  # fairseq has `<pad>` besides
    builders = [make_builder(os.path.join(folder, name, split + ".bin"), "mmap", symbols) for name in inputs]
    answers, sample, shortened, tokens, unknown = [], [], 0, 0, Counter()
    examples = iter(table)
    for batch in iter(lambda: list(islice(examples, BATCH)), []):
        columns = [encode(processor, list(texts)) for texts in zip(*(sentences for sentences, _ in batch))]
        for number, (texts, answer) in enumerate(batch):
            ids = [column[number] for column in columns]
            if cut(ids, max_tokens):
                shortened += 1
            elif number < SAMPLE:
                sample.append((len(answers), texts))
            answers.append(answer)
            for builder, text, sentence in zip(builders, texts, ids):
                tokens += len(sentence) + 1
                if UNKNOWN in sentence:
                    pieces = processor.encode(text, out_type=str)
                    unknown.update(piece for piece, number in zip(pieces, sentence) if number == UNKNOWN)
                builder.add_item(torch.tensor(sentence + [EOS]))
    table.progress.close()
    for builder, name in zip(builders, inputs):
        builder.finalize(os.path.join(folder, name, split + ".idx"))
    counts = {
        "file": os.path.basename(table.path),
        "lines": table.lines,
        "examples": len(answers),
        "malformed": table.malformed,
        "cut": shortened,
        "tokens": tokens,
        "unknown": sum(unknown.values()),
        "unknown_pieces": unknown.most_common(UNKNOWN_PIECES),
    }
    return answers, counts, sample


def write_answers(answers, labels, folder, split):
    """Writes what belongs to the sentences: `test.index`, or the labels as sentence_prediction reads them."""
    path = os.path.join(folder, split + ".index" if is_test(split) else f"label/{split}.label")
    if is_test(split) or labels is None:
        with open(path, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(answer + "\n" for answer in answers)
        return
    prefix, first = os.path.join(folder, "label", split), Dictionary().nspecial
    ids = {label: first + number for number, label in enumerate(labels)}
    builder = make_builder(prefix + ".bin", "mmap", first + len(labels))
    for answer in answers:
        builder.add_item(torch.tensor([ids[answer], EOS]))
    builder.finalize(prefix + ".idx")


def check_split(folder, inputs, split, counts, sample, processor):
    """Reads a split back.

    Raises:
        InputError: examples or tokens are missing, or a sentence does not spell its normalised text
    """
    pieces = all_pieces(processor)
    columns = [MMapIndexedDataset(os.path.join(folder, name, split)) for name in inputs]
    tokens = sum(int(column.sizes.sum()) for column in columns)
    if tokens != counts["tokens"] or any(len(column) != counts["examples"] for column in columns):
        raise InputError(f"{folder}: {split} was not written whole; check the disk and run again")
    for number, texts in sample:
        for column, text in zip(columns, texts):
            ids = column[number].tolist()
            if ids[-1] != EOS or not spells(spelled(processor, pieces, ids[:-1]), processor.normalize(text)):
                raise InputError(
                    f"{counts['file']}: example {number + 1} does not decode to its text {text[:200]!r}; check the disk"
                    " and the SentencePiece model, and run again"
                )


def report(task, split, counts, answers, labels):
    """Prints the numbers of a split; warns of those that are odd."""
    words = counts["tokens"] - counts["examples"] * len(task.sentences)
    rate = counts["unknown"] / max(words, 1)
    line = (
        f"{task.name} {split} ({counts['file']}): {counts['examples']:,} examples, {counts['malformed']:,} malformed,"
        f" {counts['cut']:,} cut, {rate:.2%} of the tokens unknown"
    )
    if is_test(split):
        print(line)
    elif labels is None:
        values = sorted(map(float, answers))
        print(f"{line}; labels from {values[0]:g} to {values[-1]:g}, median {values[len(values) // 2]:g}")
    else:
        times = Counter(answers)
        print(line + "; labels " + ", ".join(f"{label} {times[label] / len(answers):.1%}" for label in labels))
    published = task.published.get(split, counts["examples"])
    if published != counts["examples"]:
        say(f"warning: {task.name} {split}: {counts['examples']:,} examples; GLUE was published with {published:,}")
    if rate > MAXIMUM_UNKNOWN_RATE:
        commonest = "  ".join(f"{visible(piece)} ({times:,})" for piece, times in counts["unknown_pieces"])
        say(f"warning: {task.name} {split}: {rate:.1%} of the tokens are not in the vocabulary, most often {commonest}")


def write_task(task, source, dest, vocabulary, processor, max_tokens, inputs):
    """Prepares a task.

    Args:
        source: folder with its files
        dest: folder to make
        inputs: for the record
    """
    names = ["input0", "input1"][: len(task.sentences)]
    labels, splits = task.labels, {}
    with complete_folder(dest) as folder:
        for name in [*names, "label"]:
            os.mkdir(os.path.join(folder, name))
        for name in ("sentencepiece.model", "dict.txt"):
            shutil.copyfile(os.path.join(vocabulary, name), os.path.join(folder, name))
        for name in names:
            shutil.copyfile(os.path.join(vocabulary, "dict.txt"), os.path.join(folder, name, "dict.txt"))
        for split, file in files_of(task, source).items():
            table = Table(os.path.join(source, file), task, split, labels)
            answers, counts, sample = write_inputs(table, names, folder, split, processor, max_tokens)
            if labels == []:
                labels = sorted(set(answers))
                if len(labels) < 2:
                    raise InputError(f"{table.path}: every label is {labels[0]!r}; expected two labels or more")
            write_answers(answers, labels, folder, split)
            check_split(folder, names, split, counts, sample, processor)
            report(task, split, counts, answers, labels)
            splits[split] = counts
        if labels is not None:
            with open(os.path.join(folder, "label", "dict.txt"), "w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{label} 1\n" for label in labels)
        record = {
            "task": task.name,
            "pair": len(names) == 2,
            "labels": labels,
            "max_tokens": max_tokens,
            "splits": splits,
            "inputs": inputs,
        }
        with open(os.path.join(folder, RECORD), "w", encoding="utf-8") as stream:
            json.dump(record, stream, indent=1, ensure_ascii=False)
            stream.write("\n")


# What is asked for -------------------------------------------------------------------------------------------------


def files_of(task, source):
    """The file of each split; test files may be missing."""
    return {
        split: file
        for split, file in task.files.items()
        if not is_test(split) or os.path.exists(os.path.join(source, file))
    }


def find_tasks(names, source, regression):
    """The Task of each name; all of GLUE's that are in the folder `source` where there are no names.

    Raises:
        FileNotFoundError: a folder or file is missing
        InputError: nothing to prepare, a name is not one, or --regression does not fit
    """
    if not os.path.isdir(source):
        raise FileNotFoundError(f"--input: {source} is not a folder; expected one with folders CoLA, SST-2 and so on")
    if not names:
        names = [name for name in GLUE if os.path.isdir(os.path.join(source, name))]
        absent = [name for name in GLUE if name not in names]
        if not names:
            found = sorted(name for name in os.listdir(source) if os.path.isdir(os.path.join(source, name)))
            raise InputError(
                f"--input: {source} has none of the folders {', '.join(GLUE)}, but {', '.join(found) or 'none at all'};"
                " name tasks of your own with --task"
            )
        if absent:
            say(f"not in {source}: {', '.join(absent)}")
    tasks = []
    for name in dict.fromkeys(names):
        folder = os.path.join(source, name)
        if os.path.basename(name) != name or name.startswith(".") or not os.path.isdir(folder):
            raise InputError(
                f"--task {name}: {source} has no folder of that name; expected one of {', '.join(GLUE)}, or of your own"
            )
        files = GLUE[name].files if name in GLUE else FILES
        check_files([os.path.join(folder, file) for split, file in files.items() if not is_test(split)], "--input")
        tasks.append(GLUE.get(name) or own_task(name, os.path.join(folder, FILES["train"]), regression))
        there = files_of(tasks[-1], folder)
        check_files([os.path.join(folder, file) for file in there.values()], "--input")
        absent = [file for split, file in files.items() if split not in there]
        if absent:
            say(f"{folder} has no {' and no '.join(absent)}: there will be nothing to predict")
    wrong = [task.name for task in tasks if task.name in GLUE and task.labels]
    if regression and wrong:
        raise InputError(f"--regression: the labels of {', '.join(wrong)} are classes; give it with tasks of your own")
    return tasks


def identity(path):
    """Name, size and hash of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"file": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}


def is_done(task, dest, max_tokens, inputs):
    """Whether `dest` holds the task, of the same inputs and options.

    Raises:
        InputError: it holds something else
    """
    if not os.path.exists(dest):
        return False
    try:
        with open(os.path.join(dest, RECORD), encoding="utf-8") as stream:
            there = json.load(stream)
    except FileNotFoundError:
        raise InputError(f"--dest: {dest} holds no {RECORD}, so this program did not write it; give another --dest")
    different = []
    if there["max_tokens"] != max_tokens:
        different.append(f"--max-tokens was {there['max_tokens']} and is {max_tokens}")
    if (there["labels"] is None) != (task.labels is None):
        different.append("--regression was " + ("given and is not" if there["labels"] is None else "not given and is"))
    was, now = ({entry["file"]: entry for entry in entries} for entries in (there["inputs"], inputs))
    different += [f"{file} is another" for file in {**was, **now} if was.get(file) != now.get(file)]
    if different:
        raise InputError(
            f"--dest: {dest} was made of other inputs or options: {'; '.join(different)}; give another --dest,"
            " or remove it"
        )
    return True


def parse_args():
    parser = Parser(__doc__)
    parser.prog = "glue.sh"
    parser.add_argument("--input", required=True, metavar="DIR", help="folder of the official distribution")
    parser.add_argument("--vocabulary", required=True, metavar="DIR", help="data of the pretraining run")
    parser.add_argument("--dest", required=True, metavar="DIR", help="folder to write to, a folder in it for each task")
    parser.add_argument(
        "--task",
        nargs="+",
        metavar="NAME",
        help="folders in --input; GLUE's eight, as far as they are there, if not given",
    )
    parser.add_argument("--regression", action="store_true", help="labels of your own tasks are numbers")
    parser.add_argument("--max-tokens", type=positive, default=512, metavar="N", help="longer examples are cut")
    parser.add_argument("--checkpoint", metavar="FILE", help="compare the vocabulary with this checkpoint's")
    args = parser.parse_args()
    if args.max_tokens < MINIMUM_TOKENS:
        parser.error(
            f"--max-tokens {args.max_tokens}: expected {MINIMUM_TOKENS} or more: a pair takes four besides its text"
        )
    return args


def main():
    args = parse_args()
    processor = load_vocabulary(args.vocabulary)
    if args.checkpoint:
        compare_with_checkpoint(args.vocabulary, args.checkpoint, args.max_tokens)
    tasks = find_tasks(args.task, args.input, args.regression)
    os.makedirs(args.dest, exist_ok=True)
    remove_abandoned(args.dest)
    for task in tasks:
        source, dest = os.path.join(args.input, task.name), os.path.join(args.dest, task.name)
        paths = [os.path.join(source, file) for file in files_of(task, source).values()]
        inputs = [identity(path) for path in [*paths, os.path.join(args.vocabulary, "sentencepiece.model")]]
        if is_done(task, dest, args.max_tokens, inputs):
            say(f"{dest} is there already, of the same files and options")
        else:
            write_task(task, source, dest, args.vocabulary, processor, args.max_tokens, inputs)


if __name__ == "__main__":
    run(main, "glue.sh")
