#!/usr/bin/env python3
"""Turns SQuAD 1.1 or 2.0 into windows for fairseq, in the vocabulary of a pretraining run.

A window is `<s> question </s> </s> part of the context </s>`. For train and valid, .bin and .idx contain the windows,
.span.bin and .span.idx the first and last token of the answer in each (0 and 0 if it is not there). dev.json, dict.txt
and sentencepiece.model are copies; squad.json contains inputs, options and counts. The counts are printed too.
"""

import os
import shutil
from dataclasses import asdict, replace

import command_line
from pretrained import compare_with_checkpoint

# pretrained.py imports the plugin, which must come before fairseq: it silences fairseq, and explains if it is broken.
# isort: split
import torch
from fairseq.data import indexed_dataset

from command_line import positive, progress_bar, say
from maelm_fairseq.base.errors import UsageError, run
from maelm_fairseq.base.files import atomic_folder, save_json
from maelm_fairseq.base.provenance import file_identity
from maelm_fairseq.finetuning.squad import squad_task as squad
from maelm_fairseq.finetuning.squad.questions import read_questions
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, WindowSizes, place, windows
from maelm_fairseq.vocabulary import load_dictionary
from pieces import VOCABULARY, load_vocabulary
from raw_text import check_files
from records import SquadRecord, finished

SHOWN = 5  # ids of questions that are shown for each count
COUNTS = {
    "questions": "questions",
    "answerable": "of them with an answer",
    "questions_cut": "questions cut at --max-question pieces",
    "answers_misplaced": "answers whose text is not at answer_start",
    "answers_invisible": "answers of characters that SentencePiece removes, such as a zero-width space",
    "questions_left_out": "questions without windows: none of their answers is at answer_start and visible",
    "labels_widened": "labels wider than the answer, which begins or ends inside a word or number",
    "answers_too_long": "answers too long for any window",
    "windows": "windows",
    "windows_without_answer": "of them without the answer",
}


def span_of(question, context, ids):
    """The pieces of the context that answer a question: (first, last), or None if it has no usable answer.

    Args:
        context: the context's :class:`Pieces`
        found: {count: ids}, to which this question is added
    """
    places = [place(answer, question, context) for answer in question.answers]
    ids["answers_misplaced"] += [question.id] * places.count(None)
    ids["answers_invisible"] += [question.id] * places.count((None, False))
    places = [spot for spot in places if spot and spot[0]]
    if not places:
        return None
    span, exact = max(places, key=lambda spot: spot[1])  # the first exact one, otherwise the first
    if not exact:
        ids["labels_widened"].append(question.id)
    return span


def write_split(questions, prefix, vocabulary, tokenizer, sizes):
    """Writes the windows of one file of questions.

    Args:
        prefix: path without `.bin` and `.span.bin`
        vocabulary: number of symbols in the dictionary
        sizes: :class:`WindowSizes`
    Returns:
        counts: number for each of COUNTS
    """
    name = os.path.basename(prefix)
    builders = {
        path: indexed_dataset.make_builder(indexed_dataset.data_file_path(path), "mmap", highest)
        for path, highest in [(prefix, vocabulary), (prefix + ".span", sizes.max_tokens)]
    }
    ids = {count: [] for count in COUNTS}  # ids of questions
    context = pieces = None
    total = sum(len(question.context) + len(question.text) for question in questions)
    with progress_bar("encode " + name, total) as bar:
        for question in questions:
            bar.update(len(question.context) + len(question.text))
            if question.context != context:
                context, pieces = question.context, tokenizer.encode_context(question)
            text = tokenizer.encode(question.text)
            if len(text.tokens) > sizes.max_question:
                ids["questions_cut"].append(question.id)
            span = span_of(question, pieces, ids)
            if question.answers and not span:
                ids["questions_left_out"].append(question.id)
                continue
            labelled = [(window, window.label(span)) for window in windows(text, pieces, sizes)]
            without_answer = [label for _, label in labelled if label == (0, 0)]
            if span and len(without_answer) == len(labelled):
                ids["answers_too_long"].append(question.id)
            ids["windows"] += [question.id] * len(labelled)
            ids["windows_without_answer"] += [question.id] * len(without_answer)
            for window, label in labelled:
                for builder, item in zip(builders.values(), (window.tokens, label)):
                    builder.add_item(torch.tensor(item))
    for path, builder in builders.items():
        builder.finalize(indexed_dataset.index_file_path(path))
    if not ids["windows"]:
        option = {"train": "--train", "valid": "--dev"}[name]
        raise UsageError(f"{option}: no question has a visible answer at its answer_start; correct answer_start")
    for count in ("questions_cut", "answers_misplaced", "answers_invisible", "labels_widened", "answers_too_long"):
        first = list(dict.fromkeys(ids[count]))[:SHOWN]
        if first:
            say(f"{name}: {len(ids[count]):,} {COUNTS[count]}, the first in {', '.join(first)}")
    counts = {count: len(ids[count]) for count in ids}
    return dict(counts, questions=len(questions), answerable=sum(bool(question.answers) for question in questions))


