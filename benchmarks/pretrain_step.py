#!/usr/bin/env python3
"""Times one training step of MAE-LM and of fairseq's RoBERTa, in alternation.

A step is fairseq's `Trainer.train_step`: forward, backward, gradient clipping and Adam, on blocks of `--tokens` random
tokens. Each model runs in its own process, so that its peak memory can be measured; only one of them steps at a time.
Reports medians over rounds, and the median of the ratios to the first model.

The operations of a step are those of its matrix products: 2 for each multiply-add, and three times the forward pass
for forward and backward. For B sequences of T tokens, V of them in the encoder, K predicted, width C, FFN width F,
vocabulary N:
    layer(q, k) = 2 q C (2 C) + 2 k C (2 C) + 4 q k C + 4 q C F     q rows computed from k rows
    encoder = L layer(V, V);   decoder = (D - 1) layer(T, T) + layer(K, T);   head = 2 K C (C + N)
The share of the matmul rate is this count over the time, divided by the rate of a plain matrix product of a layer's
sizes in the same precision, measured in the same process before each step.
"""

import argparse
import itertools
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import VOCABULARY, configuration, heading, ratios, write_data
from maelm_fairseq.errors import Parser, run

STOCK = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]
OURS = ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
NO_BIAS = ["--relative-position-num-buckets", 0]
VARIANTS = {
    "roberta_base": STOCK,
    "mae_lm_base": OURS,
    "mae_lm_base, no relative bias": [*OURS, *NO_BIAS],
    "mae_lm_base, fairseq's Adam": [*OURS, "--optimizer", "adam"],
    "MLM, no relative bias": [*OURS, *NO_BIAS, "--decoder-layers", 0, "--encoder-mask-fraction", 1],
    "mae_lm_base, bfloat16": [*OURS, "--bf16-autocast"],
    "mae_lm_base, bfloat16, no relative bias": [*OURS, "--bf16-autocast", *NO_BIAS],
}


SWEEP = [
    {},
    *({"tokens": tokens} for tokens in [128, 256]),
    *({"mask_prob": share} for share in [0.3, 0.5]),
    *({"decoder_layers": layers} for layers in [1, 2]),
    *({"batch_size": size} for size in [1, 4]),
    {"mask_prob": 0.3, "decoder_layers": 2},
]


def operations(args, variant):
    """Operations in the matrix products of one step, by the formula above."""
    T, C, F, L, N = args.tokens, 768, 3072, 12, args.vocabulary
    K = round(args.mask_prob * (T - 1))

    def layer(q, k):
        return 4 * q * C * C + 4 * k * C * C + 4 * q * k * C + 4 * q * C * F

    head = 2 * K * C * (C + N)
    if "mae_lm" not in variant:
        forward = L * layer(T, T) + head
    else:
        forward = L * layer(T - K, T - K) + (args.decoder_layers - 1) * layer(T, T) + layer(K, T) + head
    return 3 * forward * args.batch_size


def matmul_rate(args, dtype):
    """Operations per second of a plain matrix product with a feed-forward layer's sizes."""
    import torch

    x, w = torch.randn(args.batch_size * args.tokens, 768).to(dtype), torch.randn(768, 3072).to(dtype)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        x @ w
        times.append(time.perf_counter() - start)
    return 2 * x.numel() * 3072 / statistics.median(times)


