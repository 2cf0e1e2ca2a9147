#!/usr/bin/env python3
"""Checks MAE-LM on a GPU and measures it beside fairseq's RoBERTa: everything for the day when a GPU is there.

    benchmarks/gpu.sh > results.md

Prints Markdown for RESULTS.md. Parts, in this order, unless --only chooses:

    checks            losses and gradients in each precision, compiled too, without and with shared decoder layers,
                      against float32 on the CPU
    steps             step time, tokens per second, memory and matrix-unit utilisation, beside roberta_base
    synchronisations  where the host waits for the GPU in forward and backward
    updates           20 updates of recipes/pretrain_base.sh in each precision, also with shared decoder layers, stopped
                      and resumed half-way
    finetuning        steps of fairseq's sentence_prediction, beside roberta_base
    encoding          sentences per second, beside RobertaHubInterface
    data              masked batches per second, on the CPU, beside fairseq's masked_lm

Each part is a process of its own. One that fails, or takes longer than is left of --minutes, prints a line and does
not stop the others; the exit status is 1 then. Stack traces go to standard error.
"""

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback

import data_pipeline
import encoding_rate
from common import VOCABULARY, add_device, check_device, heading
from gpu_checks import Failure, check_results, check_updates
from gpu_steps import count_synchronisations, measure_finetuning, measure_steps
from maelm_fairseq.errors import Parser, run
from pretrain_step import SIZES

FULL = dict(tokens=512, batch_size=32, vocabulary=VOCABULARY, sizes=SIZES, rounds=5, steps=10, sentences=2048)
TINY_SIZES = dict(layers=4, embed_dim=32, ffn_embed_dim=64, attention_heads=2)
TINY = dict(tokens=32, batch_size=4, vocabulary=1000, sizes=TINY_SIZES, rounds=1, steps=2, sentences=8)


def encoding(settings):
    rows = encoding_rate.sentences(settings.sentences)
    print(f"{len(rows)} sentences, {sum(map(len, rows))} tokens, the longest {max(map(len, rows))}")
    sizes = {f"encoder_{name}": size for name, size in settings.sizes.items()}
    encoding_rate.measure(rows, settings.rounds, settings.device, sizes)


def data(settings):
    print(f"blocks of {settings.tokens} tokens, batches of {settings.batch_size}, 15% masked")
    rounds, lines = (1, 2000) if settings.tiny else (2, data_pipeline.LINES)
    data_pipeline.measure(rounds, settings.tokens, settings.batch_size, lines)


PARTS = {
    "checks": ("Results on the device", check_results),
    "steps": ("Training steps", measure_steps),
    "synchronisations": ("Host synchronisations", count_synchronisations),
    "updates": ("Updates of a recipe", check_updates),
    "finetuning": ("Fine-tuning", measure_finetuning),
    "encoding": ("Encoding", encoding),
    "data": ("Data loader", data),
}


def run_part(name, settings):
    """Runs a part in this process; returns whether it succeeded."""
    title, function = PARTS[name]
    print(f"\n## {title}", flush=True)
    try:
        function(settings)
    except Exception as error:  # whatever it is, the other parts go on
        if not isinstance(error, Failure):
            traceback.print_exc()
        message = (str(error).strip().splitlines() or [""])[0]
        print(f"\n**{name} failed**: {'' if isinstance(error, Failure) else type(error).__name__ + ': '}{message}")
        return False
    return True


def run_apart(name, seconds):
    """Runs a part in a process of its own, with the options of this one; returns whether it succeeded.

    Args:
        seconds: after which it is killed, with all processes that it has started
    """
    command = [sys.executable, "-u", os.path.abspath(__file__), *sys.argv[1:], "--part", name]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait(timeout=max(seconds, 0))
    except subprocess.TimeoutExpired:
        status = "took longer than the minutes that were left"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status not in (0, 1):  # with 1 it has said why
        print(f"\n**{name} failed**: {status if isinstance(status, str) else f'exit status {status}'}", flush=True)
    return status == 0


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.set_defaults(device="cuda")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts (default: all)")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)  # run this one, in this process
    parser.add_argument("--tiny", action="store_true", help="sizes that are good for nothing but trying the program")
    parser.add_argument("--minutes", type=float, default=8, help="for all parts together (default: %(default)s)")
    args = parser.parse_args()
    check_device(args.device)
    settings = argparse.Namespace(**vars(args), **(TINY if args.tiny else FULL), fp16=args.device == "cuda")

    if args.part:
        sys.exit(not run_part(args.part, settings))
    end = time.monotonic() + 60 * args.minutes
    print("# On a GPU\n" if args.device == "cuda" else "# On the CPU\n")
    print(heading(multiprocessing.cpu_count(), args.device), flush=True)
    failed = []
    for name in args.only:
        begin = time.monotonic()
        if not run_apart(name, end - begin):
            failed.append(name)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{len(args.only) - len(failed)} of {len(args.only)} parts passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    run(main)
