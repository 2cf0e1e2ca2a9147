"""Training steps on the meta device: what would make a GPU wait, or fail, raises an error here.

A meta tensor has no values, so reading one (`.item()`, `if tensor`, boolean indexing) raises by
itself.
"""

import contextlib
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq import utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from maelm_fairseq import heads
from maelm_fairseq.base_task import make_task
from maelm_fairseq.criterion import MaeLmCriterion
from maelm_fairseq.finetuning.finetuning_criterion import FineTuningCriterion
from maelm_fairseq.finetuning.task_loading import task_class_of
from maelm_fairseq.heads import LMHead
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from small_models import MLM, SHARED, SIZES, Setting

COPIES = [
    (torch, "tensor"),
    (torch, "as_tensor"),
    (torch, "from_numpy"),
    (torch.Tensor, "new_tensor"),
]


class OnlyMeta(TorchDispatchMode):
    """Fails at an operation on, or with the result of, a tensor of another device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_flatten((args, kwargs, result))[0]:
            if torch.is_tensor(leaf) and leaf.device.type != "meta":
                raise RuntimeError(f"{function} on the {leaf.device}")
        return result


@contextlib.contextmanager
def as_on_a_gpu():
    """Within the block, all tensors must be on the meta device.

    Copying values there fails, because a GPU waits for that.
    """
    with contextlib.ExitStack() as stack:
        for owner, name in COPIES:
            error = RuntimeError(f"{name} copies")
            stack.enter_context(mock.patch.object(owner, name, side_effect=error))
        yield stack.enter_context(OnlyMeta())


def to_meta(sample):
    return utils.apply_to_sample(lambda tensor: tensor.to("meta"), sample)


def without_gradient(model):
    return {name for name, weight in model.named_parameters() if weight.grad is None}


def step(folder, lengths="equal", **options):
    """A step of pretraining on the meta device; returns the model."""
    options = {"dropout": 0.1, "attention_dropout": 0.1, "dtype": torch.float32, **options}
    setting = Setting(folder, lengths, **options)
    model, batch = setting.model.to("meta"), to_meta(setting.batch)
    with as_on_a_gpu():
        loss, _, _ = MaeLmCriterion(setting.task)(model, batch)
        loss.backward()
    return model


CASES = {
    "plain": {},
    "padded, half of the masks": dict(lengths="mixed", encoder_mask_fraction=0.5),
    "MLM": MLM,
    "decoder bias": dict(lengths="mixed", decoder_relative_bias=True),
    "no bias": dict(lengths="mixed", relative_position_num_buckets=0),
    "no dropout": dict(dropout=0, attention_dropout=0),
    "shared, the last layer": dict(SHARED, lengths="mixed", decoder_layers=1),
    "shared, some tokens kept or random": dict(
        SHARED, leave_unmasked_prob=0.2, random_token_prob=0.2
    ),
    "shared, half precision": dict(SHARED, lengths="mixed", dtype=torch.half),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_pretraining_stays_on_the_device(tmp_path, case):
    assert without_gradient(step(tmp_path, **CASES[case])) == set()


@pytest.mark.parametrize("name", ["mae_lm_sentences", "mae_lm_tokens", "squad"])
@pytest.mark.parametrize("half", [False, True])
def test_a_step_of_finetuning_stays_on_the_device(prepared, name, half):
    task = make_task(task_class_of(name), data=str(prepared), labelled="")
    task.state.merge_state_dict({"labels": ["a", "b", "c"]})
    model = MaeLmModel(MaeLmConfig(**SIZES), task.dictionary, needs_lm_head=False)
    task.add_head(model)
    model.to("meta", torch.half if half else torch.float32)
    tokens = torch.tensor([[0, 5, 2, 2, 7, 2], [0, 5, 2, 2, 2, 1]])
    targets_per_text = {"sentences": 1, "tokens": 6, "span": 2}[task.head_name]
    target = torch.zeros(2, targets_per_text, dtype=torch.int64)
    batch = to_meta(dict(net_input=dict(src_tokens=tokens, has_padding=True), target=target))
    batch.update(ntokens=11, nsentences=2, ntargets=2)
    with as_on_a_gpu():
        loss, _, _ = FineTuningCriterion(task)(model, batch)
        loss.backward()
    assert without_gradient(model) == set()


# Shapes and strides that a GPU handles fast -------------------------------------------------------


@pytest.mark.parametrize("lengths", ["equal", "mixed"])
@pytest.mark.parametrize("sizes, calls", [
    ({}, 4),  # two layers of the encoder and two of the decoder
    (dict(decoder_relative_bias=True), 4),
    (SHARED, 4),  # one for each kind of row, except that the last layer computes only masks
])  # fmt: skip
def test_the_memory_efficient_kernel_takes_every_bias_as_it_is(tmp_path, lengths, sizes, calls):
    """It needs all strides but the last to be multiples of 8, or copies the bias in each layer."""
    biases = []
    attention = F.scaled_dot_product_attention

    def spy(query, key, value, attn_mask, dropout_p):
        biases.append(attn_mask)
        return attention(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p)

    with mock.patch.object(F, "scaled_dot_product_attention", spy):
        step(tmp_path, lengths, dtype=torch.half, **sizes)
    assert len(biases) == calls
    for bias in filter(torch.is_tensor, biases):
        assert bias.size(3) % 8
        assert bias.stride(3) == 1, bias.stride()
        assert not any(stride % 8 for stride in bias.stride()[:3]), bias.stride()


def test_a_head_with_more_rows_computes_the_same():
    """GPUs multiply matrices fast whose sizes are multiples of 8."""
    assert heads.vocabulary_multiple(torch.empty(0, device="cpu")) == 1
    assert heads.vocabulary_multiple(torch.empty(0, device="meta")) == 8
    torch.manual_seed(1)
    head = LMHead(16, 21, 1e-5)
    embedding = torch.randn(21, 16, requires_grad=True)
    x = torch.randn(2, 5, 16)
    torch.nn.init.normal_(head.bias)
    results = []
    for multiple in [1, 8]:
        head.zero_grad()
        embedding.grad = None
        with mock.patch.object(heads, "vocabulary_multiple", return_value=multiple):
            logits = head(x, embedding)
        logits.log_softmax(-1)[..., 3].sum().backward()
        gradients = [weight.grad for weight in head.parameters()]
        results.append([logits.detach(), embedding.grad, *gradients])
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)
