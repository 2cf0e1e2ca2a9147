#!/usr/bin/env python3
"""Times raw text to binarized data: data-prep/encode.py and the usual route, alternately.

The usual route is that of fairseq's examples: a pool of workers encodes line by line and prints pieces, as in its
`multiprocessing_bpe_encoder.py`, and `fairseq-preprocess` binarizes them. Both use the same SentencePiece model and the
same number of workers, and give the same tokens.
"""

import argparse
import contextlib
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, heading, ratios

DATA_PREP = ROOT / "data-prep"
LINES_AT_A_TIME = 100  # as in fairseq's example


def start(model):
    global processor
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=model)


def encode_line(line):
    return " ".join(processor.encode(line.strip(), out_type=str))


def usual_route(text, folder, workers):
    encoded = folder / "encoded.txt"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(multiprocessing.Pool(workers, start, [str(folder / "sentencepiece.model")]))
        lines = stack.enter_context(open(text, encoding="utf-8"))
        out = stack.enter_context(open(encoded, "w", encoding="utf-8"))
        for pieces in pool.imap(encode_line, lines, LINES_AT_A_TIME):
            print(pieces, file=out)
    run("-m", "fairseq_cli.preprocess", "--only-source", "--srcdict", folder / "dict.txt", "--trainpref", encoded,
        "--destdir", folder / "usual", "--workers", workers)  # fmt: skip


def ours(text, folder, workers):
    run(DATA_PREP / "encode.py", "--input", text, "--spm-model", folder / "sentencepiece.model", "--split", "train",
        "--dest", folder / "ours", "--workers", workers)  # fmt: skip


def run(*arguments):
    subprocess.run(
        [sys.executable, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--input", required=True, type=Path, metavar="FILE", help="raw text that ends with a blank line"
    )
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=8000, help="(default: %(default)s)")
    args = parser.parse_args()

    with open(args.input, "rb") as text:
        size = text.seek(0, 2)
        text.seek(-min(size, 2), 2)
        if text.read() != b"\n\n":
            sys.exit(f"{args.input}: expected a blank line at the end, which the usual route does not add by itself")
    print(heading(multiprocessing.cpu_count()))
    print(f"{size / 1e6:.1f} MB of text, vocabulary {args.vocab_size}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(DATA_PREP / "prepare.py", "--train", args.input, "--valid", args.input, "--dest", folder,
            "--vocab-size", args.vocab_size, "--only-vocabulary")  # fmt: skip
        print("\n| workers | usual route, MB/s | data-prep, MB/s | ratio |\n|---|---|---|---|")
        for workers in [1, 2]:
            rates = {usual_route: [], ours: []}
            for _ in range(args.rounds):
                for route, found in rates.items():
                    begun = time.perf_counter()
                    route(args.input, folder, workers)
                    found.append(size / 1e6 / (time.perf_counter() - begun))
                same = (folder / "ours" / "train.bin").read_bytes() == (folder / "usual" / "train.bin").read_bytes()
                if not same:
                    sys.exit("the two routes give different tokens")
                shutil.rmtree(folder / "usual"), shutil.rmtree(folder / "ours")
            medians = " | ".join(f"{statistics.median(found):.2f}" for found in rates.values())
            print(f"| {workers} | {medians} | {ratios(rates[ours], rates[usual_route])} |", flush=True)


if __name__ == "__main__":
    main()
