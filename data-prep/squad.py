#!/usr/bin/env python3
"""Turns SQuAD 1.1 or 2.0 into windows for fairseq, in the vocabulary of a pretraining run.

A window is `<s> question </s> </s> part of the context </s>`. For train and valid, .bin and .idx contain the windows,
.span.bin and .span.idx the first and last token of the answer in each (0 and 0 if it is not there). dev.json, dict.txt
and sentencepiece.model are copies; squad.json contains inputs, options and counts. The counts are printed too.
"""

import os
import shutil

from pretrained import compare_with_checkpoint

# pretrained.py imports the plugin, which must come before fairseq: it silences fairseq, and explains if it is broken.
# isort: split
import torch
from fairseq.data import indexed_dataset

from basics import (
    InputError,
    Parser,
    Progress,
    atomic_folder,
    data_folder,
    file_identity,
    positive,
    refuse_different,
    remove_abandoned,
    run,
    save_json,
    say,
)
from maelm_fairseq.data.vocabulary import load_dictionary
from maelm_fairseq.engine.errors import UsageError
from maelm_fairseq.finetuning.squad import task as squad
from maelm_fairseq.finetuning.squad.questions import read_questions
from maelm_fairseq.finetuning.squad.text import SpanTokenizer, WindowSizes, place, windows
from write_dict import load_vocabulary

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


class Split:
    """Writes the windows of one file of questions, and counts them.

    Args:
        prefix: path without `.bin` and `.span.bin`
        vocabulary: number of symbols in the dictionary
        sizes: :class:`WindowSizes`
    """

    def __init__(self, prefix, vocabulary, sizes):
        self.sizes = sizes
        self.counts = dict.fromkeys(COUNTS, 0)
        self.examples = {}  # ids of the first questions in each count
        self.files = {}
        for ending, highest in [("", vocabulary), (".span", sizes.max_tokens)]:
            path = indexed_dataset.data_file_path(prefix + ending)
            self.files[prefix + ending] = indexed_dataset.make_builder(path, "mmap", highest)
        self.windows, self.spans = self.files.values()

    def count(self, what, question):
        self.counts[what] += 1
        examples = self.examples.setdefault(what, [])
        if question.id not in examples and len(examples) < SHOWN:
            examples.append(question.id)

    def add(self, question, question_pieces, context):
        """Adds the windows of a question, unless all its answers are misplaced."""
        self.counts["questions"] += 1
        self.counts["answerable"] += bool(question.answers)
        if len(question_pieces.tokens) > self.sizes.max_question:
            self.count("questions_cut", question)
        span = None
        if question.answers:
            places = [place(answer, question, context) for answer in question.answers]
            for _ in range(places.count(None)):
                self.count("answers_misplaced", question)
            for _ in range(places.count((None, False))):
                self.count("answers_invisible", question)
            places = [found for found in places if found and found[0]]
            if not places:
                self.count("questions_left_out", question)
                return
            span, exact = max(places, key=lambda found: found[1])  # the first exact one, otherwise the first
            if not exact:
                self.count("labels_widened", question)
        made = windows(question_pieces, context, self.sizes)
        labels = [window.label(span) for window in made]
        if span and not any(end for _, end in labels):
            self.count("answers_too_long", question)
        for window, label in zip(made, labels):
            self.windows.add_item(torch.from_numpy(window.tokens))
            self.spans.add_item(torch.tensor(label))
            self.counts["windows"] += 1
            self.counts["windows_without_answer"] += not label[1]

    def close(self):
        for prefix, builder in self.files.items():
            builder.finalize(indexed_dataset.index_file_path(prefix))


def write_split(questions, prefix, vocabulary, tokenizer, sizes):
    """Writes and returns the :class:`Split` of one file of questions."""
    split = Split(prefix, vocabulary, sizes)
    progress = Progress("encode " + os.path.basename(prefix), sum(len(q.context) + len(q.text) for q in questions))
    context = encoded = None
    done = 0
    for question in questions:
        if question.context != context:
            context, encoded = question.context, tokenizer.encode_context(question)
        split.add(question, tokenizer.encode(question.text), encoded)
        done += len(question.context) + len(question.text)
        progress.update(done, done)
    progress.close()
    split.close()
    if not split.counts["windows"]:
        name = {"train": "--train", "valid": "--dev"}[os.path.basename(prefix)]
        raise InputError(f"{name}: no question has a visible answer at its answer_start; correct answer_start")
    return split


