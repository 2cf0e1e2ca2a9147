#!/usr/bin/env python3
"""Turns GLUE's official files, or tasks of your own, into data for fairseq's sentence_prediction.

INPUT/TASK/train.tsv, dev.tsv and test.tsv become DEST/TASK. The files of your own tasks have a header with `sentence`,
or `sentence1` and `sentence2`, and `label`. Running the same command again skips finished tasks.
"""

import os
import shutil
from itertools import islice

from pretrained import compare_with_checkpoint

# pretrained.py imports the plugin, which must come before fairseq: it silences fairseq, and explains if it is broken.
# isort: split
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder

from basics import (
    InputError,
    Parser,
    atomic_folder,
    cpu_count,
    data_folder,
    file_identity,
    load_json,
    positive,
    refuse_different,
    remove_abandoned,
    run,
    save_json,
    say,
)
from binarized import EOS, UNKNOWN
from check import MAXIMUM_UNKNOWN_RATE
from glue_files import Table, files_of, find_tasks, is_test
from write_dict import load_vocabulary

BATCH = 4096  # examples encoded at a time
MINIMUM_TOKENS = 6  # `<s> a </s> </s> b </s>` with one token of each sentence
RECORD = "task.json"


def cut(sentences, max_tokens):
    """Removes tokens from the end of the longest sentence until `<s> a </s>`, or `<s> a </s> </s> b </s>`, fits.

    Args:
        sentences: one or two lists of ids, without special symbols; changed in place
        max_tokens: special symbols included
    Returns:
        whether anything was cut
    """
    room = max_tokens - 2 * len(sentences)
    if sum(map(len, sentences)) <= room:
        return False
    while sum(map(len, sentences)) > room:
        max(sentences, key=len).pop()
    return True


def encode(processor, texts):
    """The fairseq ids of each text, without `</s>`."""
    encoded = processor.encode(texts, num_threads=cpu_count())
    return [[UNKNOWN if piece == 0 else piece + 1 for piece in ids] for ids in encoded]


def write_inputs(table, inputs, folder, split, processor, max_tokens):
    """Writes the sentences of a split as fairseq-preprocess would, each followed by `</s>`.

    Args:
        table: Table
        inputs: `input0`, or `input0` and `input1`
    Returns:
        answers: labels or indices as text
        counts: for the record
    """
    symbols = processor.get_piece_size() + 1  # fairseq's dictionary also has `<pad>`
    builders = [make_builder(os.path.join(folder, name, split + ".bin"), "mmap", symbols) for name in inputs]
    answers, shortened, tokens, unknown = [], 0, 0, 0
    examples = iter(table)
    for batch in iter(lambda: list(islice(examples, BATCH)), []):
        columns = [encode(processor, list(texts)) for texts in zip(*(sentences for sentences, _ in batch))]
        for number, (_, answer) in enumerate(batch):
            ids = [column[number] for column in columns]
            shortened += cut(ids, max_tokens)
            answers.append(answer)
            for builder, sentence in zip(builders, ids):
                tokens += len(sentence) + 1
                unknown += sentence.count(UNKNOWN)
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
        "unknown": unknown,
    }
    return answers, counts


def write_answers(answers, labels, folder, split):
    """Writes the labels in the form that sentence_prediction reads, or the indices of test examples."""
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


def report(task, split, counts):
    """Prints the counts of a split, and a warning about too many unknown tokens."""
    words = counts["tokens"] - counts["examples"] * len(task.sentences)
    rate = counts["unknown"] / max(words, 1)
    print(
        f"{task.name} {split} ({counts['file']}): {counts['examples']:,} examples, {counts['malformed']:,} malformed,"
        f" {counts['cut']:,} cut, {rate:.2%} of the tokens unknown"
    )
    if rate > MAXIMUM_UNKNOWN_RATE:
        say(f"warning: {task.name} {split}: {rate:.1%} of the tokens are not in the vocabulary")


