#!/usr/bin/env python3
"""Checks MAE-LM on a GPU and measures it beside fairseq's RoBERTa, without a network; prints Markdown for RESULTS.md.

    python benchmarks/gpu.py > results.md

Parts, in this order, unless --only chooses:

    checks    losses and gradients in each precision, compiled too, without and with shared decoder layers, against
              float32 on the CPU
    updates   20 updates of recipes/pretrain_base.sh in each precision, also with shared decoder layers, stopped and
              resumed half-way
    steps     training steps beside roberta_base's, as by pretrain_step.py

Each part is a process of its own; if one fails, the others go on, and the exit status is 1.
"""

import argparse
import multiprocessing
import sys
from functools import partial

import torch

from common import VOCABULARY, heading
from gpu_checks import check_results, check_updates
from maelm_fairseq.base.errors import Parser, UsageError, run
from pretrain_step import compare

FULL = dict(tokens=512, batch_size=32, vocabulary=VOCABULARY, layers=12, width=768, heads=12, rounds=5, steps=10)
TINY = dict(tokens=32, batch_size=4, vocabulary=1000, layers=4, width=32, heads=2, rounds=1, steps=2)
STEPS = dict(mask_prob=0.15, decoder_layers=4, dropout=0.1, attention_dropout=0.1, threads=1, data=None)
BIASED = ["mae_lm_base", "mae_lm_base, bfloat16", "mae_lm_base, compiled", "mae_lm_base, shared"]
MODELS = ["roberta_base", *BIASED, *(f"{name}, no relative bias" for name in BIASED)]


def steps_of(settings, **changes):
    """The settings of pretrain_step.py: on a GPU in half precision; compiling on the CPU takes minutes."""
    on_gpu = settings.device == "cuda"
    only = [name for name in MODELS if on_gpu or "compiled" not in name]
    precision = "fp16" if on_gpu else "float32"
    return argparse.Namespace(**{**vars(settings), **STEPS, "precision": precision, "only": only, **changes})


def measure_steps(settings):
    compare(steps_of(settings))
    print()
    compare(steps_of(settings, mask_prob=0.3, decoder_layers=2))


PARTS = {"checks": check_results, "updates": check_updates, "steps": measure_steps}


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda", help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--tiny", action="store_true", help="sizes that are good for nothing but trying the program")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            f"--device cuda: PyTorch {torch.__version__} finds no GPU: check nvidia-smi and that PyTorch is a build "
            "for CUDA, or use --device cpu"
        )
    print(heading(multiprocessing.cpu_count(), args.device))
    settings, failed = argparse.Namespace(**vars(args), **(TINY if args.tiny else FULL)), []
    for name in args.only:
        print(f"\n## {name.capitalize()}\n", flush=True)
        process = multiprocessing.get_context("spawn").Process(target=run, args=(partial(PARTS[name], settings),))
        process.start()
        process.join()
        if process.exitcode:
            failed.append(name)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall parts passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    run(main)
