"""AdamW in one pass over the weights: `--optimizer torch_adamw`."""

import ast
import functools
from dataclasses import dataclass
from typing import Any, List

import torch
from omegaconf import II

from .base.errors import UsageError
from .base.settings import TINY, setting, validate
from .engine import FairseqAdam, FairseqDataclass, FairseqOptimizer, FP16Optimizer, register_optimizer

WEIGHTS = "float32_weights"  # in the state of the optimizer
SHARE = "share_of_lr"  # in its groups of weights


@dataclass
class TorchAdamWConfig(FairseqDataclass):
    adam_betas: Any = setting((0.9, 0.999), "decay rates of the two moving averages")
    adam_eps: float = setting(1e-8, "added to the denominator")
    weight_decay: float = setting(0.0, "decoupled, as in AdamW")
    lr_layer_decay: float = setting(
        1.0,
        "in fine-tuning, multiplies the learning rate for each layer below the head; embeddings are the lowest",
        least=TINY,
        most=1,
    )
    lr: List[float] = II("optimization.lr")
    fp16: bool = II("common.fp16")


def betas(option):
    """Two numbers, or their text, as two numbers; fairseq would evaluate the text as Python.

    Raises ValueError: they are none, or out of range
    """
    try:
        first, second = ast.literal_eval(str(option))
        if 0 <= first < 1 and 0 <= second < 1:
            return first, second
    except (ValueError, TypeError, SyntaxError):
        pass
    raise UsageError(f"--adam-betas {option}: expected two numbers from 0 to less than 1, such as '(0.9, 0.98)'")


def groups_by_rate(weights, decay):
    """Weights in groups, those with the highest learning rate first, each with its share of the rate.

    `param_group` of a weight says how many layers below the head it is; fairseq keeps this attribute.

    Raises ValueError: a decay of weights that do not say where they are
    """
    if decay == 1:
        return weights
    if not all(hasattr(weight, "param_group") for weight in weights):
        raise UsageError(
            f"--lr-layer-decay {decay} is for fine-tuning with the tasks of this plugin; with --fp16, also give "
            "--fp16-no-flatten-grads"
        )
    depths = sorted({weight.param_group for weight in weights})
    return [
        {"params": [weight for weight in weights if weight.param_group == depth], SHARE: decay**depth}
        for depth in depths
    ]


@register_optimizer("torch_adamw", dataclass=TorchAdamWConfig)
class TorchAdamW(FairseqAdam):
    """PyTorch's fused AdamW: on the CPU three times as fast as fairseq's Adam, which memory traffic slows down.

    They differ in where eps is added: here to the root of the bias-corrected second moment, as in the Adam paper; in
    fairseq's before the correction. What gradients are multiplied by, to average or clip them, is left to the update.
    """

    def __init__(self, cfg, params):
        FairseqOptimizer.__init__(self, cfg)
        validate(cfg, TorchAdamWConfig)
        groups = groups_by_rate(list(params), cfg.lr_layer_decay)
        self._optimizer = torch.optim.AdamW(groups, fused=True, **self.optimizer_config)
        self._factor = 1.0

    def get_lr(self):
        """Of the head, or of all weights."""
        return self.param_groups[0]["lr"]

    def set_lr(self, lr):
        for group in self.param_groups:
            group["lr"] = lr * group.get(SHARE, 1.0)

    @property
    def optimizer_config(self):
        """The arguments of PyTorch's."""
        cfg = self.cfg
        return {"lr": cfg.lr[0], "betas": betas(cfg.adam_betas), "eps": cfg.adam_eps, "weight_decay": cfg.weight_decay}

    def state_dict(self):
        """Also the weights where they are float32 beside a model in half precision, as fairseq would lose them."""
        weights = {WEIGHTS: [weight.detach() for weight in self.params]} if self.cfg.fp16 else {}
        return {**super().state_dict(), **weights}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """The moments are the checkpoint's; the options are this run's, as those of everything else are."""
        weights = list(self.params)
        found = state_dict.get(WEIGHTS, weights)
        if len(found) != len(weights):
            raise UsageError(f"{WEIGHTS}: found {len(found)} weights, expected {len(weights)}")
        for weight, saved in zip(weights, found):
            if not torch.isfinite(saved).all():
                raise UsageError(f"{WEIGHTS}: found NaN or infinity, expected finite numbers")
            if saved.shape != weight.shape:
                raise UsageError(f"{WEIGHTS}: found the shape {tuple(saved.shape)}, expected {tuple(weight.shape)}")
            weight.data.copy_(saved)
        shares = [group.get(SHARE, 1.0) for group in self.param_groups]
        super().load_state_dict(state_dict, {**self.optimizer_config, **(optimizer_overrides or {})})
        for group, share in zip(self.param_groups, shares):
            group[SHARE] = share

    def zero_grad(self):
        self._optimizer.zero_grad()
        self._factor = 1.0

    def multiply_grads(self, c):
        self._factor = self._factor * c

    def clip_grad_norm(self, max_norm, aggregate_norm_fn=None):
        gradients = [weight.grad for weight in self.params if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        norm = self._factor * norm
        if max_norm > 0:
            self.multiply_grads((max_norm / (norm + 1e-6)).clamp(max=1))
        return norm

    def step(self, closure=None, scale=1.0, groups=None):
        device = self.param_groups[0]["params"][0].device
        self._optimizer.grad_scale = torch.as_tensor(scale / self._factor, dtype=torch.float32, device=device)
        self._factor = 1.0
        super().step(closure)

    @property
    def supports_flat_params(self):
        return True


def replace_copies():
    """Has fairseq's FP16Optimizer copy all weights and gradients at once, where it has a `TorchAdamW`."""
    for name, replacement in [
        ("_sync_fp16_grads_to_fp32", gradients_to_float32),
        ("_sync_fp32_params_to_fp16", weights_to_float16),
    ]:
        original = getattr(FP16Optimizer, name)
        setattr(FP16Optimizer, name, functools.partialmethod(_call, replacement, original))


def _call(optimizer, replacement, original):
    is_ours = isinstance(optimizer.fp32_optimizer, TorchAdamW) and optimizer.has_flat_params
    return (replacement if is_ours else original)(optimizer)


def gradients_to_float32(optimizer):
    """float16 gradients to the flat float32 ones, unless that is done."""
    if not optimizer._needs_sync:
        return
    optimizer._needs_sync = False
    _, gradients = float32_views(optimizer)
    into, found = [], []
    for weight, gradient in zip(optimizer.fp16_params, gradients):
        if weight.grad is None:
            gradient.zero_()
        else:
            into.append(gradient)
            found.append(weight.grad)
    torch._foreach_copy_(into, found)


def weights_to_float16(optimizer):
    """Flat float32 weights to the float16 ones of the model."""
    weights, _ = float32_views(optimizer)
    with torch.no_grad():
        torch._foreach_copy_(optimizer.fp16_params, weights)


def float32_views(optimizer):
    """The float32 copies of a model's weights, and of their gradients, in the shapes of the weights.

    Views of fairseq's flat tensors, which are made once: PyTorch copies between two lists in a few kernels, where
    fairseq has one for each weight.
    """
    if not hasattr(optimizer, "_views"):
        (flat,) = optimizer.fp32_params.values()
        sizes = [weight.numel() for weight in optimizer.fp16_params]
        optimizer._views = [
            [part.view_as(weight) for part, weight in zip(whole.split(sizes), optimizer.fp16_params)]
            for whole in (flat.detach(), flat.grad)
        ]
    return optimizer._views
