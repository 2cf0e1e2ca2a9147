"""What a GPU has to do for a micro-batch, counted without one, on tensors that have shapes only.

Counted are, for forward and backward, the kernels, the bytes that they read and write, and FLOP, by
kind of operation. The optimizer is not counted. Attention counts as one kernel forward and one
backward, which keep no matrix of weights, like PyTorch's for GPUs; they read a bias and write its
gradient.
"""

import contextlib
import math
from collections import Counter
from unittest import mock

import torch
import torch.nn.functional as F
from fairseq import tasks, utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import peers
from common import configuration
from variants import is_of_transformers, training_arguments

ATTENTION = "attention"
OPERATIONS_OF_KIND = {
    "matrix products": "mm addmm bmm baddbmm",
    "layer normalisation": "native_layer_norm native_layer_norm_backward",
    "GELU": "gelu gelu_backward",
    "dropout": "native_dropout native_dropout_backward",
    "embeddings and gathering": "embedding embedding_dense_backward "
    "index_select index_add index_put index gather",
    "loss": "_log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward max",
    "casts and copies": "_to_copy copy_ clone cat",
    "sums": "sum",
}
KIND_OF = {name: kind for kind, names in OPERATIONS_OF_KIND.items() for name in names.split()}
OTHER = "other elementwise operations"
WITHOUT_KERNEL = set("detach empty empty_like empty_strided new_empty new_empty_strided".split())
WITHOUT_KERNEL |= {"_unsafe_view", "zeros_like"}  # zeros only stand for results in AttentionKernel


class OperationCounter(TorchDispatchMode):
    """Counts kernels and the bytes that they read and write, by kind of operation."""

    def __init__(self):
        super().__init__()
        self.kernels = Counter()
        self.bytes = Counter()
        self.attention_flop = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        aliases = [returned.alias_info for returned in function._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        if not is_view and name not in WITHOUT_KERNEL:
            self.add(KIND_OF.get(name, OTHER), tree_leaves((args, kwargs, result)))
        return result

    def add(self, kind, touched):
        """Counts a kernel that reads or writes the tensors among some objects."""
        self.kernels[kind] += 1
        self.bytes[kind] += sum(size(item) for item in touched if isinstance(item, torch.Tensor))

    def add_attention(self, query, key, value, bias):
        """Counts forward and backward of queries (B, H, Q, D) over keys and values (B, H, T, D)."""
        inputs = [query, key, value, bias]
        attended = gradient = query  # as large
        self.add(ATTENTION, [*inputs, attended])
        gradients = inputs if bias is not None and bias.requires_grad else inputs[:3]
        self.add(ATTENTION, [*inputs, attended, gradient, *gradients])
        products = 2 + 5  # two forward, five backward, where the weights are computed again
        self.attention_flop += products * 2 * query.numel() * key.size(2)


def size(tensor):
    """The bytes of a tensor; what is repeated along a dimension of stride 0 counts once."""
    dimensions = zip(tensor.shape, tensor.stride())
    return tensor.element_size() * math.prod(length for length, stride in dimensions if stride)


class AttentionKernel(torch.autograd.Function):
    """Takes the place of PyTorch's attention: its results are zeros of the right shapes."""

    @staticmethod
    def forward(ctx, query, key, value, bias):
        ctx.save_for_backward(query, key, value, bias)
        return torch.zeros_like(query)

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, bias = ctx.saved_tensors
        d_query = torch.zeros_like(query)
        d_key = torch.zeros_like(key)
        d_value = torch.zeros_like(value)
        d_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        return d_query, d_key, d_value, d_bias


@contextlib.contextmanager
def kernels_of_a_gpu(counter=None):
    """Within the block, attention is AttentionKernel and dropout is one kernel, on all devices.

    An `OperationCounter`, if given, counts both kernels of each attention.
    """

    def attend(query, key, value, attn_mask=None, **options):
        if counter is not None:
            counter.add_attention(query, key, value, attn_mask)
        return AttentionKernel.apply(query, key, value, attn_mask)

    def dropout(x, p, training=True, inplace=False):
        return torch.native_dropout(x, p, training)[0]

    with mock.patch.multiple(F, scaled_dot_product_attention=attend, dropout=dropout):
        yield


def micro_batch(folder, args, variant):
    """A function that returns the loss of a model in half precision for a micro-batch.

    Model and micro-batch have shapes only.
    """
    cfg = configuration(training_arguments(folder, args, variant))
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    dataset = task.datasets["train"]
    batches = task.get_batch_iterator(dataset, max_sentences=args.micro_batch)
    batch = next(batches.next_epoch_itr())
    if is_of_transformers(variant):
        labelled = peers.labelled(batch, task.source_dictionary.pad())
        tokens, labels, _ = utils.apply_to_sample(to_meta, labelled)
        with torch.device("meta"):
            model = peers.build_peer(variant, args, len(task.source_dictionary)).half().train()
        return lambda: model(input_ids=tokens, labels=labels).loss
    with torch.device("meta"):
        model = task.build_model(cfg.model).half().to("meta")
    criterion = task.build_criterion(cfg.criterion)
    batch = utils.apply_to_sample(to_meta, batch)
    return lambda: criterion(model, batch)[0]


def to_meta(tensor):
    return tensor.to("meta")


def count_operations(folder, args, variant):
    """What a micro-batch costs: kernels and bytes by kind (Counters), and FLOP."""
    loss = micro_batch(folder, args, variant)
    counter = OperationCounter()
    with kernels_of_a_gpu(counter), FlopCounterMode(display=False) as flop_counter, counter:
        loss().backward()
    flop = flop_counter.get_total_flops() + counter.attention_flop
    return counter.kernels, counter.bytes, flop
