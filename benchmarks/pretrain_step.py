#!/usr/bin/env python3
"""Times one training step of MAE-LM and of fairseq's RoBERTa, in alternation.

A step is fairseq's `Trainer.train_step`: forward, backward, gradient clipping and Adam, on blocks of `--tokens` random
tokens. On the CPU each model runs in its own process, so that its peak memory can be measured; only one of them steps
at a time. On a GPU one process has all models, and peak memory is that of the tensors of one of them. Reports medians
over rounds, and the median of the ratios to the first model. On the CPU the plugin's models keep freed memory, as under
fairseq-train; fairseq's RoBERTa does so in a row of its own.

The operations of a step are those of its matrix products: 2 for each multiply-add, and three times the forward pass
for forward and backward. For B sequences of T tokens, V of them in the encoder, K predicted, width C, FFN width F,
vocabulary N:
    layer(q, k) = 2 q C (2 C) + 2 k C (2 C) + 4 q k C + 4 q C F     q rows computed from k rows
    encoder = L layer(V, V);   decoder = (D - 1) layer(T, T) + layer(K, T);   head = 2 K C (C + N)
With shared decoder layers, encoder and decoder are (L - D) layer(V, V) + (D - 1) (layer(T, T) - 4 V K C) + layer(K, T):
masks, K of them, attend to all T rows, the others not to masks.
The share of the matmul rate is this count over the time, divided by the rate of a plain matrix product of a layer's
sizes in the same precision, measured in the same process before each step.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

from common import FP16, VOCABULARY, Training, add_device, check_device, heading, ratios, synchronize, write_data
from maelm_fairseq.errors import Parser, UsageError, run
from maelm_fairseq.memory import keep_freed_memory

STOCK = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "roberta_base", "--optimizer", "adam"]
OURS = ["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--optimizer", "torch_adamw"]
KEEPING = "roberta_base, freed memory kept"  # as fairseq-train does with the plugin, on the CPU
SHARED = [*OURS, "--share-decoder-layers"]
NO_BIAS = ["--relative-position-num-buckets", 0]
VARIANTS = {
    "roberta_base": STOCK,
    KEEPING: STOCK,
    "mae_lm_base": OURS,
    "mae_lm_base, no relative bias": [*OURS, *NO_BIAS],
    "mae_lm_base, fairseq's Adam": [*OURS, "--optimizer", "adam"],
    "MLM, no relative bias": [*OURS, *NO_BIAS, "--decoder-layers", 0, "--encoder-mask-fraction", 1],
    "mae_lm_base, bfloat16": [*OURS, "--bf16-autocast"],
    "mae_lm_base, bfloat16, no relative bias": [*OURS, "--bf16-autocast", *NO_BIAS],
    "mae_lm_base, shared": SHARED,
    "mae_lm_base, shared, no relative bias": [*SHARED, *NO_BIAS],
    "mae_lm_base, shared, bfloat16": [*SHARED, "--bf16-autocast"],
    "mae_lm_base, shared, bfloat16, no relative bias": [*SHARED, "--bf16-autocast", *NO_BIAS],
    "mae_lm_base, compiled": [*OURS, "--compile"],
    "mae_lm_base, compiled, no relative bias": [*OURS, "--compile", *NO_BIAS],
}
SIZES = dict(layers=12, embed_dim=768, ffn_embed_dim=3072, attention_heads=12)  # of base
WARM_UP = 3  # steps of a new model on a GPU
PRODUCTS = 50  # matrix products timed at a time on a GPU

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
    T, N, L, D = args.tokens, args.vocabulary, args.sizes["layers"], args.decoder_layers
    C, F = args.sizes["embed_dim"], args.sizes["ffn_embed_dim"]
    K = round(args.mask_prob * (T - 1))
    V = T - K

    def layer(q, k):
        return 4 * q * C * C + 4 * k * C * C + 4 * q * k * C + 4 * q * C * F

    if "mae_lm" not in variant:
        layers = L * layer(T, T)
    elif "shared" in variant:
        layers = (L - D) * layer(V, V) + (D - 1) * (layer(T, T) - 4 * V * K * C) + layer(K, T)
    else:
        layers = L * layer(V, V) + (D - 1) * layer(T, T) + layer(K, T)
    forward = layers + 2 * K * C * (C + N)
    return 3 * forward * args.batch_size


def matmul_rate(args, dtype):
    """Operations per second of a plain matrix product with a feed-forward layer's sizes."""
    import torch

    C, F = args.sizes["embed_dim"], args.sizes["ffn_embed_dim"]
    x = torch.randn(args.batch_size * args.tokens, C, device=args.device).to(dtype)
    w = torch.randn(C, F, device=args.device).to(dtype)
    count, times = PRODUCTS if args.device == "cuda" else 1, []
    for _ in range(5):
        synchronize(args.device)
        start = time.perf_counter()
        for _ in range(count):
            x @ w
        synchronize(args.device)
        times.append((time.perf_counter() - start) / count)
    return 2 * x.numel() * F / statistics.median(times)


def training_arguments(folder, args, variant):
    """The options of fairseq-train for a model of VARIANTS."""
    arguments = [folder, "--sample-break-mode", "none", "--tokens-per-sample", args.tokens]
    arguments += ["--mask-prob", args.mask_prob, "--batch-size", args.batch_size]
    arguments += ["--attention-dropout", args.attention_dropout, "--adam-betas", "(0.9, 0.98)"]
    arguments += ["--lr", 1e-4, "--clip-norm", 2.0, "--num-workers", 0]
    for name, size in args.sizes.items():
        arguments += ["--encoder-" + name.replace("_", "-"), size]
    if VARIANTS[variant] is not STOCK:
        arguments += ["--decoder-layers", args.decoder_layers, "--max-positions", args.tokens]
    if args.precision == "fp16" and "bfloat16" not in variant:
        arguments += FP16
    return arguments + VARIANTS[variant]


