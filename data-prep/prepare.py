#!/usr/bin/env python3
"""Turns raw text into a folder for fairseq-train: SentencePiece model, dict.txt, binarized data, checked.

Text is UTF-8, plain or gzip, one sentence or paragraph per line, a blank line after each document. After an
interruption the same command resumes where it stopped. The last line on stdout is the path to give to fairseq-train.
"""

import contextlib
import hashlib
import os
import shutil

from binarized import AGAIN, is_encoded, shard_folder
from check import check
from command_line import InputError, Parser, cpu_count, data_folder, positive, run, say, size_text
from encode import encode
from files import atomic_write, publish_first, remove_abandoned, save_json
from raw_text import GZIP_MAGIC, check_documents, check_files, file_states
from records import MANIFEST, load_json
from train_sentencepiece import SAMPLE_LINES, add_options, train
from write_dict import load_model, write_dict

SPLITS = ["train", "valid"]
MANIFEST_FILE = "prepare.json"
FORMAT = 1
DISK = 1.1  # bytes of disk needed at most for a byte of text: 0.5 to 1 for tokens, and an index
GZIP_FACTOR = 4  # bytes of text in a byte of gzip, roughly


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


def manifest_of(args, states):
    """The inputs and options that the prepared data depend on.

    Args:
        states: the FileStates of each split
    """
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
        **{split: [state.fingerprint for state in states[split]] for split in SPLITS},
        "options": options,
    }


def differences(there, here):
    """A list of the differences between two manifests, in words."""
    out = []
    for key in sorted(set(there["options"]) | set(here["options"])):
        was, now = there["options"].get(key, "not given"), here["options"].get(key, "not given")
        if was != now:
            out.append(f"--{key.replace('_', '-')} was {was} and is {now}")
    for split in SPLITS:
        was, now = there[split], here[split]
        if len(was) != len(now):
            out.append(f"--{split} had {len(was)} files and has {len(now)}")
        else:
            out += [
                (
                    f"--{split}: {b['file']} ({b['bytes']:,} bytes) was {a['file']} ({a['bytes']:,} bytes)"
                    if (a["file"], a["bytes"]) != (b["file"], b["bytes"])
                    else f"--{split}: {b['file']} has different text"
                )
                for a, b in zip(was, now)
                if a != b
            ]
    return out


def claim(dest, manifest):
    """Writes the manifest into `dest`, or compares it with the existing one.

    Raises:
        InputError: `dest` contains data from another corpus, with other options, or of unknown origin
    """
    path = os.path.join(dest, MANIFEST_FILE)
    if not os.path.exists(path):
        foreign = sorted(
            name
            for name in os.listdir(dest)
            if name.endswith((".bin", ".idx", ".model")) or name.startswith(("dict.", "shard"))
        )
        # A process that started at the same time may have written these since: it writes the manifest first.
        if foreign and not os.path.exists(path):
            raise InputError(
                f"--dest: {dest} contains {foreign[0]} but no {MANIFEST_FILE}; expected an empty folder; choose another"
            )
        publish_first(path, lambda partial: save_json(manifest, partial))
    there = load_json(path, MANIFEST, AGAIN.format(dest))
    if there["format"] != FORMAT:
        raise InputError(f"{path} was written by another version of these programs; choose another --dest")
    different = differences(there, manifest)
    if different:
        raise InputError(
            f"--dest: {dest} was prepared from different inputs or with different options: {'; '.join(different)};"
            " choose another --dest, or remove this one"
        )


# The steps ---------------------------------------------------------------------------------------------------------


def write_model(args, states, path):
    if args.spm_model:
        shutil.copyfile(args.spm_model, path)
    else:
        train(
            args.train,
            path,
            os.path.join(args.dest, "sentencepiece.log"),
            args.vocab_size,
            args.model_type or "bpe",
            args.lowercase,
            args.sample_lines or SAMPLE_LINES,
            args.byte_fallback,
            states["train"],
        )


def make_vocabulary(args, states):
    """Writes `sentencepiece.model` and `dict.txt` into --dest; returns the model's path.

    If several processes do so at once, the first to finish wins.
    """
    model = os.path.join(args.dest, "sentencepiece.model")
    if not os.path.exists(model):
        try:
            publish_first(model, lambda partial: write_model(args, states, partial))
        except InputError:
            # There are no data yet: without the manifest the corrected command can start afresh.
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(args.dest, MANIFEST_FILE))
            raise
    dictionary = os.path.join(args.dest, "dict.txt")
    if not os.path.exists(dictionary):
        write_dict(model, dictionary)
    return model


def check_room(args):
    """Raises InputError if the binarized text cannot fit on the disk."""
    size = 0
    for path in args.train + args.valid:
        with open(path, "rb") as stream:
            size += os.path.getsize(path) * (GZIP_FACTOR if stream.read(2) == GZIP_MAGIC else 1)
    need = int(DISK * size) // (args.shards if args.shard is not None else 1)
    free = shutil.disk_usage(args.dest).free
    if need > free:
        raise InputError(
            f"--dest: {args.dest} has {size_text(free)} free, but this text needs about {size_text(need)}; free some"
            " space, or choose a --dest on another disk"
        )


def make_data(args, states, model, wanted):
    """Encodes the splits and shards that do not exist yet."""
    folders = {shard: shard_folder(args.dest, shard, args.shards) for shard in wanted}
    for folder in folders.values():
        os.makedirs(folder, exist_ok=True)
        remove_abandoned(folder)
        for name in ("sentencepiece.model", "dict.txt"):
            if not os.path.exists(os.path.join(folder, name)):
                with (
                    atomic_write(os.path.join(folder, name), "wb") as stream,
                    open(os.path.join(args.dest, name), "rb") as source,
                ):
                    shutil.copyfileobj(source, stream)

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
    if args.shards > 1:  # one shard takes any text
        check_documents(args.train, args.shards)
    os.makedirs(args.dest, exist_ok=True)
    remove_abandoned(args.dest)
    wanted = list(range(args.shards)) if args.shard is None else [args.shard]
    if not all(
        os.path.exists(os.path.join(shard_folder(args.dest, shard, args.shards), "train.json")) for shard in wanted
    ):
        check_room(args)
    states = {split: file_states(getattr(args, split)) for split in SPLITS}
    claim(args.dest, manifest_of(args, states))
    model = make_vocabulary(args, states)
    if args.only_vocabulary:
        say(f"{model} and dict.txt are ready")
        return
    make_data(args, states, model, wanted)
    check(args.dest, args.shards, wanted)
    print(":".join(os.path.abspath(shard_folder(args.dest, shard, args.shards)) for shard in range(args.shards)))


if __name__ == "__main__":
    run(main, "prepare.sh")
