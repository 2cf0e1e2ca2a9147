"""AdamW in one pass over the weights: `--optimizer torch_adamw`."""

import ast
from dataclasses import dataclass
from typing import Any, List

import torch
from omegaconf import II

from .base.errors import UsageError
from .base.option_fields import setting
from .fairseq_api import FairseqAdam, FairseqDataclass, FairseqOptimizer, register_optimizer

TORCH_ADAMW = "torch_adamw"  # its name in fairseq
FLOAT32_WEIGHTS = "float32_weights"  # in the state of the optimizer
LR_SHARE_KEY = "share_of_lr"  # in its groups of weights
DEPTH_ATTRIBUTE = "param_group"  # of a weight, the name that fairseq keeps


@dataclass
class TorchAdamWConfig(FairseqDataclass):
    adam_betas: Any = setting((0.9, 0.999), "decay rates of the two moving averages")
    adam_eps: float = setting(1e-8, "added to the denominator")
    weight_decay: float = setting(0.0, "decoupled, as in AdamW")
    lr_layer_decay: float = setting(
        1.0,
        "in fine-tuning, multiplies the learning rate for each layer below the head; "
        "embeddings are the lowest",
        minimum=0,
        excluded=(0,),
        maximum=1,
    )
    lr: List[float] = II("optimization.lr")
    fp16: bool = II("common.fp16")


def parse_betas(option):
    """Two numbers, or their text, as two numbers; fairseq would evaluate the text as Python.

    Raises UsageError: it is not two numbers, or they are out of range
    """
    try:
        first, second = ast.literal_eval(str(option))
        if 0 <= first < 1 and 0 <= second < 1:
            return first, second
    except (ValueError, TypeError, SyntaxError):
        pass
    raise UsageError(
        f"--adam-betas {option}: expected two numbers from 0 to less than 1, such as '(0.9, 0.98)'"
    )


def set_depth_below_head(weight, depth):
    """Says how many layers below the head a weight is, for `lr_layer_decay`."""
    setattr(weight, DEPTH_ATTRIBUTE, depth)


def groups_by_rate(weights, decay):
    """Weights in groups, each with its share of the learning rate, the highest rate first.

    Raises UsageError: the rates differ, but the depth of a weight is not known
    """
    if decay == 1:
        return [{"params": weights, LR_SHARE_KEY: 1.0}]
    if not all(hasattr(weight, DEPTH_ATTRIBUTE) for weight in weights):
        raise UsageError(
            f"--lr-layer-decay {decay} is for fine-tuning with the tasks of this plugin; "
            "with --fp16, also give --fp16-no-flatten-grads"
        )
    weights_by_depth = {}
    for weight in weights:
        weights_by_depth.setdefault(getattr(weight, DEPTH_ATTRIBUTE), []).append(weight)
    return [
        {"params": weights_at_depth, LR_SHARE_KEY: decay**depth}
        for depth, weights_at_depth in sorted(weights_by_depth.items())
    ]


@register_optimizer(TORCH_ADAMW, dataclass=TorchAdamWConfig)
class TorchAdamW(FairseqAdam):
    """PyTorch's fused AdamW.

    On the CPU it is three times as fast as fairseq's Adam, which memory traffic slows down. They
    differ in where eps is added: here to the root of the bias-corrected second moment, as in the
    Adam paper; in fairseq's before the correction. Gradients that are averaged or clipped are not
    multiplied at once: the factor is kept, and the update applies it.
    """

    def __init__(self, cfg, params):
        FairseqOptimizer.__init__(self, cfg)
        groups = groups_by_rate(list(params), cfg.lr_layer_decay)
        self._optimizer = torch.optim.AdamW(groups, fused=True, **self.optimizer_config)
        self._factor = 1.0

    def get_lr(self):
        """The learning rate of the head, or of all weights."""
        return self.param_groups[0]["lr"]

    def set_lr(self, lr):
        for group in self.param_groups:
            group["lr"] = lr * group[LR_SHARE_KEY]

    @property
    def optimizer_config(self):
        """The arguments of PyTorch's AdamW."""
        return {
            "lr": self.cfg.lr[0],
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def state_dict(self):
        """The state of AdamW; for a model in half precision also its weights in float32.

        fairseq would lose them.
        """
        state = {**super().state_dict()}
        if self.cfg.fp16:
            state[FLOAT32_WEIGHTS] = [weight.detach() for weight in self.params]
        return state

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Takes the moments from a checkpoint; the options are this run's, as all others are."""
        if FLOAT32_WEIGHTS in state_dict:
            self.load_float32_weights(state_dict[FLOAT32_WEIGHTS])
        shares = [group[LR_SHARE_KEY] for group in self.param_groups]
        options = {**self.optimizer_config, **(optimizer_overrides or {})}
        super().load_state_dict(state_dict, options)
        for group, share in zip(self.param_groups, shares):
            group[LR_SHARE_KEY] = share

    def load_float32_weights(self, saved_weights):
        """Gives the model the weights of a checkpoint that `state_dict` has saved."""
        weights = list(self.params)
        if len(saved_weights) != len(weights):
            raise UsageError(
                f"{FLOAT32_WEIGHTS}: found {len(saved_weights)} weights, expected {len(weights)}"
            )
        for weight, saved in zip(weights, saved_weights):
            if not torch.isfinite(saved).all():
                raise UsageError(
                    f"{FLOAT32_WEIGHTS}: found NaN or infinity, expected finite numbers"
                )
            if saved.shape != weight.shape:
                shapes = f"found the shape {tuple(saved.shape)}, expected {tuple(weight.shape)}"
                raise UsageError(f"{FLOAT32_WEIGHTS}: {shapes}")
            weight.data.copy_(saved)

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
        # PyTorch's fused AdamW divides gradients by this.
        grad_scale = torch.as_tensor(scale / self._factor, dtype=torch.float32, device=device)
        self._optimizer.grad_scale = grad_scale
        self._factor = 1.0
        super().step(closure)

    @property
    def supports_flat_params(self):
        return True
