#!/usr/bin/env python3
"""Simulates the GPU memory of a recipe's training step, without a GPU: a table over batch sizes.

    python benchmarks/gpu_memory.py --recipe recipes/pretrain_base.sh --batch-size 16 32 64

The step runs on PyTorch's meta device, where tensors have sizes but no values. Counted are the bytes of all tensors
that exist at a time, in forward and backward pass; the highest is reported, with fairseq's optimizer for --fp16: for
each weight 2 bytes, 2 of its gradient, and in float32 4 of the weight, 4 of its gradient and 8 of Adam's state.
Attention is that of a fused kernel, which keeps its inputs, its output and a number for each row; a bias whose rows
are not aligned is copied for it, as PyTorch does.

Not counted are what the GPU itself needs (about 1.5 GiB) and what the allocator wastes (about 15%). The same recipe
with shared decoder layers, and fairseq's roberta_base or roberta_large on the same data, are shown beside it.
"""

import argparse
import shlex
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from common import ROOT, VOCABULARY, configuration, write_data
from maelm_fairseq.errors import Parser, UsageError, run

BYTES_OF_A_WEIGHT = 2 + 2 + 4 + 4 + 8
ALIGNMENT = 8  # of the rows of a bias, for PyTorch's memory-efficient kernel
ROBERTA = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch"]
PEERS = {"mae_lm_base": "roberta_base", "mae_lm_large": "roberta_large"}
OF_THE_DATA = ["--tokens-per-sample", "--mask-prob", "--sample-break-mode", "--dropout", "--attention-dropout"]


class FusedAttention(torch.autograd.Function):
    """What a fused attention kernel keeps in memory, on the meta device."""

    @staticmethod
    def forward(ctx, query, key, value, bias):
        if bias is not None and any(stride % ALIGNMENT for stride in bias.stride()[:-1]):
            bias = F.pad(bias, (0, -bias.size(-1) % ALIGNMENT))
        output = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, bias, output, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return output

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, bias, _, _ = ctx.saved_tensors
        of_bias = torch.empty_like(bias) if ctx.needs_input_grad[3] else None
        if of_bias is not None:
            of_bias = of_bias[..., : key.size(-2)]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), of_bias


def fused_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **unused):
    return FusedAttention.apply(query, key, value, attn_mask)


class Memory(TorchDispatchMode):
    """Adds up the tensors that exist: `highest` is the largest number of bytes at any time.

    fairseq's RoBERTa reads values of its input, which meta tensors do not have: it is told that there is no padding,
    and that as many tokens are predicted as there are in the batch.
    """

    def __init__(self, predicted):
        super().__init__()
        self.highest, self._storages, self._predicted = 0, {}, predicted

    def _call(self, function, args, kwargs):
        if function is torch.ops.aten._local_scalar_dense.default:
            return 0
        if function is torch.ops.aten.index.Tensor and args[1][0].dtype == torch.bool:
            return args[0].new_empty(self._predicted, *args[0].shape[args[1][0].dim() :])
        if function is torch.ops.aten.index_put.default and args[1][0].dtype == torch.bool:
            return torch.empty_like(args[0])
        return function(*args, **kwargs)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = self._call(function, args, kwargs or {})
        for tensor in filter(torch.is_tensor, tree_flatten(result)[0]):
            reference = StorageWeakRef(tensor.untyped_storage())
            self._storages[reference.cdata] = reference, tensor.untyped_storage().nbytes()
        self._storages = {key: entry for key, entry in self._storages.items() if not entry[0].expired()}
        self.highest = max(self.highest, sum(size for _, size in self._storages.values()))
        return result


def training_options(recipe):
    """The options of fairseq-train that a recipe gives, without the data."""
    command = [recipe, "--data", "data", "--save-dir", "save", "--gpus", "1", "--dry-run"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UsageError(f"--recipe {recipe}: failed, so it is none of recipes/pretrain_*.sh")
    words = shlex.split(done.stdout)
    return words[words.index("data") + 1 :]


def roberta_options(options):
    """fairseq's RoBERTa of the same size, on the same data with the same dropout."""
    pairs = dict(zip(options, options[1:]))
    arch = PEERS.get(pairs["--arch"], "roberta_base")
    return [*ROBERTA, arch, *(word for name in OF_THE_DATA if name in pairs for word in (name, pairs[name]))]


def gibibytes(options, batch_size, vocabulary):
    """The memory of a training step in fp16."""
    from fairseq import tasks, utils

    with tempfile.TemporaryDirectory() as folder:
        tokens = int(dict(zip(options, options[1:]))["--tokens-per-sample"])
        write_data(Path(folder), [tokens - 1] * batch_size, vocabulary)
        cfg = configuration([folder, *options, "--sample-break-mode", "none"])
        task = tasks.setup_task(cfg.task)
        task.load_dataset("train")
        dataset = task.dataset("train")
        batch = dataset.collater([dataset[i] for i in range(batch_size)])
        with mock.patch("torch.nn.init.normal_"):  # the values do not matter
            model = task.build_model(cfg.model).half().to("meta")
        criterion = task.build_criterion(cfg.criterion)
    predicted = int(batch["target"].ne(task.dictionary.pad()).sum())
    batch = utils.apply_to_sample(lambda tensor: tensor.to("meta"), batch)
    with mock.patch.object(F, "scaled_dot_product_attention", fused_attention), Memory(predicted) as memory:
        loss, _, _ = criterion(model, batch)
        loss.backward()
    weights = sum(weight.numel() for weight in model.parameters())
    gradients = sum(2 * weight.numel() for weight in model.parameters())  # counted among the tensors, too
    return (BYTES_OF_A_WEIGHT * weights + memory.highest - gradients) / 2**30


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    recipe = ROOT / "recipes" / "pretrain_base.sh"
    parser.add_argument("--recipe", default=str(recipe), help=f"(default: {recipe.relative_to(ROOT)})")
    parser.add_argument(
        "--batch-size", type=int, nargs="+", default=[16, 32, 64], help="sequences on the GPU at a time"
    )
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="symbols (default: %(default)s)")
    args = parser.parse_args()

    ours = training_options(args.recipe)
    theirs = roberta_options(ours)
    name = Path(args.recipe).name
    models = {
        name: ours,
        f"{name} --share-decoder-layers": [*ours, "--share-decoder-layers"],
        f"fairseq's {theirs[theirs.index('--arch') + 1]}": theirs,
    }
    print(f"| GiB, simulated | {' | '.join(f'batch size {size}' for size in args.batch_size)} |")
    print(f"|---|{'---|' * len(args.batch_size)}")
    for name, options in models.items():
        cells = [f"{gibibytes(options, size, args.vocabulary):.1f}" for size in args.batch_size]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    run(main)
