#!/usr/bin/env python3
"""Turns raw text into a folder for fairseq-train: SentencePiece model, dict.txt, binarized data, checked.

Text is UTF-8, plain or gzip, one sentence or paragraph per line, a blank line after each document. After an
interruption the same command resumes where it stopped. The last line on stdout is the path to give to fairseq-train.
"""

import os
import shutil

from basics import (
    InputError,
    Parser,
    atomic_write,
    check_same,
    cpu_count,
    data_folder,
    file_identity,
    load_json,
    positive,
    run,
    save_json,
    say,
)
from binarized import AGAIN, is_encoded, shard_folder
from check import MANIFEST_FILE, check
from encode import encode
from raw_text import check_files, fingerprint
from train_sentencepiece import SAMPLE_LINES, train
from write_dict import load_model, write_dict

SPLITS = ["train", "valid"]
FORMAT = 1


def parse_args():
    parser = Parser(__doc__)
    parser.prog = "prepare.sh"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help="text to train on, plain or gzip")
    parser.add_argument("--valid", nargs="+", required=True, metavar="FILE", help="text to validate on, plain or gzip")
    parser.add_argument("--dest", required=True, type=data_folder, metavar="DIR", help="folder to write to")
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
    parser.add_argument("--spm-model", metavar="FILE", help="use this SentencePiece model instead of training one")
    parser.add_argument("--workers", type=positive, default=cpu_count(), metavar="N", help="worker processes")
    parser.add_argument(
        "--shards",
        type=positive,
        default=1,
        metavar="N",
        help="number of shards, a folder each; document i goes to shard i mod N",
    )
    parser.add_argument(
        "--shard", type=int, metavar="I", help="prepare only this shard, 0 to N-1; other machines prepare the others"
    )
    parser.add_argument(
        "--only-vocabulary", action="store_true", help="stop after writing sentencepiece.model and dict.txt"
    )
    args = parser.parse_args()
    if args.spm_model:
        for option in ("vocab_size", "lowercase", "byte_fallback", "model_type", "sample_lines"):
            if getattr(args, option):
                parser.error(
                    f"--{option.replace('_', '-')} is for training a model, but --spm-model gives a trained one; leave"
                    " one of them out"
                )
    elif args.vocab_size is None:
        parser.error("give --vocab-size, or a trained model with --spm-model")
    if args.shard is not None and not 0 <= args.shard < args.shards:
        parser.error(f"--shard {args.shard}: expected 0 to {args.shards - 1}, as --shards is {args.shards}")
    return args


# The manifest ------------------------------------------------------------------------------------------------------


def manifest_of(args):
    """The inputs and options that the prepared data depend on."""
    options = {"shards": args.shards}
    if args.spm_model:
        options["spm_model"] = file_identity(args.spm_model)["sha256"]
    else:
        options.update(
            vocab_size=args.vocab_size,
            model_type=args.model_type or "bpe",
            lowercase=args.lowercase,
            sample_lines=args.sample_lines or SAMPLE_LINES,
        )
        if args.byte_fallback:  # folders from before there was this option have no such key
            options["byte_fallback"] = True
    return {
        "format": FORMAT,
        **{split: [fingerprint(path) for path in getattr(args, split)] for split in SPLITS},
        "options": options,
    }


def claim(dest, manifest):
    """Writes the manifest into `dest`, or compares it with the existing one.

    Raises:
        InputError: `dest` contains data from another corpus, with other options, or of unknown origin
    """
    path = os.path.join(dest, MANIFEST_FILE)
    foreign = sorted(
        name for name in os.listdir(dest) if name.endswith((".bin", ".idx", ".model")) or name == "dict.txt"
    )
    # A process that started at the same time may have written these: it writes the manifest first.
    if not os.path.exists(path):
        if foreign:
            raise InputError(
                f"--dest: {dest} contains {foreign[0]} but no {MANIFEST_FILE}; expected an empty folder; choose another"
            )
        save_json(manifest, path)
    there = load_json(path, AGAIN.format(dest))
    names = ["format", *SPLITS]
    check_same(dest, *({**{name: found[name] for name in names}, **found["options"]} for found in (there, manifest)))


# The steps ---------------------------------------------------------------------------------------------------------


def copy(source, dest):
    with open(source, "rb") as reader, atomic_write(dest, "wb") as writer:
        shutil.copyfileobj(reader, writer)


def make_vocabulary(args):
    """Writes sentencepiece.model and dict.txt unless they exist; returns the path of the model.

    Several processes may do so at once: the same text and options give the same model.
    """
    model, dictionary = (os.path.join(args.dest, name) for name in ("sentencepiece.model", "dict.txt"))
    if not os.path.exists(model):
        if args.spm_model:
            copy(args.spm_model, model)
        else:
            options = args.vocab_size, args.model_type or "bpe", args.lowercase, args.sample_lines or SAMPLE_LINES
            log = os.path.join(args.dest, "sentencepiece.log")
            try:
                train(args.train, model, log, *options, args.byte_fallback)
            except InputError:  # there are no data yet: without the manifest the corrected command can start afresh
                os.remove(os.path.join(args.dest, MANIFEST_FILE))
                raise
    if not os.path.exists(dictionary):
        write_dict(model, dictionary)
    return model


def make_data(args, manifest, model, selected):
    """Encodes the splits and shards that do not exist yet."""
    folders = {shard: shard_folder(args.dest, shard, args.shards) for shard in selected}
    for folder in folders.values():
        os.makedirs(folder, exist_ok=True)
        for name in ("sentencepiece.model", "dict.txt"):
            if not os.path.exists(os.path.join(folder, name)):
                copy(os.path.join(args.dest, name), os.path.join(folder, name))
    if 0 in selected and not is_encoded(folders[0], "valid"):
        encode(args.valid, manifest["valid"], folders[0], "valid", model, args.workers)
    missing = [shard for shard in selected if not is_encoded(folders[shard], "train")]
    if missing:
        encode(args.train, manifest["train"], args.dest, "train", model, args.workers, args.shards, missing)


def main():
    args = parse_args()
    check_files(args.train, "--train")
    check_files(args.valid, "--valid")
    if args.spm_model:
        load_model(args.spm_model)
    os.makedirs(args.dest, exist_ok=True)
    selected = list(range(args.shards)) if args.shard is None else [args.shard]
    manifest = manifest_of(args)
    claim(args.dest, manifest)
    model = make_vocabulary(args)
    if args.only_vocabulary:
        say(f"{model} and dict.txt are ready")
        return
    make_data(args, manifest, model, selected)
    check(args.dest, args.shards, selected)
    print(":".join(os.path.abspath(shard_folder(args.dest, shard, args.shards)) for shard in range(args.shards)))


if __name__ == "__main__":
    run(main, "prepare.sh")
