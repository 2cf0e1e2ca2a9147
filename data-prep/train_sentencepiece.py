#!/usr/bin/env python3
"""Trains a SentencePiece model on a random sample of lines; lowercasing, if any, is part of the model."""

import ctypes
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from itertools import islice
from math import exp, floor, log

import sentencepiece

from command_line import InputError, Parser, Progress, positive, run, say
from files import partial_name
from raw_text import check_files, not_utf8, read_lines

# SentencePiece sums floats per thread: a fixed number makes the model the same on every machine.
THREADS = 16
# As ALBERT's and T5's vocabularies; SentencePiece's own 0.9995 loses figures and signs of plain English.
CHARACTER_COVERAGE = 0.99995
SEED = 1
SAMPLE_LINES = 1000000


def sample_lines(paths, count):
    """`count` lines (bytes) drawn without replacement from those that are not blank, in one pass.

    Algorithm L of Li, "Reservoir-Sampling Algorithms of Time Complexity O(n(1 + log(N/n)))", 1994.
    """
    progress = Progress("sample lines", sum(map(os.path.getsize, paths)))
    lines = (line for line in read_lines(paths, progress) if line and not line.isspace())
    sample = list(islice(lines, count))
    rng = random.Random(SEED)
    weight = exp(log(1 - rng.random()) / count)
    while True:
        skip = floor(log(1 - rng.random()) / log(1 - weight)) if weight > 1e-300 else 1 << 62
        line = next(islice(lines, min(skip, 1 << 62), None), None)
        if line is None:
            progress.close()
            return sample
        sample[rng.randrange(count)] = line
        weight *= exp(log(1 - rng.random()) / count)


def train(paths, model, log_file, vocab_size, model_type, lowercase, count):
    """Writes a SentencePiece model with ids 0 to 2 for `<unk> <s> </s>` and SentencePiece's log.

    Args:
        paths: text files; model, log_file: where to write; the model appears only when it is complete
        vocab_size: SentencePiece's vocab_size, those three included
        model_type: `bpe` or `unigram`
        lowercase: normalise with `nmt_nfkc_cf`, else `nmt_nfkc`
        count: lines to sample
    Raises:
        InputError: no text, not UTF-8, or a vocabulary that the text cannot fill or that is too small for its characters
    """
    sample = sample_lines(paths, count)
    try:
        # Python's split also takes what SentencePiece keeps, U+0085: a piece with it would be cut in two by fairseq.
        sample = [" ".join(line.decode("utf-8").split()) for line in sample]
    except UnicodeDecodeError:
        raise not_utf8(paths)
    if not any(sample):
        raise InputError(f"no text in {', '.join(paths)}; expected lines that are not blank")
    say(f"train SentencePiece: {len(sample):,} lines, {vocab_size:,} pieces, {model_type}")
    options = dict(
        vocab_size=vocab_size,
        model_type=model_type,
        normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
        max_sentence_length=1 << 30,  # else longer lines than 4,192 bytes are left out
        character_coverage=CHARACTER_COVERAGE,
        num_threads=THREADS,
    )
    start = told = time.time()
    log = partial_name(log_file)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=train_in_child, args=(sample, model, log, options, sender), daemon=True)
    process.start()
    sender.close()
    while process.is_alive():
        process.join(0.2)
        if time.time() - told > 10:
            told = time.time()
            say(f"train SentencePiece: {told - start:.0f} s{pieces_so_far(log)}")
    try:
        message = receiver.recv()
    except EOFError:
        message = "it was killed (out of memory? lower --sample-lines)"
    os.replace(log, log_file)
    if message:
        raise InputError(explain(message, vocab_size, log_file))
    say(f"train SentencePiece: {time.time() - start:.1f} s")


def train_in_child(sample, model, log_file, options, sender):
    """SentencePiece writes pages to stderr and holds the interpreter: a process of its own has neither problem."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    log_descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log_descriptor, 1)
    os.dup2(log_descriptor, 2)
    partial = partial_name(model)
    try:
        with open(partial, "wb") as writer:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sample), model_writer=writer, **options)
        os.replace(partial, model)
        sender.send("")
    except Exception as error:
        os.remove(partial)
        sender.send(str(error) or repr(error))


def end_with_parent():
    """Asks Linux to end this process when its parent is killed: training listens to nobody."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def pieces_so_far(log_file):
    """Reads BPE's log: it names the number of merges made."""
    with open(log_file, errors="replace") as stream:
        sizes = re.findall(r" size=(\d+)", stream.read())
    return f", {sizes[-1]} pieces" if sizes else ""


def explain(message, vocab_size, log_file):
    """One sentence for SentencePiece's own message."""
    too_high = re.search(r"value <= (\d+)", message)
    if too_high:
        return (
            f"--vocab-size {vocab_size} is more than this text can fill; SentencePiece suggests at most"
            f" {too_high.group(1)}"
        )
    too_low = re.search(r"required_chars. \d+ vs (\d+)", message)
    if too_low:
        return f"--vocab-size {vocab_size} is less than this text's characters need; give at least {too_low.group(1)}"
    return f"SentencePiece failed: {' '.join(message.split())}; its log is {log_file}"


def main():
    parser = Parser(__doc__)
    parser.add_argument("--input", nargs="+", required=True, metavar="FILE", help="text files, plain or gzip")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="the model to write; its log goes beside it, with .log added"
    )
    add_options(parser, required=True)
    args = parser.parse_args()
    check_files(args.input, "--input")
    train(
        args.input,
        args.output,
        args.output + ".log",
        args.vocab_size,
        args.model_type or "bpe",
        args.lowercase,
        args.sample_lines or SAMPLE_LINES,
    )


def add_options(parser, required=False):
    """The options of a vocabulary, here and in prepare.py."""
    parser.add_argument(
        "--vocab-size", type=positive, required=required, metavar="N", help="SentencePiece's vocab_size"
    )
    parser.add_argument("--model-type", choices=["bpe", "unigram"], help="kind of model (bpe if not given)")
    parser.add_argument("--lowercase", action="store_true", help="the model lowercases what it reads (nmt_nfkc_cf)")
    parser.add_argument(
        "--sample-lines",
        type=positive,
        metavar="N",
        help=f"train the model on this many lines, drawn at random ({SAMPLE_LINES:,} if not given)",
    )


if __name__ == "__main__":
    run(main)