def write(args, sizes, record, processor, folder):
    """Writes all files into a folder; returns the record, complete."""
    vocabulary = len(load_dictionary(args.vocabulary))
    questions = {"train": read_questions(args.train), "valid": read_questions(args.dev)}
    tokenizer = SpanTokenizer(processor)
    impossible = any(not question.answers for some in questions.values() for question in some)
    record = replace(record, version="2.0" if impossible else "1.1")
    for name, some in questions.items():
        record.counts[name] = write_split(some, os.path.join(folder, name), vocabulary, tokenizer, sizes)
    shutil.copyfile(args.dev, os.path.join(folder, "dev.json"))
    for name in VOCABULARY:
        shutil.copyfile(os.path.join(args.vocabulary, name), os.path.join(folder, name))
    save_json(asdict(record), os.path.join(folder, squad.RECORD))
    return record


def parse_args():
    parser = command_line.parser(__doc__, "squad.sh")
    add = parser.add_argument
    add("--train", required=True, metavar="FILE", help="SQuAD's JSON to train on")
    add("--dev", required=True, metavar="FILE", help="SQuAD's JSON to evaluate on")
    add("--vocabulary", required=True, metavar="DIR", help="data folder of the pretraining run")
    add("--dest", required=True, type=command_line.data_folder, metavar="DIR", help="folder to write")
    add("--checkpoint", metavar="FILE", help="check that vocabulary and positions suit this checkpoint")
    add("--max-tokens", type=positive, default=384, metavar="N", help="maximum length of a window")
    add("--stride", type=positive, default=128, metavar="N", help="tokens between the starts of two windows")
    add("--max-question", type=positive, default=64, metavar="N", help="longer questions are cut")
    return parser.parse_args()


def main():
    args = parse_args()
    sizes = WindowSizes(args.max_tokens, args.stride, args.max_question)
    sizes.check()
    processor = load_vocabulary(args.vocabulary)
    check_files([args.train], "--train")
    check_files([args.dev], "--dev")
    inputs = {"train": args.train, "dev": args.dev}
    inputs.update((name, os.path.join(args.vocabulary, name)) for name in VOCABULARY)
    identities = {name: file_identity(path) for name, path in inputs.items()}
    record = SquadRecord(squad.FORMAT, identities, asdict(sizes))
    if args.checkpoint:
        compare_with_checkpoint(args.vocabulary, args.checkpoint, args.max_tokens)
    there = finished(args.dest, squad.RECORD, record)
    if not there:
        with atomic_folder(args.dest) as folder:
            there = write(args, sizes, record, processor, folder)
    print(f"SQuAD {there.version}")
    for name, counts in there.counts.items():
        for key, number in counts.items():
            print(f"{name}: {number:,} {COUNTS.get(key, key)}")


if __name__ == "__main__":
    run(main)
