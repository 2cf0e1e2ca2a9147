"""Trains a SentencePiece model on a random sample of lines.

The model itself lowercases if asked to.
"""

import heapq
import io
import os
import random
import re
import signal
from itertools import chain

import sentencepiece

from ..base.errors import UsageError
from ..base.files import atomic_write
from ..base.utf8 import read_lines
from .progress import log_to_stderr, progress_bar

# SentencePiece sums floats per thread: with a fixed number of threads the model is the same on
# every machine.
THREADS = 16
# As in ALBERT's and T5's vocabularies; SentencePiece's default, 0.9995, drops digits and
# punctuation of plain English.
CHARACTER_COVERAGE = 0.99995
SAMPLE_LINES = 1000000


def train(paths, model, log_file, options):
    """Trains a SentencePiece model with ids 0 to 2 for `<unk> <s> </s>`.

    Args:
        paths: files of text
        model: path of the model to write
        log_file: path for what SentencePiece logs
        options: `manifest.PreparationOptions`; `vocab_size` includes the three special pieces,
            `sample_lines` is the number of lines to train on, and `byte_fallback` adds a piece for
            each byte, `<0x00>` to `<0xFF>`
    Raises:
        UsageError: no text, text that is not UTF-8, or a vocab_size that does not suit the text
    """
    lines = sample_lines(paths, options.sample_lines)
    if not lines:
        raise UsageError(f"no text in {', '.join(paths)}; expected lines that are not blank")
    size = options.vocab_size
    model_type = options.model_type
    counted = f"{len(lines):,} lines that are not blank, {size:,} pieces"
    log_to_stderr(f"train SentencePiece: {counted}, {model_type}; see {log_file}")
    trained = io.BytesIO()
    handler = signal.getsignal(signal.SIGINT)
    try:
        # Ctrl-C is to end C++, too, unless the shell has it ignored.
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        with open(log_file, "w") as log:
            sentencepiece.SentencePieceTrainer.train(
                # split() also removes U+0085, which SentencePiece would keep, and at which fairseq
                # would split a piece.
                sentence_iterator=(" ".join(line.split()) for line in lines),
                model_writer=trained,
                vocab_size=size,
                model_type=model_type,
                normalization_rule_name="nmt_nfkc_cf" if options.lowercase else "nmt_nfkc",
                # By default SentencePiece skips lines of more than 4,192 bytes.
                max_sentence_length=1 << 30,
                character_coverage=CHARACTER_COVERAGE,
                num_threads=THREADS,
                byte_fallback=options.byte_fallback,
                logstream=log,
            )
    except (RuntimeError, ValueError) as error:
        if "all_chars_count" in str(error):
            raise UsageError(
                f"no text in {', '.join(paths)}: normalisation leaves none of its characters; "
                "expected lines that are not blank"
            ) from None
        raise UsageError(f"--vocab-size {size}: {describe_failure(error, log_file)}") from None
    finally:
        signal.signal(signal.SIGINT, handler)
    with atomic_write(model, "wb") as stream:
        stream.write(trained.getvalue())


def sample_lines(paths, count):
    """A uniform sample of `count` lines that are not blank, in order; all if they are fewer.

    SentencePiece has an option for this, `input_sentence_size`, but version 0.2.3 draws a different
    sample in every process and offers no seed. Here the same text must give the same model: on
    every machine, and after a restart.
    """
    # Every line gets a random number; those with the lowest are drawn.
    draw = random.Random(1).random
    with progress_bar("sample lines", sum(map(os.path.getsize, paths))) as bar:
        lines = enumerate(chain.from_iterable(read_lines(path, bar.update) for path in paths))
        numbered = ((draw(), place, line) for place, (_, line) in lines if line.strip())
        drawn = heapq.nsmallest(count, numbered)
    return [line for _, line in sorted(item[1:] for item in drawn)]


def describe_failure(error, log_file):
    """Why SentencePiece failed, for the user; often the number of pieces does not suit the text."""
    limit = re.search(r"(<=|vs) (\d+)", str(error))
    if limit is None:
        text = " ".join(str(error).split())
        return f"SentencePiece failed, perhaps because of it: {text}; see {log_file}"
    if limit[1] == "<=":
        return f"too large for this text; give at most {limit[2]}"
    return f"too small for its characters; give at least {limit[2]}"