class Model:
    """A model of VARIANTS in this process, with data of its own in a folder.

    `memory` is its peak in GiB: on a GPU of its tensors, in its first steps; on the CPU of this process.
    """

    def __init__(self, folder, args, variant):
        import torch

        self.args = args
        self.dtype = torch.half if args.precision == "fp16" else torch.float32
        if "bfloat16" in variant:
            self.dtype = torch.bfloat16
        write_data(folder, 8 * args.batch_size * [args.tokens - 1], args.vocabulary)
        gc.collect()
        before = torch.cuda.memory_allocated() if args.device == "cuda" else 0
        self.training = Training(training_arguments(folder, args, variant), args.device)
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            with mock.patch.object(torch.cuda, "reset_peak_memory_stats"):  # fairseq would do so in every step
                self.training.seconds(WARM_UP)
            self.memory = (torch.cuda.max_memory_allocated() - before) / 2**30

    def step(self):
        """Seconds of a step, and the rate of a matrix product in the same precision."""
        rate = matmul_rate(self.args, self.dtype)
        seconds = self.training.seconds(self.args.steps)
        if self.args.device == "cpu":
            self.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        return seconds, rate


class Process:
    """A :class:`Model` in a process of its own."""

    def __init__(self, *arguments):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, *arguments), daemon=True)
        self.process.start()
        other.close()  # so that the end of the process is noticed
        self.pipe.recv()

    def step(self):
        self.pipe.send("step")
        seconds, rate, self.memory = self.pipe.recv()
        return seconds, rate

    def __del__(self):
        self.process.terminate()


def work(pipe, folder, args, variant):
    """A process with one model, which makes a step whenever asked."""
    logging.disable(logging.INFO)
    import torch

    torch.set_num_threads(args.threads)
    if variant != "roberta_base":
        keep_freed_memory()
    model = Model(folder, args, variant)
    pipe.send("ready")
    while True:
        pipe.recv()
        seconds, rate = model.step()
        pipe.send((seconds, rate, model.memory))


def measure(models, rounds, kind=Process):
    """Times the steps of several models in alternation.

    Args:
        models: {name: (settings, variant)}
        rounds: number of timed rounds, in each of which each model makes `settings.steps` steps
        kind: class of the models: a :class:`Process` each, or a :class:`Model` in this process
    Returns:
        seconds of a step in each round and shares of the matmul rate, {name: list}; peak memory in GiB, {name: float}
    """
    with tempfile.TemporaryDirectory() as folder:
        workers, seconds, shares = {}, {name: [] for name in models}, {name: [] for name in models}
        for number, (name, (args, variant)) in enumerate(models.items()):
            data = Path(folder) / str(number)
            data.mkdir()
            workers[name] = kind(data, args, variant)
        for number in range(rounds + 1):
            for name, worker in workers.items():
                taken, rate = worker.step()
                if number:  # the first round is warm-up
                    seconds[name].append(taken)
                    shares[name].append(operations(*models[name]) / taken / rate)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        return seconds, shares, {name: worker.memory for name, worker in workers.items()}


def compare(args):
    """Prints a row for roberta_base and for each chosen model of VARIANTS."""
    left_out = ["compiled"] + [KEEPING] * (args.device == "cuda")
    only = args.only or [name for name in VARIANTS if not any(part in name for part in left_out)]
    chosen = [name for name in VARIANTS if name == "roberta_base" or name in only]
    kind = Process if args.device == "cpu" else Model
    seconds, shares, memory = measure({name: (args, name) for name in chosen}, args.rounds, kind)
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
        seconds, _, _ = measure(models, args.rounds, Process if args.device == "cpu" else Model)
        count = {name: operations(*model) for name, model in models.items()}
        name = ", ".join(f"{option.replace('_', ' ')} {value}" for option, value in changes.items())
        print(f"| {name or 'as above'} | {ratios(seconds['biased'], seconds['MLM'])} | "
              f"{ratios(seconds['plain'], seconds['MLM'])} | "
              f"{count['plain'] / count['MLM']:.2f} | {ratios(seconds['plain'], seconds['above'])} | "
              f"{count['plain'] / count['above']:.2f} |", flush=True)  # fmt: skip


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_device(parser)
    parser.add_argument(
        "--precision",
        choices=["float32", "fp16"],
        default="float32",
        help="of all models but those in bfloat16; fp16 needs a GPU (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1, help="steps of each model in a round (default: %(default)s)")
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
        "--only", nargs="+", metavar="MODEL", help="rows of the table besides roberta_base (default: all but compiled)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="vary one setting at a time, in comparison with the plugin's MLM"
    )
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="number of symbols (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count(), help="(default: all cores)")
    args = argparse.Namespace(**vars(parser.parse_args()), sizes=SIZES)
    check_device(args.device)
    if args.precision == "fp16" and args.device == "cpu":
        raise UsageError("--precision fp16 needs --device cuda")

    os.environ["PYTHONWARNINGS"] = "ignore"  # in the models' processes, for fairseq's use of hydra and torch
    print(heading(args.threads, args.device))
    print(f"{args.batch_size} x {args.tokens} tokens, {args.precision}, {args.mask_prob:.0%} predicted, "
          f"vocabulary {args.vocabulary}, {args.decoder_layers} decoder layers, "
          f"attention dropout {args.attention_dropout}, {args.rounds} rounds")  # fmt: skip

    (sweep if args.sweep else compare)(args)


if __name__ == "__main__":
    run(main)
