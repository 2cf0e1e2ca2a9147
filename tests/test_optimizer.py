"""torch_adamw takes the steps of fairseq's Adam; test_preemption.py resumes runs that use it."""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import DictConfig

from common import configuration
from conftest import TINY, refuses
from maelm_fairseq.optimizer import TorchAdamW, set_depth_below_head
from maelm_fairseq.training.hooks import wrap_copies


def test_steps_are_those_of_fairseqs_adam():
    torch.manual_seed(1)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [(7, 5), (5,), ()]]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    config = options(adam_eps=1e-12, weight_decay=0.1)
    fairseqs = DictConfig(dict(vars(config), use_old_adam=True, fp16_adam_stats=False, tpu=False))
    optimizers = [TorchAdamW(config, ours), FairseqAdam(fairseqs, theirs)]
    for number in range(30):
        for our, their in zip(ours, theirs):
            our.grad = torch.randn(our.shape)
            their.grad = our.grad.clone()
        norms = []
        for optimizer in optimizers:
            optimizer.multiply_grads(1 / (1 + number % 3))
            norms.append(optimizer.clip_grad_norm(2.0 * (number % 4)))
            optimizer.step(scale=1 + number % 2)
            optimizer.zero_grad()
        torch.testing.assert_close(*norms)
    for our, their in zip(ours, theirs):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-6)


def options(**changed):
    """Options of torch_adamw."""
    defaults = dict(
        lr=[0.01],
        adam_betas="(0.9, 0.98)",
        adam_eps=1e-8,
        weight_decay=0,
        lr_layer_decay=1.0,
        fp16=False,
    )
    return Namespace(**{**defaults, **changed})


@pytest.mark.parametrize("betas", ["x", "(a,b)", "1", "(0.9, 1)", "__import__('os').abort()"])
def test_betas_are_two_numbers_and_are_not_evaluated(betas):
    message = "--adam-betas .*: expected two numbers from 0 to less than 1"
    refuses(message, TorchAdamW, options(adam_betas=betas), [torch.nn.Parameter()])


def test_options_are_those_of_the_run_that_goes_on():
    def make(decay, eps):
        weights = [torch.nn.Parameter(torch.ones(3))]
        return TorchAdamW(options(weight_decay=decay, adam_eps=eps), weights)

    first = make(0.1, 1e-6)
    resumed = make(0.3, 1e-8)
    for weight in first.params:
        weight.grad = torch.ones(3)
    first.step()
    resumed.load_state_dict(first.state_dict())
    (group,) = resumed.param_groups
    assert (group["weight_decay"], group["eps"]) == (0.3, 1e-8)
    torch.testing.assert_close(moments(first), moments(resumed))


def moments(optimizer):
    """The state of the only weight."""
    (group,) = optimizer.param_groups
    (weight,) = group["params"]
    return optimizer.optimizer.state[weight]


def layered(decay, depths=(2, 0, 1, 2)):
    """An optimizer of four weights of ones, which are this many layers below the head."""
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in depths]
    for weight, depth in zip(weights, depths):
        set_depth_below_head(weight, depth)
    return TorchAdamW(options(lr_layer_decay=decay), weights), weights


def test_lower_layers_take_smaller_steps():
    optimizer, weights = layered(0.5)
    optimizer.set_lr(0.1)
    assert optimizer.get_lr() == 0.1
    for weight in weights:
        weight.grad = torch.ones(3)
    optimizer.step()
    steps = [float(1 - weight[0]) for weight in weights]
    assert steps == pytest.approx([0.025, 0.1, 0.05, 0.025], rel=1e-3)
    resumed, _ = layered(0.25)
    resumed.load_state_dict(optimizer.state_dict())
    resumed.set_lr(0.1)
    rates = [group["lr"] for group in resumed.param_groups]
    assert rates == pytest.approx([0.1, 0.025, 0.00625])


def test_one_rate_is_one_group():
    optimizer, weights = layered(1.0)
    (group,) = optimizer.param_groups
    assert len(group["params"]) == len(weights)


def test_weights_without_a_layer_are_refused():
    weights = [torch.nn.Parameter(torch.ones(3))]
    message = "--lr-layer-decay 0.5 is for fine-tuning"
    refuses(message, TorchAdamW, options(lr_layer_decay=0.5), weights)


@pytest.fixture
def halves(monkeypatch):
    """A configuration with fp16, for an optimizer of fairseq on the CPU."""
    # fairseq groups the weights of the current device: None instead of a GPU's number.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    return configuration(["data", *TINY, "--optimizer", "torch_adamw", "--fp16"])


def random_halves():
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape).half()) for shape in [(7, 5), (5,), ()]]


def test_copies_between_half_precision_and_float32_are_fairseqs(halves, monkeypatch):
    def weights_after_three_updates():
        weights = random_halves()
        optimizer = FP16Optimizer.build_optimizer(halves, weights)
        for number in range(3):
            optimizer.zero_grad()
            used = weights[: 3 - number % 2]  # one of them has no gradient
            optimizer.backward(random_loss(used))
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        return [*weights, *optimizer.fp32_params.values()]

    expected = weights_after_three_updates()
    copied = []
    monkeypatch.setattr(torch, "_foreach_copy_", record(torch._foreach_copy_, copied))
    for name in ["_sync_fp16_grads_to_fp32", "_sync_fp32_params_to_fp16"]:
        # Only so that the end of the test restores what replace_copies() replaces.
        monkeypatch.setattr(FP16Optimizer, name, getattr(FP16Optimizer, name))
    wrap_copies()
    torch.testing.assert_close(weights_after_three_updates(), expected, rtol=0, atol=0)
    assert copied == [3, 3, 2, 3, 3, 3]  # gradients and weights of three updates


def random_loss(weights):
    """A loss whose gradients are drawn at random."""
    return sum((weight.float() * torch.randn(weight.shape)).sum() for weight in weights)


def record(function, lengths):
    """A function that also notes the lengths of the lists that it gets."""

    def replacement(targets, sources):
        lengths.append(len(targets))
        function(targets, sources)

    return replacement


def test_float32_weights_of_a_model_in_half_precision_go_on(halves):
    weights = random_halves()
    whole = FP16Optimizer.build_optimizer(halves, weights)

    def step(optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        optimizer.backward(random_loss(weights))
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    step(whole, 1)
    state = copy.deepcopy(whole.state_dict())
    resumed = FP16Optimizer.build_optimizer(halves, weights)
    assert not resumed.fp32_params[None].equal(whole.fp32_params[None])  # rounded
    resumed.load_state_dict(state)
    for optimizer in [whole, resumed]:
        step(optimizer, 2)
    torch.testing.assert_close(resumed.fp32_params[None], whole.fp32_params[None], rtol=0, atol=0)
