#!/usr/bin/env python3
"""Turns raw text into a folder for fairseq-train: vocabulary, dict.txt, binarized data, checked.

Text is UTF-8, plain or gzip, one sentence or paragraph per line, a blank line after each document.
After an interruption the same command resumes where it stopped. The last line on stdout is the path
to give to fairseq-train.
"""

import os

import find_plugin  # noqa: F401  finds the plugin
from maelm_fairseq.base.command_line import Parser, number_in_range
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.json_files import read_json, save_json
from maelm_fairseq.base.provenance import sha256
from maelm_fairseq.base.running import run_main
from maelm_fairseq.preparation.binarized import is_encoded, shard_folder
from maelm_fairseq.preparation.checks import check_prepared_data
from maelm_fairseq.preparation.documents import (
    HeldOut,
    check_documents,
    count_documents_up_to,
    needed_documents,
)
from maelm_fairseq.preparation.encode import count_documents, encode
from maelm_fairseq.preparation.manifest import (
    MANIFEST,
    Manifest,
    PreparationOptions,
    claim,
    options_with_values,
)
from maelm_fairseq.preparation.progress import log_to_stderr
from maelm_fairseq.preparation.raw_text import check_text_files, file_fingerprint
from maelm_fairseq.preparation.train_sentencepiece import SAMPLE_LINES
from maelm_fairseq.preparation.vocabulary import (
    VOCAB_SIZES,
    default_vocab_size,
    load_given_tokenizer,
    load_or_train_tokenizer,
    write_vocabulary_files,
)

FORMAT = 1
# The options for training a SentencePiece model.
TRAINING_OPTIONS = ("vocab_size", "model_type", "lowercase", "sample_lines", "byte_fallback")


def parse_args():
    parser = Parser("prepare.sh", description=__doc__)
    add_options(parser)
    args = parser.parse_args()
    dest = os.path.abspath(args.dest)
    if ":" in dest:
        raise UsageError(
            f"--dest {dest!r}: fairseq-train separates folders by colons; choose a path without one"
        )
    if args.vocabulary:
        values = {name: getattr(args, name) or None for name in TRAINING_OPTIONS}
        for option in options_with_values(values):
            raise UsageError(
                f"{option} is for training a model, but --vocabulary gives a trained one; leave one"
                " out"
            )
    elif args.add_tokens:
        raise UsageError(
            "--add-tokens needs a --vocabulary to add to; a trained one gets the words of its text"
            " by itself"
        )
    # Not as defaults of the options: --vocabulary refuses those that are given.
    args.model_type = args.model_type or "bpe"
    args.sample_lines = args.sample_lines or SAMPLE_LINES
    if args.shard is not None and args.shard >= args.shards:
        raise UsageError(
            f"--shard {args.shard}: expected 0 to {args.shards - 1}, as --shards is {args.shards}"
        )
    return args


def add_options(parser):
    add = parser.add_argument
    add(
        "--train",
        action="extend",
        nargs="+",
        required=True,
        metavar="FILE",
        help="text to train on, plain or gzip",
    )
    valid = parser.add_mutually_exclusive_group(required=True).add_argument
    valid(
        "--valid",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="text to validate on, plain or gzip",
    )
    valid(
        "--valid-documents",
        type=number_in_range(1),
        metavar="N",
        help="validate on N documents of --train, held out evenly",
    )
    add("--dest", required=True, metavar="DIR", help="folder to write to")
    defaults = []
    for size, pieces in VOCAB_SIZES.items():
        at_least = f" from {size // 10**6:,} MB on" if size else ""
        defaults.append(f"{pieces:,}{at_least}")
    add(
        "--vocab-size",
        type=number_in_range(1),
        metavar="N",
        help=f"pieces (if not given, by the size of --train: {', '.join(defaults)})",
    )
    add(
        "--model-type",
        choices=["bpe", "unigram"],
        help="type of the SentencePiece model (bpe if not given)",
    )
    add("--lowercase", action="store_true", help="the model lowercases its input (nmt_nfkc_cf)")
    add(
        "--byte-fallback",
        action="store_true",
        help="spell unknown characters in bytes, with 256 pieces of their own",
    )
    add(
        "--sample-lines",
        type=number_in_range(1),
        metavar="N",
        help=f"random lines to train the vocabulary on ({SAMPLE_LINES:,} if not given)",
    )
    add(
        "--vocabulary",
        metavar="FILE_or_DIR",
        help="use this one instead of training one: a SentencePiece model, tokenizer.json, or a "
        "folder with either",
    )
    add(
        "--add-tokens",
        metavar="FILE",
        help="words, one per line, that become tokens of a tokenizer.json",
    )
    cpus = len(os.sched_getaffinity(0))  # that this process may use
    add(
        "--workers",
        type=number_in_range(1),
        default=cpus,
        metavar="N",
        help="worker processes (default: %(default)s)",
    )
    add(
        "--shards",
        type=number_in_range(1),
        default=1,
        metavar="N",
        help="folders to write, shard0 and so on (default: 1, DEST itself); document i goes to "
        "shard i mod N",
    )
    add(
        "--shard",
        type=number_in_range(0),
        metavar="I",
        help="prepare only this one, 0 to N-1, as one of several machines",
    )
    add("--only-vocabulary", action="store_true", help="stop after writing vocabulary and dict.txt")


