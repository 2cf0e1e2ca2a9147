"""torch_adamw takes the same steps as fairseq's Adam; test_preemption.py resumes runs that use it."""

from argparse import Namespace

import torch
from fairseq.optim.adam import Adam

from maelm_fairseq.engine.optimizer import TorchAdamW


def weights():
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in [(7, 5), (5,), ()]]


def train(params, optimizer, steps=30):
    """Steps on random gradients, the same for every optimizer."""
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        optimizer.step()
    return params


OPTIONS = dict(lr=0.01, betas=(0.9, 0.98), eps=1e-12, weight_decay=0.1)


def config(**more):
    return Namespace(lr=[0.01], adam_betas="(0.9, 0.98)", adam_eps=1e-12, weight_decay=0.1, **more)


def test_steps_are_those_of_fairseqs_adam():
    params, theirs = weights(), weights()
    train(params, TorchAdamW(config(), params))
    train(theirs, Adam(theirs, **OPTIONS))
    for ours, expected in zip(params, theirs):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
