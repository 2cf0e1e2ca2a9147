"""torch_adamw takes the same steps as fairseq's Adam; test_preemption.py resumes runs that use it."""

import copy
from argparse import Namespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import DictConfig

from common import configuration
from conftest import TINY, refuses
from maelm_fairseq.optimizer import TorchAdamW, replace_copies


def test_steps_are_those_of_fairseqs_adam():
    torch.manual_seed(1)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in [(7, 5), (5,), ()]]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    config = dict(lr=[0.01], adam_betas="(0.9, 0.98)", adam_eps=1e-12, weight_decay=0.1, lr_layer_decay=1.0, fp16=False)
    of_fairseq = DictConfig(dict(config, use_old_adam=True, fp16_adam_stats=False, tpu=False))
    optimizers = [TorchAdamW(Namespace(**config), ours), FairseqAdam(of_fairseq, theirs)]
    for number in range(30):
        for one, other in zip(ours, theirs):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        norms = []
        for optimizer in optimizers:
            optimizer.multiply_grads(1 / (1 + number % 3))
            norms.append(optimizer.clip_grad_norm(2.0 * (number % 4)))
            optimizer.step(scale=1 + number % 2)
            optimizer.zero_grad()
        torch.testing.assert_close(*norms)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("betas", ["x", "(a,b)", "1", "(0.9, 1)", "__import__('os').abort()"])
def test_betas_are_two_numbers_and_are_not_evaluated(betas):
    config = Namespace(lr=[0.01], adam_betas=betas, adam_eps=1e-8, weight_decay=0, lr_layer_decay=1.0)
    refuses("--adam-betas .*: expected two numbers from 0 to less than 1", TorchAdamW, config, [torch.nn.Parameter()])


def test_options_are_those_of_the_run_that_goes_on():
    def make(decay, eps):
        config = Namespace(adam_betas="(0.9, 0.98)", adam_eps=eps, weight_decay=decay, fp16=False)
        config.lr, config.lr_layer_decay = [0.01], 1.0
        return TorchAdamW(config, [torch.nn.Parameter(torch.ones(3))])

    first, again = make(0.1, 1e-6), make(0.3, 1e-8)
    for weight in first.params:
        weight.grad = torch.ones(3)
    first.step()
    again.load_state_dict(first.state_dict())
    (group,) = again.param_groups
    assert (group["weight_decay"], group["eps"]) == (0.3, 1e-8)
    moments = (each.optimizer.state[each.param_groups[0]["params"][0]] for each in (first, again))
    torch.testing.assert_close(*moments)


def layered(decay, depths=(2, 0, 1, 2)):
    """An optimizer of four weights of ones, which are so many layers below the head."""
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in depths]
    for weight, depth in zip(weights, depths):
        weight.param_group = depth
    config = Namespace(adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0, fp16=False)
    config.lr, config.lr_layer_decay = [0.01], decay
    return TorchAdamW(config, weights), weights


def test_lower_layers_take_smaller_steps():
    optimizer, weights = layered(0.5)
    optimizer.set_lr(0.1)
    assert optimizer.get_lr() == 0.1
    for weight in weights:
        weight.grad = torch.ones(3)
    optimizer.step()
    steps = [float(1 - weight[0]) for weight in weights]
    assert steps == pytest.approx([0.025, 0.1, 0.05, 0.025], rel=1e-3)
    again, _ = layered(0.25)
    again.load_state_dict(optimizer.state_dict())
    again.set_lr(0.1)
    assert [group["lr"] for group in again.param_groups] == pytest.approx([0.1, 0.025, 0.00625])


def test_one_rate_is_one_group():
    optimizer, weights = layered(1.0)
    (group,) = optimizer.param_groups
    assert len(group["params"]) == len(weights)


@pytest.mark.parametrize("decay", [0, 1.1, float("nan")])
def test_decays_out_of_range_are_refused(decay):
    refuses(f"--lr-layer-decay {decay} must be from 1e-09 to 1", layered, decay)


def test_weights_without_a_layer_are_refused():
    config = Namespace(lr=[0.01], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0, lr_layer_decay=0.5)
    refuses("--lr-layer-decay 0.5 is for fine-tuning", TorchAdamW, config, [torch.nn.Parameter(torch.ones(3))])


@pytest.fixture
def halves(monkeypatch):
    """A configuration with fp16, for an optimizer of fairseq on the CPU."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # by which fairseq calls the weights: the CPU's
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
            optimizer.backward(sum((weight.float() * torch.randn(weight.shape)).sum() for weight in used))
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        return [*weights, *optimizer.fp32_params.values()]

    fairseqs = weights_after_three_updates()
    copied = []
    monkeypatch.setattr(torch, "_foreach_copy_", record(torch._foreach_copy_, copied))
    for name in ["_sync_fp16_grads_to_fp32", "_sync_fp32_params_to_fp16"]:
        monkeypatch.setattr(FP16Optimizer, name, getattr(FP16Optimizer, name))  # to be taken back
    replace_copies()
    torch.testing.assert_close(weights_after_three_updates(), fairseqs, rtol=0, atol=0)
    assert copied == [3, 3, 2, 3, 3, 3]  # gradients and weights of three updates


def record(function, lengths):
    """A function that also notes the lengths of the lists that it gets."""

    def replacement(into, found):
        lengths.append(len(into))
        function(into, found)

    return replacement


def test_float32_weights_of_a_model_in_half_precision_go_on(halves):
    weights = random_halves()
    whole = FP16Optimizer.build_optimizer(halves, weights)

    def step(optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        optimizer.backward(sum((weight.float() * torch.randn(weight.shape)).sum() for weight in weights))
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    step(whole, 1)
    state = copy.deepcopy(whole.state_dict())
    again = FP16Optimizer.build_optimizer(halves, weights)
    assert not again.fp32_params[None].equal(whole.fp32_params[None])  # rounded
    again.load_state_dict(state)
    for optimizer in [whole, again]:
        step(optimizer, 2)
    torch.testing.assert_close(again.fp32_params[None], whole.fp32_params[None], rtol=0, atol=0)