def documents_of_training(args, manifest, vocabulary_path):
    """The number of documents in --train, counted once."""
    path = os.path.join(args.dest, "documents.json")
    if not os.path.exists(path):
        save_json(count_documents(args.train, manifest.train, vocabulary_path), path)
    documents = read_json(path, int, "the number of documents in --train")
    check_documents(documents, args.shards, args.valid_documents)
    return documents


def warn_of_repeated_text(args, manifest):
    """Says which files have the same text, in a line for each effect of that."""
    paths = [*args.train, *args.valid]
    first = {}  # {hash of a text: the number of the first file that has it}
    repeated = {}  # {effect: descriptions of files}
    for number, fingerprint in enumerate([*manifest.train, *manifest.valid]):
        other = first.setdefault(fingerprint["sha256_of_samples"], number)
        if other != number:
            is_in_both = other < len(args.train) <= number
            effect = "is not held out" if is_in_both else "counts again"
            text = f"{paths[number]} has the text of {paths[other]}"
            repeated.setdefault(effect, []).append(text)
    for effect, texts in repeated.items():
        warning = f"warning: {texts[0]}"
        if len(texts) > 1:
            warning += f", and {len(texts) - 1:,} more files that of others"
        log_to_stderr(f"{warning}: it {effect}")


def make_manifest(args, tokenizer):
    """What --dest is prepared from; `tokenizer` is the one of --vocabulary, or None."""
    if tokenizer:
        vocabulary_options = dict(vocabulary=sha256(tokenizer.path))
        if args.add_tokens:
            vocabulary_options["add_tokens"] = sha256(args.add_tokens)
    else:
        vocabulary_options = {name: getattr(args, name) for name in TRAINING_OPTIONS}
        vocabulary_options["vocab_size"] = args.vocab_size or default_vocab_size(args.train)
    options = PreparationOptions(
        args.shards, valid_documents=args.valid_documents, **vocabulary_options
    )
    train_files = list(map(file_fingerprint, args.train))
    return Manifest(FORMAT, train_files, list(map(file_fingerprint, args.valid)), options)


def encode_missing(args, manifest, vocabulary_path, selected, held_out):
    """Encodes the splits that are not complete in the folders of `selected`, {shard: folder}.

    Validation data are in shard 0 alone. `held_out` is as for `encode`.
    """
    for split, shards, wanted in [("valid", 1, [0]), ("train", args.shards, selected)]:
        missing = {}
        for shard, folder in selected.items():
            if shard in wanted and not is_encoded(folder, split):
                missing[shard] = folder
        if missing:
            source = "train" if held_out else split
            files = getattr(args, source)
            fingerprints = getattr(manifest, source)
            encode(
                files, fingerprints, missing, split, vocabulary_path, args.workers, shards, held_out
            )


def check_texts(args):
    """Refuses too few documents before the hours of encoding.

    Only encoding shows which lines are normalised to nothing: the documents may be even fewer.
    """
    needed = needed_documents(args.shards, args.valid_documents)
    check_documents(count_documents_up_to(args.train, needed), args.shards, args.valid_documents)
    # All of it is read, since a line that is not text would be found only after --train.
    if args.valid and not count_documents_up_to(args.valid):
        raise UsageError(f"--valid {args.valid[0]}: found no text; give files with text")


def main():
    args = parse_args()
    check_text_files(args.train, "--train")
    check_text_files(args.valid, "--valid")
    if not os.path.exists(os.path.join(args.dest, MANIFEST)):
        check_texts(args)
    tokenizer = load_given_tokenizer(args.vocabulary, args.add_tokens) if args.vocabulary else None
    manifest = make_manifest(args, tokenizer)
    warn_of_repeated_text(args, manifest)
    os.makedirs(args.dest, exist_ok=True)
    claim(args.dest, manifest)
    if tokenizer is None:
        tokenizer = load_or_train_tokenizer(args.dest, args.train, manifest.options)
    vocabulary_path = write_vocabulary_files(tokenizer, args.dest)
    held_out = None
    if args.valid_documents:
        held_out = HeldOut(
            args.valid_documents, documents_of_training(args, manifest, vocabulary_path)
        )
    if args.only_vocabulary:
        log_to_stderr(f"{vocabulary_path} and dict.txt are ready")
        return
    folders = [shard_folder(args.dest, shard, args.shards) for shard in range(args.shards)]
    selected = {i: folder for i, folder in enumerate(folders) if args.shard in (None, i)}
    for folder in selected.values():
        os.makedirs(folder, exist_ok=True)
        write_vocabulary_files(tokenizer, folder)
    encode_missing(args, manifest, vocabulary_path, selected, held_out)
    check_prepared_data(args.dest, manifest, selected)
    print(":".join(map(os.path.abspath, folders)))


if __name__ == "__main__":
    run_main(main)
