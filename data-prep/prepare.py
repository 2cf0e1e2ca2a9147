#!/usr/bin/env python3
"""Turns raw text into a folder for fairseq-train: SentencePiece model, dict.txt, binarized data, checked.

Text is UTF-8, plain or gzip, one sentence or paragraph per line, a blank line after each document. After an
interruption the same command resumes where it stopped. The last line on stdout is the path to give to fairseq-train.
"""

import hashlib
import os
import shutil

from basics import (
    InputError,
    Parser,
    atomic_write,
    cpu_count,
    data_folder,
    load_json,
    positive,
    refuse_different,
    remove_abandoned,
    run,
    save_json,
    say,
)
from binarized import AGAIN, is_encoded, shard_folder
from check import MANIFEST_FILE, MANIFEST_KEYS, check
from encode import encode
from raw_text import check_files, file_states, fingerprint
from train_sentencepiece import SAMPLE_LINES, add_options, train
from write_dict import load_model, write_dict

SPLITS = ["train", "valid"]
FORMAT = 1


def parse_args():
    parser = Parser(__doc__)
    parser.prog = "prepare.sh"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help="text to train on, plain or gzip")
    parser.add_argument("--valid", nargs="+", required=True, metavar="FILE", help="text to validate on, plain or gzip")
    parser.add_argument("--dest", required=True, type=data_folder, metavar="DIR", help="folder to write to")
    add_options(parser)
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
        for option in ("lowercase", "byte_fallback", "model_type", "sample_lines"):
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
        with open(args.spm_model, "rb") as stream:
            options["spm_model"] = hashlib.sha256(stream.read()).hexdigest()
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
    there = load_json(path, MANIFEST_KEYS, AGAIN.format(dest))
    if there["format"] != FORMAT:
        raise InputError(f"{path} was written by another version of these programs; choose another --dest")
    was, now = there["options"], manifest["options"]
    different = [
        f"--{key.replace('_', '-')} was {was.get(key, 'not given')} and is {now.get(key, 'not given')}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]
    different += [f"--{split}: other files, or other text" for split in SPLITS if there[split] != manifest[split]]
    refuse_different(dest, different)


# The steps ---------------------------------------------------------------------------------------------------------


def copy(source, dest):
    with open(source, "rb") as reader, atomic_write(dest, "wb") as writer:
        shutil.copyfileobj(reader, writer)


def make_vocabulary(args, states):
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
                train(args.train, model, log, *options, args.byte_fallback, states["train"])
            except InputError:  # there are no data yet: without the manifest the corrected command can start afresh
                os.remove(os.path.join(args.dest, MANIFEST_FILE))
                raise
    if not os.path.exists(dictionary):
        write_dict(model, dictionary)
    return model


def make_data(args, states, model, wanted):
    """Encodes the splits and shards that do not exist yet."""
    folders = {shard: shard_folder(args.dest, shard, args.shards) for shard in wanted}
    for folder in folders.values():
        os.makedirs(folder, exist_ok=True)
        remove_abandoned(folder)
        for name in ("sentencepiece.model", "dict.txt"):
            if not os.path.exists(os.path.join(folder, name)):
                copy(os.path.join(args.dest, name), os.path.join(folder, name))

    def missing(split):
        return [shard for shard in wanted if not is_encoded(folders[shard], split)]

    if 0 in wanted and 0 in missing("valid"):
        encode(args.valid, folders[0], "valid", model, args.workers, states=states["valid"])
    if missing("train"):
        encode(args.train, args.dest, "train", model, args.workers, args.shards, missing("train"), states["train"])


def main():
    args = parse_args()
    check_files(args.train, "--train")
    check_files(args.valid, "--valid")
    if args.spm_model:
        pieces = load_model(args.spm_model).get_piece_size()
        if args.vocab_size not in (None, pieces):
            raise InputError(
                f"--vocab-size {args.vocab_size}: {args.spm_model} has {pieces} pieces; leave out --vocab-size"
            )
    os.makedirs(args.dest, exist_ok=True)
    remove_abandoned(args.dest)
    wanted = list(range(args.shards)) if args.shard is None else [args.shard]
    states = {split: file_states(getattr(args, split)) for split in SPLITS}
    claim(args.dest, manifest_of(args))
    model = make_vocabulary(args, states)
    if args.only_vocabulary:
        say(f"{model} and dict.txt are ready")
        return
    make_data(args, states, model, wanted)
    check(args.dest, args.shards, wanted)
    print(":".join(os.path.abspath(shard_folder(args.dest, shard, args.shards)) for shard in range(args.shards)))


if __name__ == "__main__":
    run(main, "prepare.sh")
