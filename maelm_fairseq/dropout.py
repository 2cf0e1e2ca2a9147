"""Dropout; on the CPU of cheaper random numbers than PyTorch's."""

import numpy as np
import torch
from torch import nn


def draw(shape, probability):
    """A bool tensor, true with a probability (to 2^-16), of 16 random bits each, seeded by PyTorch's generator."""
    count = shape.numel()
    generator = np.random.Generator(np.random.SFC64(torch.randint(2**63 - 1, ()).item()))
    bits = torch.from_numpy(generator.integers(-(2**63), 2**63, -(-count // 4))).view(torch.int16)[:count]
    return (bits < round(probability * 2**16) - 2**15).view(shape)


class Dropout(nn.Dropout):
    """:class:`torch.nn.Dropout`, on the CPU by :func:`draw`."""

    def forward(self, x):
        if self.training and self.p and x.device.type == "cpu":
            return x * draw(x.shape, 1 - self.p) / (1 - self.p)
        return super().forward(x)
