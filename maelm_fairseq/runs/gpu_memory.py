"""How much memory of a GPU pretraining takes, and which batch fits.

    python -m maelm_fairseq.runs.gpu_memory SEQUENCES OPTION...

prints for how many sequences at a time a recipe uses a GPU of this machine, a power of two that
divides SEQUENCES, and how much memory they take; the options are those of fairseq-train. It prints
nothing where there is no GPU, or where the options set the batch.

The formula counts what a forward pass keeps for the backward pass. tests/test_gpu_memory.py
compares it with what was measured (benchmarks/RESULTS.md).
"""

import copy
import json
import sys

import torch

import maelm_fairseq.plugin  # noqa: F401  registers our options

from ..base.running import run_main
from ..fairseq_api import convert_namespace_to_omegaconf
from ..vocabulary import load_dictionary
from .fairseq_args import parse_fairseq_args

GIB = 2**30
BYTES_PER_WEIGHT = 20  # a half and its gradient, a float32 copy, its gradient and two moments
BYTES_PER_LOGIT = 16  # a half, a float32, its log-softmax, and their gradients
SAFETY_FACTOR = 1.25  # the measured batches were of 32 sequences only
CUDA_CONTEXT_BYTES = 1.5 * GIB  # what CUDA takes


def bytes_needed(model, task, vocabulary_size, batch):
    """Approximate memory of an update in half precision, with micro-batches of `batch` full blocks.

    Args:
        model: `config.MaeLmConfig`
        task: `task.MaeLmTaskConfig`
        vocabulary_size: number of symbols
        batch: sequences
    """
    C, F, H = model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_attention_heads
    T = task.tokens_per_sample
    predicted = task.mask_prob * T
    masked = predicted * (1 - task.leave_unmasked_prob - task.random_token_prob)
    seen = T - masked * (1 - task.encoder_mask_fraction)
    shared = model.share_decoder_layers
    own_layers = 0 if shared else model.decoder_layers
    masks_in_encoder = model.decoder_layers * (T - seen) if shared else 0
    rows = model.encoder_layers * seen + masks_in_encoder + own_layers * T
    # Each row of a layer keeps, for the backward pass, numbers of two bytes: the inputs of both
    # norms and of four matrix products, queries, keys, values, what they attend to, and the input
    # and output of GELU. Dropout keeps two masks, of a byte for each number.
    kept = rows * (2 * (8 * C + 2 * F) + 2 * C)
    bias = 0
    if model.relative_position_num_buckets:
        attended = seen * seen
        if shared:
            attended += (T - seen) * T
        if own_layers and model.decoder_relative_bias:
            attended += T * T
        bias = 2 * 2 * H * attended  # two bytes each, and as many for the gradients
    logits = BYTES_PER_LOGIT * predicted * vocabulary_size
    layers = model.encoder_layers + own_layers
    embeddings = (vocabulary_size + 2 * model.max_positions) * C
    weights = layers * (4 * C * C + 2 * C * F + 9 * C + F) + embeddings + C * C
    return BYTES_PER_WEIGHT * weights + batch * (kept + bias + logits)


def needed_at_most(cfg, vocabulary_size, batch):
    """`bytes_needed` for fairseq's configuration, in the updates that need the most memory.

    If masks fade, the encoder sees all of them at first.
    """
    first = copy.deepcopy(cfg.task)
    if first.encoder_mask_fade_updates:
        first.encoder_mask_fraction = 1.0
    most = max(bytes_needed(cfg.model, task, vocabulary_size, batch) for task in (cfg.task, first))
    is_half_precision = cfg.common.fp16 or cfg.task.bf16_autocast
    return most if is_half_precision else 2 * most


def choose_batch_size(cfg, vocabulary_size, memory, sequences):
    """The largest power of two that divides `sequences` and fits `memory`, in bytes.

    It is 1 if none fits, and None where fairseq's configuration sets the batch itself, or asks for
    multiples of a number that is no power of two.
    """
    dataset = cfg.dataset
    if dataset.batch_size or dataset.max_tokens:
        return None
    multiple = dataset.required_batch_size_multiple
    is_power_of_two = multiple & (multiple - 1) == 0
    if not is_power_of_two:
        return None
    batch = 1
    while sequences % (2 * batch) == 0:
        needed = SAFETY_FACTOR * needed_at_most(cfg, vocabulary_size, 2 * batch)
        if needed + CUDA_CONTEXT_BYTES > memory:
            break
        batch *= 2
    return batch


def memory_of_gpu():
    """Bytes of memory of the smallest GPU; None without one."""
    numbers = range(torch.cuda.device_count())
    sizes = [torch.cuda.get_device_properties(number).total_memory for number in numbers]
    return min(sizes, default=None)


def main():
    sequences, *argv = sys.argv[1:]
    memory = memory_of_gpu()
    if memory is None:
        return
    cfg = convert_namespace_to_omegaconf(parse_fairseq_args(argv))
    vocabulary_size = len(load_dictionary(cfg.task.data.split(":")[0]))
    batch = choose_batch_size(cfg, vocabulary_size, memory, int(sequences))
    if batch is not None:
        needed = needed_at_most(cfg, vocabulary_size, batch)
        memory_in_words = f"{needed / GIB:.0f} of {memory / GIB:.0f} GiB"
        print(json.dumps({"batch_size": batch, "memory": memory_in_words}))


if __name__ == "__main__":
    run_main(main)
