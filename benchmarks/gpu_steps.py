"""Measurements of gpu.py: training steps, host synchronisations and fine-tuning of MAE-LM and fairseq's RoBERTa."""

import argparse
import contextlib
import gc
import statistics
import tempfile
import warnings
from pathlib import Path

import torch

import encoding_rate
from common import FP16, Training, ratios, write_data
from gpu_checks import NEEDS_A_GPU
from pretrain_step import Model, measure, operations, training_arguments

# {model: target of its step time over roberta_base's}
TABLES = [
    (
        {},
        {
            "roberta_base": "",
            "mae_lm_base": "1.15",
            "mae_lm_base, no relative bias": "0.95",
            "mae_lm_base, compiled": "1.15",
            "mae_lm_base, compiled, no relative bias": "0.95",
            "mae_lm_base, bfloat16": "",
            "mae_lm_base, shared": "",
            "mae_lm_base, shared, no relative bias": "",
            "mae_lm_base, shared, bfloat16": "",
        },
    ),
    (
        dict(mask_prob=0.3, decoder_layers=2),
        {
            "roberta_base": "",
            "mae_lm_base": "0.85",
            "mae_lm_base, no relative bias": "0.85",
            "mae_lm_base, compiled": "0.85",
            "mae_lm_base, shared": "",
        },
    ),
]
SYNCHRONISES = "called a synchronizing CUDA operation"  # PyTorch's warning
SYNCHRONISED = [
    *["roberta_base", "mae_lm_base", "mae_lm_base, no relative bias", "mae_lm_base, bfloat16"],
    *["mae_lm_base, shared", "mae_lm_base, shared, no relative bias"],
]
FINETUNED = {"roberta_base": "adam", "mae_lm_base": "torch_adamw"}  # architectures with their optimizers


def step_settings(settings, **changes):
    """The settings of pretrain_step.py, in half precision on a GPU."""
    precision = "fp16" if settings.fp16 else "float32"
    steps = dict(mask_prob=0.15, decoder_layers=4, attention_dropout=0.1, precision=precision)
    return argparse.Namespace(**{**vars(settings), **steps, **changes})


def measure_steps(settings):
    """Prints a table for each entry of TABLES: steps of models that take turns in this process."""
    for changes, targets in TABLES:
        args = step_settings(settings, **changes)
        seconds, shares, memory = measure({name: (args, name) for name in targets}, args.rounds, Model)
        tokens = args.batch_size * args.tokens
        print(f"\n{args.batch_size} x {args.tokens} tokens, {args.precision} (rows with bfloat16: autocast), "
              f"{args.mask_prob:.0%} predicted, {args.decoder_layers} decoder layers, vocabulary {args.vocabulary}, "
              f"dropout 0.1, attention dropout {args.attention_dropout}; {args.rounds} rounds of {args.steps} steps\n"
              )  # fmt: skip
        print("| model | ms a step | tokens per second | step time over roberta_base's | target | peak memory, GiB | "
              "TFLOP/s | matrix-unit utilisation |\n" + "|---" * 8 + "|")  # fmt: skip
        for name, target in targets.items():
            taken = statistics.median(seconds[name])
            peak = f"{memory[name]:.1f}" if args.device == "cuda" else NEEDS_A_GPU
            print(f"| {name} | {1000 * taken:.1f} | {tokens / taken:,.0f} | "
                  f"{ratios(seconds[name], seconds['roberta_base'])} | {target} | {peak} | "
                  f"{operations(args, name) / taken / 1e12:.1f} | {statistics.median(shares[name]):.2f} |",
                  flush=True)  # fmt: skip
        free()


def free():
    """Forgets models that are used no more: their memory, and what was compiled for them."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def host_synchronisations():
    """Lists the operations within the block at which the host waits for the GPU, as places in the Python code."""
    places = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if SYNCHRONISES in str(warning.message):
            places.append(f"{Path(warning.filename).name}:{warning.lineno}")


def micro_batch(training):
    """A function that makes forward and backward of a batch which is on the device already."""
    from fairseq import utils

    training.seconds(2)  # the first steps allocate and choose kernels
    batch, trainer = next(training.batches), training.trainer
    if trainer.cuda:
        batch = utils.move_to_cuda(batch)

    def run():
        return training.task.train_step(
            sample=batch,
            model=trainer.model,
            criterion=trainer.criterion,
            optimizer=trainer.optimizer,
            update_num=trainer.get_num_updates(),
        )

    return run


def count_synchronisations(settings):
    """Prints how often the host waits in forward and backward of a micro-batch, and where."""
    args = step_settings(settings)
    print("\n| model | host synchronisations in forward and backward | target | where |\n|---|---|---|---|")
    for name in SYNCHRONISED:
        with tempfile.TemporaryDirectory() as folder:
            write_data(Path(folder), 4 * args.batch_size * [args.tokens - 1], args.vocabulary)
            run = micro_batch(Training(training_arguments(folder, args, name), args.device))
        count, where = NEEDS_A_GPU, ""
        if args.device == "cuda":
            torch.cuda.synchronize()
            with host_synchronisations() as places:
                run()
            count = len(places)
            where = ", ".join(f"{place} ({places.count(place)})" for place in sorted(set(places)))
        else:
            run()
        print(f"| {name} | {count} | {'' if name == 'roberta_base' else 'none'} | {where} |", flush=True)
        del run
        free()


def finetuning_arguments(folder, settings, architecture):
    """The options of fairseq-train for a classifier of sentences on generated data."""
    arguments = [folder, "--task", "sentence_prediction", "--criterion", "sentence_prediction", "--num-classes", 2]
    arguments += ["--init-token", 0, "--max-positions", encoding_rate.POSITIONS, "--arch", architecture]
    arguments += ["--batch-size", settings.batch_size, "--num-workers", 0, "--lr", 1e-5]
    arguments += ["--optimizer", FINETUNED[architecture], "--adam-betas", "(0.9, 0.98)"]
    for name, size in settings.sizes.items():
        arguments += ["--encoder-" + name.replace("_", "-"), size]
    return arguments + (FP16 if settings.fp16 else [])


def measure_finetuning(settings):
    """Prints the rates of fine-tuning both models with fairseq's sentence_prediction, in turn."""
    seconds, batches = {name: [] for name in FINETUNED}, 8
    lengths = [len(row) - 1 for row in encoding_rate.sentences(batches * settings.batch_size)]  # fairseq adds <s>
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ["input0", "label"]:
            (folder / part).mkdir()
        write_data(folder / "input0", lengths, settings.vocabulary)
        write_data(folder / "label", [2] * len(lengths), vocabulary=7)  # one of two labels, and </s>
        models = {name: Training(finetuning_arguments(folder, settings, name), settings.device) for name in FINETUNED}
    for number in range(settings.rounds + 1):
        for name, training in models.items():
            taken = training.seconds(batches)
            if number:  # the first round is warm-up
                seconds[name].append(taken)
    precision = "fp16" if settings.fp16 else "float32"
    print(f"\nsentence_prediction, {precision}, {settings.batch_size} sentences of different lengths at a time, "
          f"{sum(lengths) / len(lengths) + 1:.0f} tokens on average\n")  # fmt: skip
    print("| model | sentences per second | steps per second | step time over roberta_base's |\n|---|---|---|---|")
    for name, taken in seconds.items():
        rate = 1 / statistics.median(taken)
        print(f"| {name} | {rate * settings.batch_size:,.0f} | {rate:.1f} | "
              f"{ratios(taken, seconds['roberta_base'])} |")  # fmt: skip