def write_task(task, source, dest, vocabulary, processor, max_tokens, inputs):
    """Prepares a task.

    Args:
        source: folder with its files
        dest: folder to create
        vocabulary, processor: the pretraining run's folder, and its SentencePiece model
        inputs: identities of the files, for the record
    """
    names = ["input0", "input1"][: len(task.sentences)]
    labels, splits = task.labels, {}
    with atomic_folder(dest) as folder:
        for name in [*names, "label"]:
            os.mkdir(os.path.join(folder, name))
        for name in ("sentencepiece.model", "dict.txt"):
            shutil.copyfile(os.path.join(vocabulary, name), os.path.join(folder, name))
        for name in names:
            shutil.copyfile(os.path.join(vocabulary, "dict.txt"), os.path.join(folder, name, "dict.txt"))
        for split, file in files_of(task.files, source).items():
            table = Table(os.path.join(source, file), task, split, labels)
            answers, counts = write_inputs(table, names, folder, split, processor, max_tokens)
            if labels == []:
                labels = sorted(set(answers))
                if len(labels) < 2:
                    raise InputError(f"{table.path}: every label is {labels[0]!r}; expected two labels or more")
            write_answers(answers, labels, folder, split)
            report(task, split, counts)
            splits[split] = counts
        if identities(task, source, vocabulary) != inputs:
            raise InputError(f"{source}: a file changed while it was being read; run again when all are complete")
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
        save_json(record, os.path.join(folder, RECORD))


def identities(task, source, vocabulary):
    """Names, sizes and SHA-256 of the files that a prepared task depends on."""
    paths = [os.path.join(source, file) for file in files_of(task.files, source).values()]
    return [file_identity(path) for path in [*paths, os.path.join(vocabulary, "sentencepiece.model")]]


def is_done(task, dest, max_tokens, inputs):
    """Whether `dest` contains the task, prepared from the same inputs with the same options.

    Raises:
        InputError: it contains something else, or its record is damaged
    """
    if not os.path.exists(dest):
        return False
    there = load_json(
        os.path.join(dest, RECORD), ("labels", "max_tokens", "inputs"), f"remove {dest} and run glue.sh again"
    )
    if there is None:
        raise InputError(f"--dest: {dest} has no {RECORD}, so this program did not write it; choose another --dest")
    different = []
    if there["max_tokens"] != max_tokens:
        different.append(f"--max-tokens was {there['max_tokens']} and is {max_tokens}")
    if (there["labels"] is None) != (task.labels is None):
        different.append("--regression was " + ("given and is not" if there["labels"] is None else "not given and is"))
    was, now = ({entry["file"]: entry for entry in entries} for entries in (there["inputs"], inputs))
    different += [f"{file} differs" for file in {**was, **now} if was.get(file) != now.get(file)]
    refuse_different(dest, different)
    return True


def parse_args():
    parser = Parser(__doc__)
    parser.prog = "glue.sh"
    parser.add_argument("--input", required=True, metavar="DIR", help="folder of GLUE's official files, or of your own")
    parser.add_argument("--vocabulary", required=True, metavar="DIR", help="data folder of the pretraining run")
    parser.add_argument(
        "--dest",
        required=True,
        type=data_folder,
        metavar="DIR",
        help="folder to write to; each task gets a subfolder",
    )
    parser.add_argument(
        "--task",
        nargs="+",
        metavar="NAME",
        help="folders in --input; if not given, those of GLUE's eight tasks that exist",
    )
    parser.add_argument("--regression", action="store_true", help="labels of your own tasks are numbers")
    parser.add_argument("--max-tokens", type=positive, default=512, metavar="N", help="longer examples are cut")
    parser.add_argument("--checkpoint", metavar="FILE", help="check that vocabulary and positions suit this checkpoint")
    args = parser.parse_args()
    if args.max_tokens < MINIMUM_TOKENS:
        parser.error(
            f"--max-tokens {args.max_tokens}: expected {MINIMUM_TOKENS} or more: a pair has four special symbols"
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
        inputs = identities(task, source, args.vocabulary)
        if is_done(task, dest, args.max_tokens, inputs):
            say(f"{dest} is finished already, from the same files and with the same options")
        else:
            write_task(task, source, dest, args.vocabulary, processor, args.max_tokens, inputs)


if __name__ == "__main__":
    run(main, "glue.sh")
