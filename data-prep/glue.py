#!/usr/bin/env python3
"""Turns GLUE's official files, or tasks of your own, into data for fairseq's sentence_prediction.

INPUT/TASK/train.tsv, dev.tsv and test.tsv become DEST/TASK. The files of your own tasks have a header with `sentence`,
or `sentence1` and `sentence2`, and `label`. Running the same command again skips finished tasks.
"""

import os
import shutil
from dataclasses import asdict, replace

import command_line
from pretrained import compare_with_checkpoint

# pretrained.py imports the plugin, which must come before fairseq: it silences fairseq, and explains if it is broken.
# isort: split
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import make_builder

from binarized import EOS, UNKNOWN, fairseq_ids
from check import MAXIMUM_UNKNOWN_RATE
from command_line import CPUS, positive, say
from glue_files import files_of, find_tasks, is_test, read_table
from maelm_fairseq.base.errors import UsageError, run
from maelm_fairseq.base.files import atomic_folder, save_json
from maelm_fairseq.base.provenance import file_identity
from pieces import VOCABULARY, load_vocabulary
from records import Identity, TaskRecord, finished

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
    encoded = [processor.encode(list(sentences), num_threads=CPUS) for sentences in columns]
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


def write_task(task, source, dest, vocabulary, processor, record):
    """Prepares a task.

    Args:
        source: folder with its files
        dest: folder to create
        vocabulary, processor: the pretraining run's folder, and its SentencePiece model
        record: :class:`records.TaskRecord`, to which labels and splits are added
    """
    names = ["input0", "input1"][: len(task.sentences)]
    labels = task.labels
    with atomic_folder(dest) as folder:
        for name in [*names, "label"]:
            os.mkdir(os.path.join(folder, name))
        for name in VOCABULARY:
            shutil.copyfile(os.path.join(vocabulary, name), os.path.join(folder, name))
        for name in names:
            shutil.copyfile(os.path.join(vocabulary, "dict.txt"), os.path.join(folder, name, "dict.txt"))
        for split, file in files_of(task.files, source).items():
            path = os.path.join(source, file)
            examples, malformed = read_table(path, task, split, labels)
            counts = write_inputs(examples, names, folder, split, processor, record.max_tokens)
            record.splits[split] = {"file": file, "lines": len(examples) + malformed, "malformed": malformed, **counts}
            answers = [answer for _, answer in examples]
            if labels == []:
                labels = sorted(set(answers))
                if len(labels) < 2:
                    raise UsageError(f"{path}: every label is {labels[0]!r}; expected two labels or more")
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
        save_json(asdict(replace(record, labels=labels)), os.path.join(folder, RECORD))


def record_of(task, source, vocabulary, max_tokens):
    """The record of a task, without what is known once it is prepared."""
    paths = [os.path.join(source, file) for file in files_of(task.files, source).values()]
    inputs = [Identity(**file_identity(path)) for path in [*paths, os.path.join(vocabulary, "sentencepiece.model")]]
    return TaskRecord(task.name, len(task.sentences) == 2, task.labels, max_tokens, {}, inputs)


def parse_args():
    parser = command_line.parser(__doc__, "glue.sh")
    add, folder = parser.add_argument, command_line.data_folder
    add("--input", required=True, metavar="DIR", help="folder of GLUE's official files, or of your own")
    add("--vocabulary", required=True, metavar="DIR", help="data folder of the pretraining run")
    add("--dest", required=True, type=folder, metavar="DIR", help="folder to write to; each task gets a subfolder")
    names = "folders in --input; if not given, those of GLUE's eight tasks that exist"
    add("--task", nargs="+", metavar="NAME", help=names)
    add("--regression", action="store_true", help="labels of your own tasks are numbers")
    add("--max-tokens", type=positive, default=512, metavar="N", help="longer examples are cut")
    add("--checkpoint", metavar="FILE", help="check that vocabulary and positions suit this checkpoint")
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
        record = record_of(task, source, args.vocabulary, args.max_tokens)
        if not finished(dest, RECORD, record):
            write_task(task, source, dest, args.vocabulary, processor, record)


if __name__ == "__main__":
    run(main)
