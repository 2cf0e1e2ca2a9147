"""The model and its loss, compared with an independent implementation, naive.py.

Further tests are of properties of their own.
"""

import functools
import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY

import naive
from maelm_fairseq import precision
from small_models import LENGTHS, MLM, SHARED, Setting, build


def assert_agree(setting):
    """The plugin's loss and all its gradients agree with the naive implementation."""
    loss = setting.loss()
    loss.backward()
    w = setting.weights()
    expected = setting.naive_loss(w, **setting.original())
    expected.backward()
    ours = {name: weight.grad for name, weight in setting.model.named_parameters()}
    theirs = {name: weight.grad for name, weight in w.items()}
    assert all(map(torch.is_tensor, ours.values())), "a weight has no gradient"
    # Another order of summation changes float64 by 1e-13. The absolute tolerance is for gradients
    # that cancel to zero.
    torch.testing.assert_close(
        {"loss": loss, **ours}, {"loss": expected, **theirs}, rtol=1e-6, atol=1e-9
    )
    return loss


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("encoder_mask_fraction", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("mask_prob, depth", [(0.15, {}), (0.9, {}), (0.5, SHARED)])
def test_naive_agrees_for_all_masks(tmp_path, mask_prob, depth, encoder_mask_fraction, lengths):
    masks = dict(mask_prob=mask_prob, encoder_mask_fraction=encoder_mask_fraction)
    setting = Setting(tmp_path, lengths, **masks, **depth)
    assert setting.inputs["has_padding"] == (lengths == "mixed")
    assert_agree(setting)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "num_buckets, decoder_bias", [(0, False), (4, False), (32, False), (8, True)]
)
@pytest.mark.parametrize("depth", [
    MLM,
    dict(decoder_layers=1),
    dict(decoder_layers=3),
    dict(SHARED, decoder_layers=1),
    dict(SHARED, decoder_layers=3),
])  # fmt: skip
def test_naive_agrees_for_all_depths(tmp_path, depth, num_buckets, decoder_bias, lengths):
    bias = dict(relative_position_num_buckets=num_buckets, decoder_relative_bias=decoder_bias)
    assert_agree(Setting(tmp_path, lengths, mask_prob=0.5, **bias, **depth))


@pytest.mark.parametrize("depth", [MLM, SHARED, dict(decoder_layers=1, decoder_relative_bias=True)])
def test_naive_agrees_with_t5_buckets(tmp_path, monkeypatch, depth):
    monkeypatch.setattr(naive, "relative_position_bucket", naive.t5_bucket)
    setting = Setting(
        tmp_path,
        "long",
        tokens_per_sample=160,
        max_positions=160,
        relative_position_num_buckets=32,
        relative_position_max_distance=128,
        relative_position_buckets="t5",
        **depth,
    )
    used = setting.model.encoder.relative_bias.bucket[160 - 149 : 160 + 150].unique().tolist()
    assert used == [*range(16), *range(17, 32)]
    assert_agree(setting)


@pytest.mark.parametrize("options", [
    dict(encoder_mask_fraction=0.5, decoder_relative_bias=True),
    MLM,
    dict(SHARED, encoder_mask_fraction=0.5),
    dict(SHARED, leave_unmasked_prob=0.5, random_token_prob=0.5),
    dict(leave_unmasked_prob=0.5, random_token_prob=0.5),
    dict(mask_whole_words=True),
])  # fmt: skip
@pytest.mark.parametrize("lengths", ["equal", "mixed"])
def test_naive_agrees_where_predicted_tokens_stay_visible(tmp_path, lengths, options):
    masks = dict(leave_unmasked_prob=0.1, random_token_prob=0.1, mask_prob=0.6)
    setting = Setting(tmp_path, lengths, **{**masks, **options})
    original = setting.original()
    kept = original["predicted"] & (original["seen"] != naive.NOT_SEEN)
    as_is = original["seen"][kept] == original["tokens"][kept]
    masked = original["seen"][kept] == setting.mask
    assert as_is.any(), "none left as it is: the test tests nothing"
    assert (~as_is & ~masked).any(), "none random: the test tests nothing"
    assert_agree(setting)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("update", [0, 3, 7, 10])
