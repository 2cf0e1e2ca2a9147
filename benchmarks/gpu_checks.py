"""The checks of gpu.py: losses and gradients on a GPU, and updates of a recipe there.

Each check prints its row; an error at the end names those that failed.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import torch
from fairseq import tasks, utils

from common import ROOT, configuration, size_options, write_data
from maelm_fairseq.base.errors import UsageError

# {name: (options, half precision, limits of the relative errors of loss, all gradients, and those of each weight)}
PRECISIONS = {
    "float32": ([], False, (1e-5, 1e-4, 1e-3)),
    "fp16": ([], True, (1e-3, 3e-2, 2e-1)),
    "bf16-autocast": (["--bf16-autocast"], False, (5e-3, 1e-1, 5e-1)),
    "float32, compiled": (["--compile"], False, (1e-5, 1e-4, 1e-3)),
    "bf16-autocast, compiled": (["--bf16-autocast", "--compile"], False, (5e-3, 1e-1, 5e-1)),
}
DECODERS = {"": [], ", shared": ["--share-decoder-layers"]}
SMALLEST = 1e-3  # a weight's gradient counts as this share of all gradients at least, of which rounding is relative to
INITIAL = 0.02  # standard deviation of BERT's initial weights
SEQUENCES = 2  # of a batch in the checks

UPDATES = 20
RUNS = {
    "fp16": [],
    "bf16-autocast": ["--bf16-autocast"],
    "bf16-autocast, shared": ["--bf16-autocast", "--share-decoder-layers"],
}
WORDS = 100  # that occur in the data of the updates, which can be learned in a few
TRAINING = ["--update-freq", 2, "--lr", 1e-4, "--warmup-updates", 5, "--log-interval", 1, "--seed", 1]


@torch.no_grad()
def make_layers_matter(model, width):
    """Scales linear layers as if they were trained: after BERT's initialisation they add little to their input."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.mul_(width**-0.5 / INITIAL)


def loss_and_gradients(folder, settings, device, options=(), half=False):
    """Sums over a batch of whole blocks and a padded one, without dropout.

    Args:
        folder: of the data, two batches of lines
        settings: sizes, see gpu.py
        device: of the computation
        options: of fairseq-train
        half: whether the weights are in half precision
    Returns:
        loss; {name of a weight: its gradient in float32 on the CPU}
    """
    arguments = [folder, "--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_base", "--dropout", 0]
    arguments += ["--tokens-per-sample", settings.tokens, "--max-positions", settings.tokens, "--attention-dropout", 0]
    arguments += ["--sample-break-mode", "eos", *size_options(settings)]
    arguments.append("--relative-position-local-init")  # a bias that matters before any training
    cfg = configuration([*arguments, *options], device)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    torch.manual_seed(1)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    make_layers_matter(model, settings.width)
    model.to(device)
    if half:
        model.half()
    dataset, total = task.dataset("train"), 0.0
    for first in [0, SEQUENCES]:
        batch = dataset.collater([dataset[first + i] for i in range(SEQUENCES)])
        loss, _, _ = criterion(model, utils.apply_to_sample(lambda tensor: tensor.to(device), batch))
        loss.backward()
        total += loss.item()
    return total, {name: weight.grad.float().cpu() for name, weight in model.named_parameters()}


def errors(actual, expected):
    """Relative errors of a loss with its gradients.

    Returns:
        of the loss; of all gradients, by their norm; the largest of the gradient of a weight; the name of that weight
    """
    (loss, gradients), (expected_loss, expected_gradients) = actual, expected
    differences = torch.stack([(gradients[name] - of).norm() for name, of in expected_gradients.items()])
    norms = torch.stack([of.norm() for of in expected_gradients.values()])
    every = (differences.norm() / norms.norm()).item()
    largest, worst = (differences / norms.clamp(min=SMALLEST * norms.norm())).max(0)  # a NaN, if there is one
    return abs(loss / expected_loss - 1), every, largest.item(), list(expected_gradients)[worst]


