#!/usr/bin/env python3
"""Trains a SentencePiece model on a random sample of lines; the model itself lowercases if asked to."""

import ctypes
import multiprocessing
import os
import re
import signal
import sys
import time

import sentencepiece

from command_line import InputError, Parser, Progress, positive, run, say
from files import atomic_write, partial_name
from raw_text import check_files, check_unchanged, file_states, not_utf8, read_lines
from reservoir import Reservoir
from stopping import held_signals, let_signals_end_child

# SentencePiece sums floats per thread: with a fixed number of threads the model is the same on every machine.
THREADS = 16
# As in ALBERT's and T5's vocabularies; SentencePiece's default, 0.9995, drops digits and punctuation of plain English.
CHARACTER_COVERAGE = 0.99995
SAMPLE_LINES = 1000000


def sample_lines(paths, count, states=None):
    """Draws `count` lines (bytes) at random from those that are not blank, in one pass.

    SentencePiece has an option for this, `input_sentence_size`, but version 0.2.3 draws a different sample in every
    process and offers no seed. Here the same text must give the same model: on every machine, and after a restart.

    Args:
        states: `file_states(paths)` from which on the files must not change (None: from now on)
    Raises:
        InputError: a file changed
    """
    states = states or file_states(paths)
    progress = Progress("sample lines", sum(map(os.path.getsize, paths)))
    sample = Reservoir(count)
    for line in read_lines(paths, progress):
        if line and not line.isspace():
            sample.add(line)
    progress.close()
    check_unchanged(states)
    return sample.items


def train(paths, model, log_file, vocab_size, model_type, lowercase, count, byte_fallback=False, states=None):
    """Trains a SentencePiece model with ids 0 to 2 for `<unk> <s> </s>`.

    Args:
        paths: text files
        model: where to write the model; it appears only when it is complete
        log_file: where to write SentencePiece's log
        vocab_size: SentencePiece's vocab_size, which includes the three special pieces
        model_type: `bpe` or `unigram`
        lowercase: normalise with `nmt_nfkc_cf` rather than `nmt_nfkc`
        count: lines to sample
        byte_fallback: add a piece for each byte, `<0x00>` to `<0xFF>`, so that no character is unknown
        states: `file_states(paths)` from which on the files must not change (None: from now on)
    Raises:
        InputError: a file that changed, no text, text that is not UTF-8, or a vocab_size too large for the text or too
            small for its characters
    """
    sample = sample_lines(paths, count, states)
    try:
        # split() also removes U+0085, which SentencePiece would keep, and at which fairseq would split a piece.
        sample = [" ".join(line.decode("utf-8").split()) for line in sample]
    except UnicodeDecodeError:
        raise not_utf8(paths) from None
    if not any(sample):
        raise InputError(f"no text in {', '.join(paths)}; expected lines that are not blank")
    say(f"train SentencePiece: {len(sample):,} lines, {vocab_size:,} pieces, {model_type}")
    options = dict(
        vocab_size=vocab_size,
        model_type=model_type,
        normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
        max_sentence_length=1 << 30,  # by default SentencePiece skips lines of more than 4,192 bytes
        character_coverage=CHARACTER_COVERAGE,
        num_threads=THREADS,
        byte_fallback=byte_fallback,
    )
    start = reported = time.time()
    log = partial_name(log_file)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=train_in_child, args=(sample, model, log, options, sender), daemon=True)
    with held_signals():
        process.start()
    sender.close()
    while process.is_alive():
        process.join(0.2)
        if time.time() - reported > 10:
            reported = time.time()
            say(f"train SentencePiece: {reported - start:.0f} s{pieces_so_far(log)}")
    try:
        message = receiver.recv()
    except EOFError:
        message = "it was killed (out of memory? lower --sample-lines)"
    os.replace(log, log_file)
    if message:
        raise InputError(explain(message, vocab_size, log_file))
    say(f"train SentencePiece: {time.time() - start:.1f} s")


def train_in_child(sample, model, log_file, options, sender):
    """Trains in a process of its own: SentencePiece fills stderr with its log and never releases the interpreter lock.

    Args:
        sender: pipe for the error message, empty on success
    """
    let_signals_end_child()
    end_with_parent()
    log_descriptor = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log_descriptor, 1)
    os.dup2(log_descriptor, 2)
    try:
        with atomic_write(model, "wb") as writer:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sample), model_writer=writer, **options)
        sender.send("")
    except Exception as error:
        sender.send(str(error) or repr(error))


def end_with_parent():
    """Makes Linux end this process when its parent is killed: during training Python handles no signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def pieces_so_far(log_file):
    """The number of BPE's merges so far, from SentencePiece's log: `merges` in version 0.2.3, `size` in 0.2.0."""
    with open(log_file, errors="replace") as stream:
        sizes = re.findall(r" freq=\d+ (?:merges|size)=(\d+)", stream.read())
    return f", {sizes[-1]} pieces" if sizes else ""


def explain(message, vocab_size, log_file):
    """One sentence for the user in place of SentencePiece's own error message."""
    too_high = re.search(r"value <= (\d+)", message)
    if too_high:
        return (
            f"--vocab-size {vocab_size} is too large for this text; SentencePiece suggests at most {too_high.group(1)}"
        )
    too_low = re.search(r"required_chars. \d+ vs (\d+)", message)
    if too_low:
        return (
            f"--vocab-size {vocab_size} is too small for the characters in this text; give at least {too_low.group(1)}"
        )
    return f"SentencePiece failed: {' '.join(message.split())}; its log is {log_file}"


def main():
    parser = Parser(__doc__)
    parser.add_argument("--input", nargs="+", required=True, metavar="FILE", help="text files, plain or gzip")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="the model to write; its log is FILE with .log appended"
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
        args.byte_fallback,
    )


def add_options(parser, required=False):
    """Adds the options that describe a vocabulary, which prepare.py has too."""
    parser.add_argument(
        "--vocab-size", type=positive, required=required, metavar="N", help="SentencePiece's vocab_size"
    )
    parser.add_argument("--model-type", choices=["bpe", "unigram"], help="type of the model (bpe if not given)")
    parser.add_argument("--lowercase", action="store_true", help="the model lowercases its input (nmt_nfkc_cf)")
    parser.add_argument(
        "--byte-fallback",
        action="store_true",
        help="the model spells characters outside the vocabulary in bytes, so that none is unknown (256 pieces more)",
    )
    parser.add_argument(
        "--sample-lines",
        type=positive,
        metavar="N",
        help=f"train the model on this many lines, drawn at random ({SAMPLE_LINES:,} if not given)",
    )


if __name__ == "__main__":
    run(main)