@pytest.mark.parametrize(
    "options", [{}, SHARED, dict(leave_unmasked_prob=0.2, encoder_mask_fraction=0.4)]
)
def test_naive_agrees_while_masks_fade(tmp_path, options, update, lengths):
    setting = Setting(tmp_path, lengths, mask_prob=0.6, encoder_mask_fade_updates=10, **options)
    masked = setting.inputs["masked_positions"].ge(0).sum(1)
    setting.batch = setting.task.with_visible_masks(setting.batch, update)
    setting.inputs = setting.batch["net_input"]
    seen = masked - setting.inputs["masked_positions"].ge(0).sum(1)
    assert ((seen - masked * (1 - update / 10)).abs() < 1).all()
    assert setting.batch["nvisible"] == setting.original()["seen"].ne(naive.NOT_SEEN).sum()
    assert_agree(setting)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "depth", [MLM, SHARED, dict(decoder_layers=1), dict(decoder_relative_bias=True)]
)
@pytest.mark.parametrize("mask_prob", [1e-9, 1 - 1e-9])
def test_nothing_or_everything_selected(tmp_path, mask_prob, depth, lengths):
    setting = Setting(tmp_path, lengths, mask_prob=mask_prob, **depth)
    assert setting.batch["npredicted"] == (sum(LENGTHS[lengths]) if mask_prob > 0.5 else 0)
    loss = assert_agree(setting)
    if mask_prob < 0.5:
        assert loss == 0
        assert all((weight.grad == 0).all() for weight in setting.model.parameters())


# Subtle mistakes, in naive.py or in its inputs: with any one of them, naive.loss must disagree.
# These functions make one each.
def roll_positions(w, inputs, setting, monkeypatch, part):
    name = f"{part}.embed_positions.weight"
    w[name] = w[name].roll(-1, 0)


def change_input(w, inputs, setting, monkeypatch, name, choose, value):
    """Sets an input to `value` at the first position that `choose` returns, as (B, T) bool."""
    batch = SimpleNamespace(**inputs, bos=setting.bos, pad=setting.pad)
    b, p = choose(batch).nonzero()[0]
    inputs[name][b, p] = value


def change_rule(w, inputs, setting, monkeypatch, name, wrong):
    """Replaces a function of naive.py by `wrong`, which takes that function and its arguments."""
    monkeypatch.setattr(naive, name, functools.partial(wrong, getattr(naive, name)))


def change_epsilon(w, inputs, setting, monkeypatch):
    monkeypatch.setattr(naive, "LAYER_NORM_EPS", 1e-12)


