"""Trains a SentencePiece model on a random sample of lines; the model itself lowercases if asked to."""

import os
import re
import signal
import time
from contextlib import contextmanager

import sentencepiece

from basics import InputError, Progress, atomic_write, let_signals_end, positive, say
from raw_text import Reservoir, check_unchanged, not_utf8, read_lines

# SentencePiece sums floats per thread: with a fixed number of threads the model is the same on every machine.
THREADS = 16
# As in ALBERT's and T5's vocabularies; SentencePiece's default, 0.9995, drops digits and punctuation of plain English.
CHARACTER_COVERAGE = 0.99995
SAMPLE_LINES = 1000000


def sample_lines(paths, count, states):
    """Draws `count` lines (bytes) at random from those that are not blank, in one pass.

    SentencePiece has an option for this, `input_sentence_size`, but version 0.2.3 draws a different sample in every
    process and offers no seed. Here the same text must give the same model: on every machine, and after a restart.

    Args:
        states: `file_states(paths)` from which on the files must not change
    Raises:
        InputError: a file changed
    """
    progress = Progress("sample lines", sum(map(os.path.getsize, paths)))
    sample = Reservoir(count)
    for line in read_lines(paths, progress):
        if line and not line.isspace():
            sample.add(line)
    progress.close()
    check_unchanged(states)
    return sample.items


def train(paths, model, log_file, vocab_size, model_type, lowercase, count, byte_fallback, states):
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
        states: `file_states(paths)` from which on the files must not change
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
    say(f"train SentencePiece: {len(sample):,} lines, {vocab_size:,} pieces, {model_type}; see {log_file}")
    options = dict(
        vocab_size=vocab_size,
        model_type=model_type,
        normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
        max_sentence_length=1 << 30,  # by default SentencePiece skips lines of more than 4,192 bytes
        character_coverage=CHARACTER_COVERAGE,
        num_threads=THREADS,
        byte_fallback=byte_fallback,
    )
    start = time.time()
    try:
        with logged_to(log_file), atomic_write(model, "wb") as writer:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sample), model_writer=writer, **options)
    except RuntimeError as error:
        raise InputError(explain(str(error), vocab_size, log_file)) from None
    say(f"train SentencePiece: {time.time() - start:.1f} s")


@contextmanager
def logged_to(log_file):
    """For SentencePiece, which never lets Python handle a signal: signals end the process; output goes to a file."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    kept = [os.dup(1), os.dup(2)]
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        let_signals_end()
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for descriptor, original in zip((1, 2), kept):
            os.dup2(original, descriptor)
        for descriptor in [log, *kept]:
            os.close(descriptor)


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


def add_options(parser):
    """Adds the options that describe a vocabulary."""
    parser.add_argument("--vocab-size", type=positive, metavar="N", help="SentencePiece's vocab_size")
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
