#!/usr/bin/env python3
"""Times encoding sentences of mixed lengths: the plugin's hub interface and that of fairseq's RoBERTa, in alternation.

Both models have base size and random weights. RoBERTa's interface is used as fairseq's README shows for batches:
`collate_tokens` of 32 sentences in the given order, then `extract_features`. Ours gets all sentences at once. Reports
medians over rounds, the medians of the ratios to RoBERTa's, and the difference between bfloat16 and float32 features:
the norm of the difference over the norm.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from common import VOCABULARY, add_device, check_device, configuration, heading, ratios, synchronize, write_data
from maelm_fairseq.engine.errors import Parser, run
from maelm_fairseq.hub import MaeLm
from maelm_fairseq.model import MaeLmConfig, MaeLmModel

BATCH = 32
POSITIONS = 512


def sentences(count):
    """Random sentences with `<s>` first, of log-normal lengths around 25 as in text: list of int64 tensors (T,)."""
    rng = np.random.default_rng(1)
    lengths = np.clip(np.exp(rng.normal(np.log(25), 0.6, count)), 3, POSITIONS).astype(int)
    return [torch.tensor([0, *rng.integers(4, VOCABULARY - 1, n - 2).tolist(), 2]) for n in lengths]


def interfaces(folder, device, sizes=None):
    """{name: function of a list of tokens (T,) that computes features}, RoBERTa's first.

    Args:
        folder: with the data
        device: "cpu" or "cuda"
        sizes: {option of the encoder: value} that differ from base's
    """
    from fairseq import tasks
    from fairseq.data.data_utils import collate_tokens
    from fairseq.models.roberta import RobertaHubInterface

    options = [folder, "--task", "masked_lm", "--arch", "roberta_base", "--max-positions", POSITIONS]
    for name, size in (sizes or {}).items():
        options += ["--" + name.replace("_", "-"), size]
    cfg = configuration([*options, "--sample-break-mode", "none", "--tokens-per-sample", POSITIONS])
    task = tasks.setup_task(cfg.task)
    roberta = RobertaHubInterface(cfg, task, task.build_model(cfg.model)).eval().to(device)
    dictionary = task.source_dictionary
    config = MaeLmConfig(max_positions=POSITIONS, **(sizes or {}))
    ours = MaeLm(MaeLmModel(config, dictionary, pretraining=False).eval(), dictionary, None, None).to(device)

    @torch.no_grad()
    def peer(rows):
        for first in range(0, len(rows), BATCH):
            batch = collate_tokens(rows[first : first + BATCH], pad_idx=dictionary.pad())
            roberta.extract_features(batch)

    def plugin(rows):
        return ours.extract_features(torch.nn.utils.rnn.pad_sequence(rows, True, dictionary.pad()))

    def in_bfloat16(rows):
        with torch.autocast(device, torch.bfloat16):
            return plugin(rows)

    return {"RobertaHubInterface": peer, "MaeLm": plugin, "MaeLm, bfloat16": in_bfloat16}


def measure(count, rounds, device, sizes=None):
    """Prints a table of the rates at which the interfaces encode `count` sentences."""
    rows, seconds = sentences(count), {}
    print(f"{count} sentences, {sum(map(len, rows))} tokens, the longest {max(map(len, rows))}")
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), [POSITIONS])
        functions = interfaces(folder, device, sizes)
    for number in range(rounds + 1):
        for name, function in functions.items():
            synchronize(device)
            start = time.perf_counter()
            function(rows)
            synchronize(device)
            if number:  # the first round is warm-up
                seconds.setdefault(name, []).append(time.perf_counter() - start)
    features, short = functions["MaeLm"](rows), functions["MaeLm, bfloat16"](rows).float()
    print("\n| interface | sentences per second | rate over RobertaHubInterface's |\n|---|---|---|")
    for name, taken in seconds.items():
        rate = len(rows) / statistics.median(taken)
        print(f"| {name} | {rate:.1f} | {ratios(seconds['RobertaHubInterface'], taken)} |")
    print(f"\nfeatures in bfloat16 differ from float32's by {(short - features).norm() / features.norm():.1e}")


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--sentences", type=int, default=256, help="sentences per round (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count(), help="(default: all cores)")
    args = parser.parse_args()
    check_device(args.device)
    torch.set_num_threads(args.threads)
    print(heading(args.threads, args.device))
    measure(args.sentences, args.rounds, args.device)


if __name__ == "__main__":
    run(main)
