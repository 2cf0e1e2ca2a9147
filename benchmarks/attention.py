#!/usr/bin/env python3
"""Times the attention of one layer, forward and backward: the plugin's and PyTorch's, in alternation.

`in chunks` is the plugin's attention on the CPU; `softmax and products` is the same computation as three plain
operations, for which autograd keeps the attention weights. The bias requires a gradient. Reports medians over rounds,
and the median of the ratios to PyTorch's `scaled_dot_product_attention` with bias.
"""

import argparse
import multiprocessing
import statistics
import time

import torch
from torch.nn import functional as F

from common import heading, ratios
from maelm_fairseq.cpu_kernels import ChunkedAttention
from maelm_fairseq.errors import Parser, run


def functions():
    """The timed functions: {name: function of query (B, T, H, D), key_value (B, T, 2, H, D), bias, dropout}."""

    def pytorch(query, key_value, bias, dropout):
        q, (k, v) = query.transpose(1, 2), key_value.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout).transpose(1, 2)

    def plain(query, key_value, bias, dropout):
        q, (k, v) = query.transpose(1, 2), key_value.permute(2, 0, 3, 1, 4)
        q, k, v, bias = (x.flatten(0, 1) for x in (q, k, v, bias))
        weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=q.size(-1) ** -0.5).softmax(-1)
        attended = F.dropout(weights, dropout) @ v
        return attended.unflatten(0, (query.size(0), query.size(2))).transpose(1, 2)

    return {
        "scaled_dot_product_attention": pytorch,
        "the same without bias": lambda q, kv, bias, dropout: pytorch(q, kv, None, dropout),
        "softmax and products": plain,
        "in chunks": ChunkedAttention.apply,
    }


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=4, help="sequences per batch (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=435, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=multiprocessing.cpu_count(), help="(default: all cores)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(heading(args.threads))
    print(f"{args.batch_size} x {args.tokens} tokens, 12 heads of width 64")
    print("\n| precision, attention dropout | attention | ms | over PyTorch's with bias |\n|---|---|---|---|")
    timed = functions()
    B, T, H, D = args.batch_size, args.tokens, 12, 64
    for dtype in [torch.float32, torch.bfloat16]:
        shapes = [(B, T, H, D), (B, T, 2, H, D), (B, H, T, T)]
        inputs = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]
        gradient = torch.randn(shapes[0]).to(dtype)
        for dropout in [0.0, 0.1]:
            seconds = {name: [] for name in timed}
            for number in range(args.rounds + 1):
                for name, function in timed.items():
                    for x in inputs:
                        x.grad = None
                    start = time.perf_counter()
                    function(*inputs, dropout).backward(gradient)
                    if number:  # the first round is warm-up
                        seconds[name].append(time.perf_counter() - start)
            for name, taken in seconds.items():
                print(f"| {str(dtype)[6:]}, {dropout} | {name} | {1000 * statistics.median(taken):.0f} | "
                      f"{ratios(taken, seconds['scaled_dot_product_attention'])} |")  # fmt: skip


if __name__ == "__main__":
    run(main)
