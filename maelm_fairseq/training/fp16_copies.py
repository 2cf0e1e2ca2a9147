"""Copies between the float16 weights of a model and their flat float32 ones, all at once.

fairseq's FP16Optimizer copies each weight by itself; these functions take the place of its methods.
"""

import torch

from ..optimizer import TorchAdamW


def gradients_to_float32(original, optimizer):
    """Copies float16 gradients to the flat float32 ones all at once, unless that is done already.

    Args:
        original: the method of fairseq's FP16Optimizer, for optimizers that are not ours
        optimizer: the FP16Optimizer
    """
    if not wraps_torch_adamw(optimizer):
        return original(optimizer)
    if not optimizer._needs_sync:
        return
    optimizer._needs_sync = False
    _, gradients = float32_views(optimizer)
    targets, sources = [], []
    for weight, gradient in zip(optimizer.fp16_params, gradients):
        if weight.grad is None:
            gradient.zero_()
        else:
            targets.append(gradient)
            sources.append(weight.grad)
    torch._foreach_copy_(targets, sources)


def weights_to_float16(original, optimizer):
    """Copies flat float32 weights to the float16 ones of the model all at once.

    Arguments as for `gradients_to_float32`.
    """
    if not wraps_torch_adamw(optimizer):
        return original(optimizer)
    weights, _ = float32_views(optimizer)
    with torch.no_grad():
        torch._foreach_copy_(optimizer.fp16_params, weights)


def wraps_torch_adamw(optimizer):
    """Whether fairseq's FP16Optimizer keeps the weights of a `TorchAdamW` in one flat tensor."""
    return isinstance(optimizer.fp32_optimizer, TorchAdamW) and optimizer.has_flat_params


def float32_views(optimizer):
    """The float32 copies of a model's weights, and of their gradients, in the weights' shapes.

    They are views of fairseq's flat tensors, made once. PyTorch copies between two lists of tensors
    in a few kernels, where fairseq has one for each weight.
    """
    if not hasattr(optimizer, "_views"):
        (flat,) = optimizer.fp32_params.values()
        sizes = [weight.numel() for weight in optimizer.fp16_params]
        optimizer._views = []
        for whole in (flat.detach(), flat.grad):
            parts = zip(whole.split(sizes), optimizer.fp16_params)
            optimizer._views.append([part.view_as(weight) for part, weight in parts])
    return optimizer._views
