#!/usr/bin/env python3
"""Start-up time and memory of fairseq-train with many blocks: the plugin's task and fairseq's `masked_lm`, in turn.

Data of --blocks blocks of up to 64 tokens are written directly as `.bin` and `.idx`, to --folder if given, where the
next run reuses them. `fairseq-train` then makes one update of a tiny model on the CPU, in one process or several, each
with loader workers. The time is from its start to the end of the update, imports included. Memory is proportional
(Linux's PSS: a page that n processes map counts 1/n for each), sampled while it runs: the highest of one training
process, and of all processes together, loader workers included.

`first` is the first run on new data, after which the plugin maps the blocks that it has stored beside them.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from common import PLUGIN, heading
from maelm_fairseq.base.errors import Parser, UsageError, run
from maelm_fairseq.base.files import atomic_folder

VOCABULARY = 1000
TOKENS = 64  # of a block at most
LINES_OF_DOCUMENT = 20
MEAN_LINE = 18  # tokens
LINES_OF_BLOCK = 2.82  # on average, where blocks end at line ends
BLOCKS_OF_VALID = 64
BATCH_SIZE, WORKERS = 32, 2  # blocks; loader workers of each process
CHUNK = 1 << 20  # lines written at a time
SIZES = ["--encoder-layers", 1, "--encoder-embed-dim", 32, "--encoder-attention-heads", 2]
TASKS = {
    "fairseq's masked_lm": ["--task", "masked_lm", "--arch", "roberta", "--criterion", "masked_lm"],
    "mae_lm": [
        *["--user-dir", PLUGIN, "--task", "mae_lm", "--arch", "mae_lm_tiny", "--criterion", "mae_lm"],
        *["--decoder-layers", 1],
    ],
}


def write_split(prefix, blocks):
    """Writes random tokens in lines and documents, about so many blocks of them."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(4, VOCABULARY - 2, CHUNK * 2 * MEAN_LINE).astype(np.uint16)
    lines, positions = [], 0
    left = round(blocks * LINES_OF_BLOCK)
    with open(f"{prefix}.bin", "wb") as binary:
        while left:
            sizes = rng.integers(2, 2 * MEAN_LINE, min(CHUNK, left)).astype(np.int32)
            sizes[LINES_OF_DOCUMENT::LINES_OF_DOCUMENT] = 1
            sizes[-1] = 1
            ends = np.cumsum(sizes, dtype=np.int64)
            part = tokens[: ends[-1]].copy()
            part[ends - 1] = 2
            part.tofile(binary)
            lines.append(sizes)
            left -= len(sizes)
    sizes = np.concatenate(lines)
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x08" + len(sizes).to_bytes(8, "little"))
        sizes.tofile(index)
        for first in range(0, len(sizes), CHUNK):
            part = np.cumsum(sizes[first : first + CHUNK], dtype=np.int64)
            (2 * (positions + part - sizes[first : first + CHUNK])).tofile(index)
            positions += int(part[-1])


def write_data(folder, blocks):
    """Writes a folder of data."""
    with atomic_folder(folder) as partial:
        with open(f"{partial}/dict.txt", "w") as stream:
            stream.writelines(f"w{i} 1\n" for i in range(VOCABULARY - 5))
        write_split(f"{partial}/train", blocks)
        write_split(f"{partial}/valid", BLOCKS_OF_VALID)


def command(task, data, folder, processes):
    options = [
        *[data, *TASKS[task], *SIZES, "--sample-break-mode", "complete_doc", "--tokens-per-sample", TOKENS],
        *["--max-positions", TOKENS, "--batch-size", BATCH_SIZE, "--num-workers", WORKERS, "--optimizer", "adam"],
        *["--lr", 1e-4, "--max-update", 1, "--cpu", "--disable-validation", "--no-save", "--log-format", "json"],
        *["--log-interval", 1, "--save-dir", folder / "save"],
    ]
    if processes == 1:
        return ["fairseq-train", *options]
    return [
        *["torchrun", "--no-python", "--standalone", "--nproc_per_node", processes, "bash", "-c"],
        *['exec "$0" "$@" --distributed-rank $RANK', "fairseq-train", *options, "--distributed-backend", "gloo"],
        *["--distributed-world-size", processes, "--distributed-no-spawn", "--distributed-init-method", "env://"],
        *["--ddp-backend", "legacy_ddp"],
    ]


def memory_of(process):
    """The PSS in bytes of a process and of each of its descendants."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    family, memory = [process], []
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
            memory += [1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return memory


def measure(arguments):
    """Runs a command until its first update; returns seconds, and the highest PSS in GiB of one process and of all."""
    process = subprocess.Popen(
        list(map(str, arguments)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )  # fmt: skip
    start, updated, highest, printed = time.perf_counter(), None, [0, 0], []

    def watch():
        while process.poll() is None:
            memory = memory_of(process.pid)
            highest[:] = max([highest[0], *memory]), max(highest[1], sum(memory))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for line in process.stdout:
        printed.append(line)
        if '"num_updates": "1"' in line and not updated:
            updated = time.perf_counter() - start
    process.wait()
    watcher.join()
    if process.returncode or not updated:
        raise UsageError(f"fairseq-train failed:\n{''.join(printed)}")
    return updated, highest[0] / 2**30, highest[1] / 2**30


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[500_000, 5_000_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument("--folder", type=Path, help="for the data: 8.5 GB for 50 million blocks")
    args = parser.parse_args()

    print(heading(os.cpu_count()))
    print("\n| blocks | processes | task | seconds to the first update | GiB of a process | GiB of all |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for blocks in args.blocks:
            data = (args.folder or Path(temporary)) / f"blocks-{blocks}"
            if not data.exists():
                write_data(data, blocks)
            for processes in args.processes:
                for task in args.only:
                    arguments, before = command(task, data, Path(temporary), processes), set(data.iterdir())
                    rows = [measure(arguments)]
                    if set(data.iterdir()) != before:  # it has stored the blocks
                        rows.append(measure(arguments))
                    for name, (seconds, one, together) in zip([f"{task}, first", task][-len(rows) :], rows):
                        cells = f"{seconds:.1f} | {one:.2f} | {together:.2f}"
                        print(f"| {blocks:,} | {processes} | {name} | {cells} |", flush=True)
            if not args.folder:
                shutil.rmtree(data)


if __name__ == "__main__":
    run(main)
