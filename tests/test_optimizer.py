"""torch_adamw takes the same steps as fairseq's Adam; test_preemption.py resumes runs that use it."""

from argparse import Namespace

import torch
from fairseq.optim.adam import Adam

from maelm_fairseq.optimizer import TorchAdamW


def test_steps_are_those_of_fairseqs_adam():
    torch.manual_seed(1)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [(7, 5), (5,), ()]]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    config = Namespace(lr=[0.01], adam_betas="(0.9, 0.98)", adam_eps=1e-12, weight_decay=0.1)
    optimizers = [TorchAdamW(config, ours), Adam(theirs, lr=0.01, betas=(0.9, 0.98), eps=1e-12, weight_decay=0.1)]
    for _ in range(30):
        for one, other in zip(ours, theirs):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