def check_results(settings):
    """Compares each precision on the device with float32 on the CPU."""
    tokens, failed = settings.tokens, []
    print(f"{SEQUENCES} x {tokens} tokens and a padded batch, no dropout; relative to float32 on the CPU\n")
    print("| on the device | loss differs by | gradients by | those of a weight by at most | limits | |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        # The vocabulary is of no aligned size, as those of the recipes.
        write_data(Path(folder), [tokens - 1] * SEQUENCES + [tokens - 4, tokens // 2], settings.vocabulary + 2)
        for decoder, shared in DECODERS.items():
            expected = loss_and_gradients(folder, settings, "cpu", shared)
            for precision, (options, half, limits) in PRECISIONS.items():
                if settings.device == "cpu" and "--compile" in options:  # this takes minutes: tests/test_compile.py
                    continue
                name, options = precision + decoder, [*options, *shared]
                actual = loss_and_gradients(folder, settings, settings.device, options, half)
                *relative, worst = errors(actual, expected)
                passed = all(error <= limit for error, limit in zip(relative, limits))  # nan is not
                if not passed:
                    failed.append(name)
                cells = [f"{error:.1e}" for error in relative] + [", ".join(f"{limit:.0e}" for limit in limits)]
                cells[2] += f" ({worst})"
                print(f"| {name} | {' | '.join(cells)} | {'passed' if passed else 'FAILED'} |", flush=True)
                torch.compiler.reset()  # it compiles a function 8 times at most, then runs it as it is
    if failed:
        raise UsageError(f"over the limits: {', '.join(failed)}")


def train(folder, settings, kind, max_update):
    """Runs, or resumes, the recipe with the options of one of RUNS; returns {update: loss in bits}."""
    command = [ROOT / "recipes" / "pretrain_base.sh", "--data", folder / "data", "--save-dir", folder / kind]
    command += ["--gpus", 1 if settings.device == "cuda" else 0, "--batch-size", settings.batch_size // 2, *TRAINING]
    command += ["--max-update", max_update, *RUNS[kind]]
    if settings.tiny:
        command += ["--tokens-per-sample", settings.tokens, "--max-positions", settings.tokens, "--lr", 0.01]
        command += size_options(settings)
    output = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = subprocess.run(list(map(str, command)), **output)
    if done.returncode:
        raise UsageError(f"pretrain_base.sh ended with exit status {done.returncode}:\n{done.stdout}")
    log = (folder / kind / "train.log").read_text(errors="replace")  # of both calls
    records = [json.loads(text) for text in re.findall(r"train_inner \| (\{.*\})", log)]
    return {int(record["num_updates"]): float(record["loss"]) for record in records}


def wrong(losses, resumed):
    """What is wrong with a run and its resumption, {update: loss in bits} each; an empty string for nothing."""
    half, updates = UPDATES // 2, list(range(1, UPDATES + 1))
    if sorted(losses) != updates[:half] or sorted(resumed) != updates:
        return f"updates logged: {sorted(losses)}, and after resuming {sorted(resumed)}"
    if any(resumed[update] != losses[update] for update in losses):
        return "the first updates were made again"
    if not resumed[UPDATES] < losses[1]:
        return f"the loss does not fall: {losses[1]} bits, then {resumed[UPDATES]}"
    if not resumed[half + 1] < losses[1]:
        return f"the loss after resuming is that of a new model: {losses[1]} bits, then {resumed[half + 1]}"
    return ""


def check_updates(settings):
    """Trains each of RUNS for half of the updates, and resumes it for the rest."""
    half, failed = UPDATES // 2, []
    print(f"`recipes/pretrain_base.sh`, {half} updates and {half} after resuming, data of {WORDS} words\n")
    print(f"| run | loss in bits, updates 1, {half}, {half + 1}, {UPDATES} | |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        documents = settings.batch_size * (UPDATES + 1)  # of a block each; the epoch does not end
        write_data(folder / "data", [settings.tokens - 1, 1] * documents, settings.vocabulary, WORDS)
        for kind in RUNS:
            if kind == "fp16" and settings.device == "cpu":
                print("| fp16 | needs a GPU | |")
                continue
            losses, resumed = train(folder, settings, kind, half), train(folder, settings, kind, UPDATES)
            problem = wrong(losses, resumed)
            shown = ", ".join(str(resumed.get(update)) for update in [1, half, half + 1, UPDATES])
            print(f"| {kind} | {shown} | {'FAILED' if problem else 'passed'} |", flush=True)
            failed += [f"{kind}: {problem}"] if problem else []
    if failed:
        raise UsageError("; ".join(failed))