def gelu_by_tanh(right, x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def left_out(batch):
    return batch.predicted & (batch.seen == naive.NOT_SEEN)


def ordinary_context(batch):
    """Positions that are seen and not predicted, of tokens that are not special symbols."""
    return ~batch.predicted & (batch.seen > 3)


BUCKET, VISIBILITY = "relative_position_bucket", "who_sees_whom"
MISTAKES = {
    "encoder's positions by one": (roll_positions, "encoder"),
    "decoder's positions by one": (roll_positions, "decoder"),
    "the other direction": (change_rule, BUCKET, lambda right, r, *sizes: right(-r, *sizes)),
    "a bucket by one": (change_rule, BUCKET, lambda right, r, *sizes: right(r, *sizes) + (r == 2)),
    "a far bucket by one": (
        change_rule, BUCKET, lambda right, r, *sizes: right(r, *sizes) - (r == 20),
    ),
    "distances by one": (change_rule, BUCKET, lambda right, r, *sizes: right(r + 1, *sizes)),
    "a left-out position is seen": (change_input, "seen", left_out, 5),
    "a seen position is left out": (change_input, "seen", ordinary_context, naive.NOT_SEEN),
    "<s> is left out": (
        change_input, "seen", lambda batch: batch.seen == batch.bos, naive.NOT_SEEN,
    ),
    "padding is attended to": (
        change_input, "tokens", lambda batch: batch.tokens == batch.pad, 5,
    ),
    "one predicted more": (change_input, "predicted", ordinary_context, True),
    "one predicted less": (change_input, "predicted", lambda batch: batch.predicted, False),
    "another target": (
        change_input, "tokens", lambda batch: batch.predicted & (batch.tokens != 5), 5,
    ),
    "LayerNorm's eps": (change_epsilon,),
    "GELU by tanh": (change_rule, "gelu", gelu_by_tanh),
}  # fmt: skip


def visible_see_masks(right, visible, masked):
    return visible[:, None, :] | masked[:, None, :]


def masks_see_no_masks(right, visible, masked):
    return visible[:, None, :]


def masks_see_earlier_masks(right, visible, masked):
    return right(visible, masked).tril() | visible[:, None]


def decoder_positions(right, w, part, x, attended, heads, max_distance, late):
    """Masks enter with positions of a decoder's own."""
    T = x.size(1)
    positions = w[f"{part}.embed_positions.weight"]
    own = positions.roll(1, 1)[1 : T + 1]
    shift = own - positions[1 : T + 1]
    masked, _ = late
    return right(w, part, x + masked[:, :, None] * shift, attended, heads, max_distance, late)


def bias_by_row(w, inputs, setting, monkeypatch):
    """The bias of a masked row is that of its place in the batch, where masked rows come last."""
    row = setting.inputs["positions"].size(1)  # of the first masked position
    position = int(setting.inputs["masked_positions"][0, 0])
    right = naive.relative_bias
    assert position != row

    def relative_bias(table, T, max_distance):
        bias = right(table, T, max_distance)
        return torch.cat(
            [bias[:, :position], bias[:, row : row + 1], bias[:, position + 1 :]], dim=1
        )

    monkeypatch.setattr(naive, "relative_bias", relative_bias)


SHARED_MISTAKES = {
    "visible positions see masks": (change_rule, VISIBILITY, visible_see_masks),
    "masks see no masks": (change_rule, VISIBILITY, masks_see_no_masks),
    "a mask sees those before it only": (change_rule, VISIBILITY, masks_see_earlier_masks),
    "masks enter one layer early": (
        change_rule, "entering", lambda right, masked, shared: (masked, shared + 1),
    ),
    "masks enter one layer late": (
        change_rule, "entering", lambda right, masked, shared: (masked, shared - 1),
    ),
    "positions of a decoder's own": (change_rule, "transformer", decoder_positions),
    "bias by row instead of position": (bias_by_row,),
}  # fmt: skip


@pytest.mark.parametrize("depth, mistake, how", [
    *(({}, *item) for item in MISTAKES.items()),
    *((SHARED, *item) for item in MISTAKES.items() if "decoder" not in item[0]),
    *((SHARED, *item) for item in SHARED_MISTAKES.items()),
])  # fmt: skip
def test_comparison_sees_a_mistake(tmp_path, monkeypatch, depth, mistake, how):
    setting = Setting(tmp_path, **depth)
    w = setting.weights()
    inputs = setting.original()
    weights = list(w.values())

    def naive_results():
        loss = setting.naive_loss(w, **inputs)
        return [loss, *torch.autograd.grad(loss, weights)]

    right = naive_results()
    change, *arguments = how
    change(w, inputs, setting, monkeypatch, *arguments)
    wrong = naive_results()
    torch.testing.assert_close(setting.loss(), right[0], rtol=1e-6, atol=1e-9)
    is_close = [torch.allclose(b, a, rtol=5e-6, atol=5e-9) for a, b in zip(right, wrong)]
    assert not all(is_close)


def test_architectures():
    """Buckets and decoder layers. test_recipes.py checks the other sizes, by both command lines."""
    for name, num_buckets, max_distance in [("mae_lm_base", 32, 128), ("mae_lm_large", 128, 256)]:
        cfg = MODEL_DATACLASS_REGISTRY[name]()
        assert cfg.relative_position_num_buckets == num_buckets
        assert cfg.relative_position_max_distance == max_distance
        assert cfg.decoder_layers == 4


def test_initialisation(tmp_path):
    task = Setting(tmp_path).task
    model = build(task, "mae_lm_tiny")
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            norm_weight = name.endswith("norm.weight")
            assert (weight == float(norm_weight)).all(), name
        else:
            drawn = weight[1:] if "embed_positions" in name else weight
            drawn = drawn[drawn.abs().sum(1) > 0]
            accuracy = 5 / math.sqrt(2 * drawn.numel())  # five standard errors
            assert abs(drawn.std().item() / 0.02 - 1) < accuracy, name
            assert abs(drawn.mean().item() / 0.02) < 2 * accuracy, name
    zero_rows = {}
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            rows = (weight == 0).all(1).nonzero().flatten().tolist()
            if rows:
                zero_rows[name] = rows
    assert zero_rows == {
        "embed_tokens.weight": [task.dictionary.pad()],
        "encoder.embed_positions.weight": [0],
        "decoder.embed_positions.weight": [0],
    }


@pytest.mark.parametrize("num_buckets", [0, 8])
def test_features_do_not_depend_on_padding(tmp_path, num_buckets):
    setting = Setting(tmp_path, relative_position_num_buckets=num_buckets)
    model = setting.model
    tokens = setting.original()["tokens"]  # (B, T)
    T = tokens.size(1)
    real = tokens != setting.pad
    seen = tokens.masked_fill(~real, naive.NOT_SEEN)
    max_distance = model.cfg.relative_position_max_distance
    expected = naive.encoder(setting.weights(), seen, 2, max_distance)
    for added in [0, 5]:
        padded = torch.nn.functional.pad(tokens, (0, added), value=setting.pad)
        features, _ = model(padded, features_only=True)
        torch.testing.assert_close(features[:, :T][real], expected[real], rtol=0, atol=1e-10)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("layers, num_buckets", [(1, 8), (2, 0), (3, 8)])
def test_what_is_masked_elsewhere_changes_no_visible_row(tmp_path, layers, num_buckets, lengths):
    """Rows are equal bit for bit if as many positions are masked, elsewhere.

    If fewer are masked, or none, as where the encoder runs alone, they are equal up to rounding.
    """
    depth = {**SHARED, "decoder_layers": layers}
    setting = Setting(tmp_path, lengths, relative_position_num_buckets=num_buckets, **depth)
    model = setting.model
    tokens = setting.inputs["src_tokens"]
    positions = setting.inputs["positions"]
    masked = setting.inputs["masked_positions"]
    V = tokens.size(1)
    real = positions >= 0

    def visible(masked):
        hidden = model.forward_encoder_with_masks(tokens, positions, masked, all_layers=True)
        masked_rows = [x.size(1) - V for x in hidden]
        assert masked_rows == [0] * (3 - layers) + [masked.size(1)] * (layers + 1)
        return [x[:, :V][real] for x in hidden]

    expected = visible(masked)
    for elsewhere in [masked.flip(1), masked.where(masked < 0, 31 - masked)]:
        assert all(map(torch.equal, visible(elsewhere), expected))
    for fewer in [masked[:, :1], masked[:, :0]]:
        is_equal = torch.equal if fewer.size(1) == masked.size(1) else is_close
        assert all(map(is_equal, visible(fewer), expected))
    encoded = model.forward_encoder(tokens, positions, all_layers=True)
    for x, y in zip(encoded, expected):
        torch.testing.assert_close(x[real], y, rtol=0, atol=1e-12)
    logits = model(**setting.inputs)
    model.embed_tokens.weight.data[setting.mask] += 1
    assert all(map(torch.equal, visible(masked), expected))
    if logits.numel() > 0:
        assert (model(**setting.inputs) != logits).any()


def is_close(x, y):
    return torch.allclose(x, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "depth", [MLM, SHARED, dict(decoder_relative_bias=True), dict(relative_position_num_buckets=0)]
)
@pytest.mark.parametrize(
    "computed, weights", [(torch.bfloat16, torch.float32), (torch.float16, torch.float16)]
)
def test_lower_precision(tmp_path, depth, computed, weights, monkeypatch):
    """bfloat16 by autocast, and the weights of fairseq's --fp16.

    The loss is close to that of float32, and gradients are finite.
    """
    monkeypatch.setattr(precision, "is_fast_in_bfloat16", lambda kind: True)
    setting = Setting(tmp_path, dtype=torch.float32, **depth)
    loss_in_float32 = setting.loss()
    dtypes = set()

    def note_dtype(module, args, output):
        dtypes.add(output.dtype)

    setting.model.encoder.layers[0].ffn[0].register_forward_hook(note_dtype)
    setting.task.cfg.bf16_autocast = computed == torch.bfloat16
    setting.model.to(weights)
    loss = setting.loss()
    loss.backward()
    assert dtypes == {computed}
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, loss_in_float32, rtol=0.02, atol=0)
    for name, weight in setting.model.named_parameters():
        assert weight.dtype == weights, name
        assert weight.grad.dtype == weights, name
        assert weight.grad.isfinite().all(), name


def test_bfloat16_is_left_to_cpus_that_are_fast_at_it(tmp_path, monkeypatch, caplog):
    """Other CPUs would take eight times as long as in float32."""
    setting = Setting(tmp_path, dtype=torch.float32)
    loss_in_float32 = setting.loss()
    setting.task.cfg.bf16_autocast = True
    for fast in (True, False):
        precision.is_fast_in_bfloat16.cache_clear()
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda fast=fast: fast)
        first = setting.loss()
        again = setting.loss()
        assert (first == again == loss_in_float32) == (not fast)
    precision.is_fast_in_bfloat16.cache_clear()
    (warning,) = caplog.messages
    assert warning.startswith("bfloat16 would be slow on ")
    assert warning.endswith("computing in float32")