def record_of(args):
    """The inputs and options that the prepared data depend on."""
    inputs = {
        "train": args.train,
        "dev": args.dev,
        "sentencepiece.model": os.path.join(args.vocabulary, "sentencepiece.model"),
        "dict.txt": os.path.join(args.vocabulary, "dict.txt"),
    }
    for name in ("train", "dev"):
        if not os.path.isfile(inputs[name]):
            raise InputError(f"--{name}: file {inputs[name]} does not exist; expected SQuAD's JSON; check the path")
    return {
        "format": squad.FORMAT,
        "inputs": {name: file_identity(path) for name, path in inputs.items()},
        "options": {"max_tokens": args.max_tokens, "stride": args.stride, "max_question": args.max_question},
    }


def is_done(dest, record):
    """Whether `dest` contains the data, prepared from the same inputs with the same options.

    Raises:
        InputError: it contains something else
    """
    if not os.path.exists(dest):
        return False
    there = sorted(os.listdir(dest))
    if not there:
        return False
    if squad.RECORD not in there:
        raise InputError(
            f"--dest: {dest} contains {there[0]} but no {squad.RECORD}; expected an empty folder; choose another"
        )
    try:
        found = squad.load_record(dest)
    except UsageError as error:
        raise InputError(f"--dest: {error}; or choose another folder") from None
    different = [
        f"{group} {name!r}"
        for group in ("inputs", "options")
        for name in record[group]
        if found[group].get(name) != record[group][name]
    ]
    refuse_different(dest, different and [", ".join(different) + " differ"])
    return True


def write(args, sizes, record, processor, folder):
    """Writes all files into a folder."""
    vocabulary = len(load_dictionary(args.vocabulary))
    questions = {"train": read_questions(args.train), "valid": read_questions(args.dev)}
    tokenizer = SpanTokenizer(processor)
    impossible = any(not question.answers for some in questions.values() for question in some)
    record = dict(record, version="2.0" if impossible else "1.1", counts={})
    for name, some in questions.items():
        split = write_split(some, os.path.join(folder, name), vocabulary, tokenizer, sizes)
        record["counts"][name] = split.counts
        for what, ids in split.examples.items():
            say(f"{name}: {split.counts[what]:,} {COUNTS[what]}, the first in {', '.join(ids)}")
    if record_of(args)["inputs"] != record["inputs"]:
        raise InputError("--train, --dev or --vocabulary: a file changed while it was being read; run again")
    shutil.copyfile(args.dev, os.path.join(folder, "dev.json"))
    for name in ("dict.txt", "sentencepiece.model"):
        shutil.copyfile(os.path.join(args.vocabulary, name), os.path.join(folder, name))
    save_json(record, os.path.join(folder, squad.RECORD))


def prepare(args):
    sizes = WindowSizes(args.max_tokens, args.stride, args.max_question)
    sizes.check()
    processor = load_vocabulary(args.vocabulary)
    record = record_of(args)
    if args.checkpoint:
        compare_with_checkpoint(args.vocabulary, args.checkpoint, args.max_tokens)
    dest = os.path.abspath(args.dest)
    if is_done(dest, record):
        say(f"{args.dest} is finished already")
    else:
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        remove_abandoned(os.path.dirname(dest))
        with atomic_folder(dest) as folder:
            write(args, sizes, record, processor, folder)
    record = squad.load_record(dest)
    print(f"SQuAD {record['version']}")
    for name in ["train", "valid"]:
        counts = record["counts"][name]
        for key, text in COUNTS.items():
            print(f"{name}: {counts.get(key, 0):,} {text}")  # earlier versions counted less


def main():
    parser = Parser(__doc__)
    parser.add_argument("--train", required=True, metavar="FILE", help="SQuAD's JSON to train on")
    parser.add_argument("--dev", required=True, metavar="FILE", help="SQuAD's JSON to evaluate on")
    parser.add_argument(
        "--vocabulary",
        required=True,
        metavar="DIR",
        help="data folder of the pretraining run, with sentencepiece.model and dict.txt",
    )
    parser.add_argument("--dest", required=True, type=data_folder, metavar="DIR", help="folder to write")
    parser.add_argument("--checkpoint", metavar="FILE", help="check that vocabulary and positions suit this checkpoint")
    parser.add_argument("--max-tokens", type=positive, default=384, metavar="N", help="maximum length of a window")
    parser.add_argument(
        "--stride",
        type=positive,
        default=128,
        metavar="N",
        help="tokens from the start of one window to the start of the next",
    )
    parser.add_argument("--max-question", type=positive, default=64, metavar="N", help="longer questions are cut")
    try:
        prepare(parser.parse_args())
    except UsageError as error:
        raise InputError(str(error)) from None


if __name__ == "__main__":
    run(main)
