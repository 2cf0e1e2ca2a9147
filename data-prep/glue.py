#!/usr/bin/env python3
"""Turns GLUE's official files, or tasks of your own, into data for fairseq's sentence_prediction.

INPUT/TASK/train.tsv, dev.tsv and test.tsv become DEST/TASK. The files of your own tasks have a header with `sentence`,
or `sentence1` and `sentence2`, and `label`. Running the same command again skips finished tasks.
"""

import os
import shutil

from pretrained import UsageError, compare_with_checkpoint

# pretrained.py imports the plugin, which must come before fairseq: it silences fairseq, and explains if it is broken.
# isort: split
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder

from basics import (
    InputError,
    Parser,
    atomic_folder,
    check_same,
    cpu_count,
    data_folder,
    file_identity,
    finished_record,
    positive,
    run,
    save_json,
    say,
)
from binarized import EOS, UNKNOWN, fairseq_ids
from check import MAXIMUM_UNKNOWN_RATE
from glue_files import files_of, find_tasks, is_test, read_table
from write_dict import load_vocabulary

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


def write_inputs(examples, inputs, folder, split, processor, max_tokens):
    """Writes the sentences of a split as fairseq-preprocess would, each followed by `</s>`.

    Args:
        examples: list of (sentences, label or index)
        inputs: `input0`, or `input0` and `input1`
    Returns:
        counts: for the record
    """
    symbols = processor.get_piece_size() + 1  # fairseq's dictionary also has `<pad>`
    builders = [make_builder(os.path.join(folder, name, split + ".bin"), "mmap", symbols) for name in inputs]
    columns = zip(*(sentences for sentences, _ in examples))
    encoded = [processor.encode(list(sentences), num_threads=cpu_count()) for sentences in columns]
    counts = {"examples": len(examples), "cut": 0, "tokens": 0, "unknown": 0}
    for pieces in zip(*encoded):
        sentences = list(map(fairseq_ids, pieces))
        counts["cut"] += cut(sentences, max_tokens)
        for builder, ids in zip(builders, sentences):
            counts["tokens"] += len(ids) + 1
            counts["unknown"] += ids.count(UNKNOWN)
            builder.add_item(torch.tensor(ids + [EOS]))
    for builder, name in zip(builders, inputs):
        builder.finalize(os.path.join(folder, name, split + ".idx"))
    return counts


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
            path = os.path.join(source, file)
            examples, malformed = read_table(path, task, split, labels)
            counts = write_inputs(examples, names, folder, split, processor, max_tokens)
            splits[split] = {"file": file, "lines": len(examples) + malformed, "malformed": malformed, **counts}
            answers = [answer for _, answer in examples]
            if labels == []:
                labels = sorted(set(answers))
                if len(labels) < 2:
                    raise InputError(f"{path}: every label is {labels[0]!r}; expected two labels or more")
            write_answers(answers, labels, folder, split)
            rate = counts["unknown"] / max(counts["tokens"] - len(examples) * len(names), 1)
            print(
                f"{task.name} {split} ({file}): {len(examples):,} examples, {malformed:,} malformed,"
                f" {counts['cut']:,} cut, {rate:.2%} of the tokens unknown"
            )
            if rate > MAXIMUM_UNKNOWN_RATE:
                say(f"warning: {task.name} {split}: {rate:.1%} of the tokens are not in the vocabulary")
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
    """Whether `dest` contains the task, prepared from the same inputs with the same options, and nothing else."""

    def made_from(max_tokens, labels, inputs):
        files = {identity["file"]: identity for identity in inputs}
        return {"max_tokens": max_tokens, "regression": labels is None, **files}

    there = finished_record(dest, RECORD)
    if there is not None:
        was = made_from(there["max_tokens"], there["labels"], there["inputs"])
        check_same(dest, was, made_from(max_tokens, task.labels, inputs))
    return there is not None


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
    return parser.parse_args()


def main():
    args = parse_args()
    processor = load_vocabulary(args.vocabulary)
    if args.checkpoint:
        compare_with_checkpoint(args.vocabulary, args.checkpoint, args.max_tokens)
    tasks = find_tasks(args.task, args.input, args.regression)
    os.makedirs(args.dest, exist_ok=True)
    for task in tasks:
        source, dest = os.path.join(args.input, task.name), os.path.join(args.dest, task.name)
        inputs = identities(task, source, args.vocabulary)
        if is_done(task, dest, args.max_tokens, inputs):
            say(f"{dest} is finished already, from the same files and with the same options")
        else:
            write_task(task, source, dest, args.vocabulary, processor, args.max_tokens, inputs)


if __name__ == "__main__":
    run(main, "glue.sh", UsageError)
