#!/usr/bin/env python3
"""Trains the same small MAE-LM on the same batches in float32 and in bfloat16 autocast, and compares their losses.

Four layers of width 256, 64 tokens, no dropout, so that only rounding differs. Reports the validation loss after
--updates, in bits per predicted token.
"""

import argparse
import json
import subprocess
import sys
import tempfile

from common import PLUGIN, heading
from maelm_fairseq.errors import Parser, run

SETTINGS = [
    "--arch", "mae_lm_tiny", "--encoder-layers", "4", "--encoder-embed-dim", "256", "--encoder-ffn-embed-dim", "1024",
    "--encoder-attention-heads", "4", "--decoder-layers", "2", "--relative-position-local-init",
    "--decoder-relative-bias", "--dropout", "0", "--attention-dropout", "0", "--max-positions", "64",
    "--tokens-per-sample", "64", "--mask-prob", "0.3", "--batch-size", "32", "--num-workers", "0",
    "--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "2.0", "--lr", "1e-3",
    "--lr-scheduler", "polynomial_decay", "--warmup-updates", "100", "--total-num-update", "100000",
]  # fmt: skip


def valid_loss(data, updates, options):
    """The validation loss of a run of fairseq-train, in bits per predicted token."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fairseq_cli.train", data, "--user-dir", str(PLUGIN), "--cpu", "--no-save"]
        command += ["--task", "mae_lm", "--criterion", "mae_lm", *SETTINGS, "--max-update", str(updates)]
        command += ["--save-dir", folder, "--log-format", "json", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if '"valid_loss"' in line]
    if done.returncode or not lines:
        sys.exit(done.stdout)
    return float(json.loads(lines[-1])["valid_loss"])


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="binarized text from data-prep/prepare.sh")
    parser.add_argument("--updates", type=int, default=200, help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="number of runs of each (default: %(default)s)")
    args = parser.parse_args()
    print(heading("all"))
    print("\n| seed | float32 | bfloat16 | difference |\n|---|---|---|---|")
    for seed in range(1, args.seeds + 1):
        exact = valid_loss(args.data, args.updates, ["--seed", str(seed)])
        rounded = valid_loss(args.data, args.updates, ["--seed", str(seed), "--bf16-autocast"])
        print(f"| {seed} | {exact:.3f} | {rounded:.3f} | {rounded / exact - 1:+.2%} |", flush=True)


if __name__ == "__main__":
    run(main)