def work(pipe, folder, args, variant):
    """A process with one model: builds it as fairseq-train does, then makes a step whenever asked."""
    logging.disable(logging.INFO)
    import torch
    from fairseq import tasks
    from fairseq.trainer import Trainer

    torch.set_num_threads(args.threads)
    arguments = [folder, "--sample-break-mode", "none", "--tokens-per-sample", args.tokens]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.batch_size]
    arguments += ["--attention-dropout", args.attention_dropout, "--adam-betas", "(0.9, 0.98)"]
    arguments += ["--lr", 1e-4, "--clip-norm", 2.0, "--num-workers", 0]
    if VARIANTS[variant] is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    arguments += VARIANTS[variant]
    cfg = configuration(arguments)
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    batches = list(trainer.get_train_iterator(epoch=1).next_epoch_itr())
    pipe.send("ready")
    for batch in itertools.cycle(batches):
        if pipe.recv() == "stop":
            return
        rate = matmul_rate(args, torch.bfloat16 if "bfloat16" in variant else torch.float32)
        start = time.perf_counter()
        trainer.train_step([batch])
        seconds = time.perf_counter() - start
        pipe.send((seconds, rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def measure(models, rounds):
    """Times the steps of several models in alternation.

    Args:
        models: {name: (settings, variant)}
        rounds: number of timed steps of each model
    Returns:
        seconds of each step and shares of the matmul rate, {name: list}; peak memory in GiB, {name: float}
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        workers, seconds, shares, memory = {}, {}, {}, {}
        for number, (name, (args, variant)) in enumerate(models.items()):
            data = Path(folder) / str(number)
            data.mkdir()
            write_data(data, 8 * args.batch_size * [args.tokens - 1], args.vocabulary)
            pipe, other = context.Pipe()
            context.Process(target=work, args=(other, data, args, variant), daemon=True).start()
            pipe.recv()
            workers[name], seconds[name], shares[name] = pipe, [], []
        for number in range(rounds + 1):
            for name, pipe in workers.items():
                pipe.send("step")
                taken, rate, memory[name] = pipe.recv()
                if number:  # the first round is warm-up
                    seconds[name].append(taken)
                    shares[name].append(operations(*models[name]) / taken / rate)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        for pipe in workers.values():
            pipe.send("stop")
    return seconds, shares, memory


def compare(args):
    """Prints a row for roberta_base and for each chosen model of VARIANTS."""
    chosen = [name for name in VARIANTS if name == "roberta_base" or not args.only or name in args.only]
    seconds, shares, memory = measure({name: (args, name) for name in chosen}, args.rounds)
    print(
        "\n| model | sequences per second | step time over roberta_base's | peak memory, GiB | share of matmul rate |"
    )
    print("|---|---|---|---|---|")
    for variant in chosen:
        print(f"| {variant} | {args.batch_size / statistics.median(seconds[variant]):.2f} | "
              f"{ratios(seconds[variant], seconds['roberta_base'])} | {memory[variant]:.1f} | "
              f"{statistics.median(shares[variant]):.2f} |")  # fmt: skip


def sweep(args):
    """Prints a row for each setting of SWEEP: step times over the plugin's MLM, and over the first setting."""
    columns = ["setting", "mae_lm_base", "without relative bias", "by the formula"]
    print("\nStep time over that of the plugin's MLM without relative bias, whose encoder computes every position;")
    print("and, without relative bias, over that with the settings above:\n")
    print("| " + " | ".join([*columns, "over the settings above", "by the formula"]) + " |\n" + "|---" * 6 + "|")
    plain, mlm = "mae_lm_base, no relative bias", "MLM, no relative bias"
    for changes in SWEEP:
        setting = argparse.Namespace(**{**vars(args), **changes})
        models = {
            "above": (args, plain),
            "MLM": (setting, mlm),
            "plain": (setting, plain),
            "biased": (setting, "mae_lm_base"),
        }
        seconds, _, _ = measure(models, args.rounds)
        count = {name: operations(*model) for name, model in models.items()}
        name = ", ".join(f"{option.replace('_', ' ')} {value}" for option, value in changes.items())
        print(f"| {name or 'as above'} | {ratios(seconds['biased'], seconds['MLM'])} | "
              f"{ratios(seconds['plain'], seconds['MLM'])} | "
              f"{count['plain'] / count['MLM']:.2f} | {ratios(seconds['plain'], seconds['above'])} | "
              f"{count['plain'] / count['above']:.2f} |", flush=True)  # fmt: skip


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each model (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=4, help="sequences per step (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=512, help="tokens per sequence (default: %(default)s)")
    parser.add_argument(
        "--mask-prob", type=float, default=0.15, help="share of predicted tokens (default: %(default)s)"
    )
    parser.add_argument("--decoder-layers", type=int, default=4, help="decoder layers of MAE-LM (default: %(default)s)")
    parser.add_argument(
        "--attention-dropout", type=float, default=0.0, help="attention dropout of all models (default: %(default)s)"
    )
    parser.add_argument(
        "--only", nargs="+", metavar="MODEL", help="rows of the table besides roberta_base (default: all)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="vary one setting at a time, in comparison with the plugin's MLM"
    )
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="number of symbols (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count(), help="(default: all cores)")
    args = parser.parse_args()

    os.environ["PYTHONWARNINGS"] = "ignore"  # in the models' processes, for fairseq's use of hydra and torch
    print(heading(args.threads))
    print(f"{args.batch_size} x {args.tokens} tokens, {args.mask_prob:.0%} predicted, vocabulary {args.vocabulary}, "
          f"{args.decoder_layers} decoder layers, attention dropout {args.attention_dropout}, "
          f"{args.rounds} rounds")  # fmt: skip

    (sweep if args.sweep else compare)(args)


if __name__ == "__main__":
    run(main)
