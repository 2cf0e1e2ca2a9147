#!/usr/bin/env python3
"""Start-up with many blocks: time and memory of the plugin's `TokenBlocks` and of fairseq's
`TokenBlockDataset`.

Writes data of about --blocks blocks of up to 64 tokens, in documents of 20 lines, and finds the
blocks once with each, from the index on, in a process of its own. Memory is the peak of the process
less what it had after its imports; pages of mapped files count.
"""

import multiprocessing
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from fairseq.data import TokenBlockDataset, data_utils

from common import heading
from maelm_fairseq.base.command_line import Parser
from maelm_fairseq.base.running import run_main
from maelm_fairseq.data.blocks import TokenBlocks

# Tokens of a block beside `<s>`, and where it ends: with a line, and at the latest with a document.
BLOCK_SETTINGS = 63, "complete_doc"
LONGEST_LINE = 35  # tokens
LINES_OF_DOCUMENT = 20
LINES_OF_BLOCK = 2.82  # on average
CHUNK_TOKENS = 1 << 24  # tokens written at a time


def write_random_tokens(prefix, blocks):
    """Writes random tokens in fairseq's format."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, LONGEST_LINE + 1, round(blocks * LINES_OF_BLOCK), dtype=np.int32)
    sizes[LINES_OF_DOCUMENT::LINES_OF_DOCUMENT] = 1  # an empty line ends a document
    ends = np.cumsum(sizes, dtype=np.int64)
    tokens = rng.integers(4, 1000, CHUNK_TOKENS, dtype=np.uint16)
    with open(f"{prefix}.bin", "wb") as stream:
        for first in range(0, ends[-1], CHUNK_TOKENS):
            tokens[: ends[-1] - first].tofile(stream)
    with open(f"{prefix}.idx", "wb") as stream:
        stream.write(b"MMIDIDX\x00\x00")
        stream.write((1).to_bytes(8, "little"))  # the version
        stream.write(b"\x08")  # the type of the tokens, uint16
        stream.write(len(sizes).to_bytes(8, "little"))
        sizes.tofile(stream)
        (tokens.itemsize * (ends - sizes)).tofile(stream)


def fairseq_blocks(prefix, block_size, break_mode):
    lines = data_utils.load_indexed_dataset(prefix)
    return TokenBlockDataset(lines, lines.sizes, block_size, pad=1, eos=2, break_mode=break_mode)


def memory(name):
    """VmRSS or VmHWM of this process, its present and its highest memory, in MiB."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def measure_blocks(find, prefix):
    """The number of blocks found, seconds, and MiB."""
    before = memory("VmRSS")
    start = time.perf_counter()
    blocks = find(prefix, *BLOCK_SETTINGS)
    seconds = time.perf_counter() - start
    return len(blocks), seconds, memory("VmHWM") - before


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=5_000_000, help="(default: %(default)s)")
    args = parser.parse_args()
    print(heading(1), "\n\n| blocks | found by | seconds | MiB |\n|---|---|---|---|", sep="")
    finders = {"TokenBlocks": TokenBlocks, "fairseq's TokenBlockDataset": fairseq_blocks}
    with tempfile.TemporaryDirectory() as folder:
        write_random_tokens(f"{folder}/train", args.blocks)
        for name, find in finders.items():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                measured = pool.submit(measure_blocks, find, f"{folder}/train")
                blocks, seconds, peak = measured.result()
            print(f"| {blocks:,} | {name} | {seconds:.2f} | {peak:,.0f} |", flush=True)


if __name__ == "__main__":
    run_main(main)
