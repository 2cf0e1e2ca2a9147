#!/usr/bin/env python3
"""Binarizes what encode.py left in a folder, with fairseq-preprocess: SPLIT.encoded.txt becomes SPLIT.bin and .idx."""

import os
import shutil
import subprocess
import sys
import time

import counts
from program import InputError, Parser, Progress, cpu_count, partial_name, positive, remove_abandoned, run

SPLITS = ["train", "valid"]
# Runs a command; when our end of the pipe closes, as we were killed, its whole process group goes too.
END_WITH_PARENT = 'exec 3<&0; (read _ <&3; kill -9 0) & "$@" </dev/null 3<&-; status=$?; kill $!; exit $status'


def encoded_file(folder, split):
    return os.path.join(folder, split + ".encoded.txt")


def is_binarized(folder, split):
    """Whether a split is finished: the encoded text goes last."""
    names = [split + ending for ending in (".json", ".bin", ".idx")]
    return all(os.path.exists(os.path.join(folder, name)) for name in names) and not os.path.exists(
        encoded_file(folder, split)
    )


def is_encoded(folder, split):
    """Whether a split is ready to be binarized: its record is written last."""
    return os.path.exists(os.path.join(folder, split + ".json")) and os.path.exists(encoded_file(folder, split))


def binarize(folder, workers):
    """Binarizes every encoded split of a folder that has a dict.txt; the encoded text is removed.

    fairseq-preprocess runs in a hidden folder and its log goes to `preprocess.log`.

    Raises:
        InputError: no dict.txt, or fairseq-preprocess fails
        OSError: no room
    """
    splits = [split for split in SPLITS if is_encoded(folder, split)]
    if not splits:
        return
    dictionary = os.path.join(folder, "dict.txt")
    if not os.path.exists(dictionary):
        raise InputError(f"{dictionary} does not exist; write it with write_dict.py")
    remove_abandoned(folder)
    work = partial_name(os.path.join(folder, "binarized"))
    log = os.path.join(folder, "preprocess.log")
    size = sum(os.path.getsize(encoded_file(folder, split)) for split in splits)
    command = [
        sys.executable,
        "-m",
        "fairseq_cli.preprocess",
        "--only-source",
        "--srcdict",
        dictionary,
        "--destdir",
        work,
    ]
    for split in splits:
        command += [f"--{split}pref", encoded_file(folder, split)]
    # fairseq works on the first part alone, after the others: many small parts keep the processes busy.
    parts = min(4 * workers, size // 1000000 + 1)
    command += ["--workers", str(parts)]
    tokens = sum(counts.load(os.path.join(folder, split + ".json"))["tokens"] for split in splits)
    progress = Progress("binarize (encoded text)", size)
    try:
        with open(log, "w") as stream:
            process = subprocess.Popen(
                ["sh", "-c", END_WITH_PARENT, "sh"] + command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ, OMP_NUM_THREADS="1"),
            )
            try:
                follow(process, work, tokens * token_bytes(dictionary), size, progress)
            except BaseException:
                os.killpg(process.pid, 9)
                raise
        if process.returncode:
            raise failure(log)
        for split in splits:
            for ending in (".bin", ".idx"):
                os.replace(os.path.join(work, split + ending), os.path.join(folder, split + ending))
            os.remove(encoded_file(folder, split))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress.update(size, size)
    progress.close()


def follow(process, work, expected, size, progress):
    """Waits for fairseq-preprocess; `expected`: bytes of all .bin files together when it is done."""
    while process.poll() is None:
        time.sleep(0.1)
        try:
            written = sum(entry.stat().st_size for entry in os.scandir(work) if entry.name.endswith(".bin"))
        except FileNotFoundError:
            continue
        done = min(1, written / expected) * size
        progress.update(done, done)


def token_bytes(dictionary):
    """Bytes of a token in .bin: fairseq takes 16 bits for dictionaries below 65,500 entries."""
    with open(dictionary, "rb") as stream:
        return 2 if sum(1 for _ in stream) + 4 < 65500 else 4


def failure(log):
    """The error for a fairseq-preprocess that failed."""
    with open(log, errors="replace") as stream:
        text = stream.read()
    for number in (28, 122):
        if os.strerror(number) in text:
            return OSError(number, os.strerror(number))
    last = text.strip().splitlines()[-1] if text.strip() else "nothing"
    return InputError(f"fairseq-preprocess failed ({last}); its log is {log}; mend that and run the same command again")


def main():
    parser = Parser(__doc__)
    parser.add_argument(
        "--dest", required=True, metavar="DIR", help="folder with dict.txt, SPLIT.encoded.txt and SPLIT.json"
    )
    parser.add_argument("--workers", type=positive, default=cpu_count(), metavar="N", help="worker processes")
    args = parser.parse_args()
    if not any(is_encoded(args.dest, split) for split in SPLITS):
        raise InputError(f"--dest: {args.dest} holds no encoded text with its record; run encode.py first")
    binarize(args.dest, args.workers)


if __name__ == "__main__":
    run(main)
