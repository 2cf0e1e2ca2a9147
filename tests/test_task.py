"""Options and sizes that do not fit each other, the data or a checkpoint; the model in other tasks.

test_errors.py has refusals as a user sees them.
"""

import pytest
import torch
from fairseq.tasks import FairseqTask

from conftest import refuses
from maelm_fairseq.base.option_fields import option_name
from maelm_fairseq.checkpoints import compatibility
from maelm_fairseq.checkpoints.compatibility import (
    ENCODER_OPTIONS,
    OPTIONS_FIXED_ON_RESUME,
    check_configuration,
    model_configuration,
)
from maelm_fairseq.config import check_model_options
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.task import MaeLmTask, MaeLmTaskConfig
from small_models import ONE_LAYER
from vocabularies import dictionary as dictionary_of

DICTIONARY = dictionary_of("a", "b")


@pytest.mark.parametrize("options, message", [
    (dict(mask_prob=0), "--mask-prob 0 must be greater than 0 and less than 1"),
    (dict(encoder_mask_fraction=-0.1), "--encoder-mask-fraction -0.1 must be from 0 to 1"),
    (dict(leave_unmasked_prob=0.6, random_token_prob=0.6), "add up to more than 1"),
    (dict(tokens_per_sample=1), "--tokens-per-sample 1 must be from 2 to"),
    (dict(encoder_mask_fade_updates=-1), "--encoder-mask-fade-updates -1 must be from 0 to"),
    (dict(bf16=True), "use --bf16-autocast"),
    (dict(bf16_autocast=True, fp16=True), "--bf16-autocast contradicts --fp16"),
    (dict(amp=True), "--amp cannot train with torch_adamw: use --fp16"),
])  # fmt: skip
def test_options_are_refused(data, options, message):
    defaults = dict(data=str(data), seed=1, fp16=False, bf16=False, amp=False)

    def set_up():
        return MaeLmTask.setup_task(MaeLmTaskConfig(**{**defaults, **options}))

    refuses(message, set_up)


@pytest.mark.parametrize("sizes, message", [
    (dict(encoder_layers=0), "--encoder-layers 0 must be from 1 to 1,000"),
    (dict(encoder_layers=10_000_000), "--encoder-layers 10000000 must be from 1 to 1,000"),
    (dict(decoder_layers=-1), "--decoder-layers -1 must be from 0 to 1,000"),
    (dict(max_positions=0), "--max-positions 0 must be from 2 to"),
    (dict(encoder_attention_heads=3),
     "--encoder-attention-heads 3 must divide --encoder-embed-dim 16"),
    (dict(relative_position_num_buckets=2),
     "--relative-position-num-buckets 2 must be even and at least 4"),
    (dict(relative_position_max_distance=9), "--relative-position-max-distance 9 must be over 9"),
    (dict(relative_position_buckets="t5", relative_position_num_buckets=64),
     "--relative-position-buckets t5 needs --relative-position-num-buckets 32 .it is 64. and"),
    (dict(relative_position_buckets="t5", relative_position_max_distance=64),
     "max-distance 128 .it is 64.: MPNet"),
    (dict(pooler_dropout=1.0), "--pooler-dropout 1.0 must be at least 0 and less than 1"),
    (dict(relative_position_num_buckets=0, decoder_relative_bias=True),
     "--decoder-relative-bias needs"),
    (dict(share_decoder_layers=True, decoder_layers=2),
     "--share-decoder-layers: --decoder-layers 2 must be at most --encoder-layers 1"),
    (dict(share_decoder_layers=True, decoder_dropout=0.1),
     "--decoder-dropout 0.1 contradicts --share-decoder-layers: .* remove it"),
])  # fmt: skip
def test_sizes_that_do_not_fit_each_other(sizes, message):
    check_model_options(MaeLmConfig(**ONE_LAYER))
    refuses(message, check_model_options, MaeLmConfig(**{**ONE_LAYER, **sizes}))


def checkpoint(**sizes):
    """The configuration of a checkpoint, according to its weights and options, and the weights."""
    cfg = MaeLmConfig(**{**ONE_LAYER, **sizes})
    weights = MaeLmModel(cfg, DICTIONARY, needs_lm_head=True).state_dict()
    return model_configuration(weights, vars(cfg), "model.pt"), weights


# Values that differ from ONE_LAYER and from defaults, one of which a checkpoint has.
DIFFERENT = dict(
    encoder_layers=3,
    encoder_embed_dim=32,
    encoder_ffn_embed_dim=9,
    encoder_attention_heads=4,
    max_positions=9,
    relative_position_num_buckets=64,
    relative_position_max_distance=64,
    relative_position_buckets="t5",
    layer_norm_eps=1e-12,
    decoder_layers=2,
    share_decoder_layers=True,
    decoder_relative_bias=True,
    classification_pooling="mean",
)


@pytest.mark.parametrize("name", ENCODER_OPTIONS + OPTIONS_FIXED_ON_RESUME)
def test_each_option_that_differs_from_the_checkpoint_is_named(name):
    value = DIFFERENT[name]
    own_value = getattr(MaeLmConfig(**ONE_LAYER), name)
    theirs, _ = checkpoint(**{name: value})
    ours, _ = checkpoint()
    check_configuration(vars(ours), ours, ENCODER_OPTIONS + OPTIONS_FIXED_ON_RESUME, "model.pt")
    with pytest.raises(ValueError) as raised:
        names = ENCODER_OPTIONS + OPTIONS_FIXED_ON_RESUME
        check_configuration(vars(theirs), ours, names, "model.pt")
    difference = f"{option_name(name)} {value} in the checkpoint, {own_value} here"
    assert f"model.pt: the checkpoint is of another model: {difference};" in str(raised.value)
    if name in OPTIONS_FIXED_ON_RESUME:  # fine-tuning compares the encoder alone
        check_configuration(vars(theirs), ours, ENCODER_OPTIONS, "model.pt")


def test_sizes_are_those_of_the_weights_whatever_the_options_say():
    cfg, weights = checkpoint()
    options = dict(vars(cfg), encoder_layers=10**6, decoder_layers=10**7, max_positions=-1)
    options["unknown"] = []
    assert model_configuration(weights, options, "model.pt") == cfg
    options["encoder_layers"] = "1"
    message = "model.pt: model: encoder_layers: found '1', expected an integer"
    with pytest.raises(ValueError, match=message):
        model_configuration(weights, options, "model.pt")


def test_weights_of_another_shape_and_numbers_that_are_not_finite_are_named():
    _, weights = checkpoint()
    check = compatibility.check_weights
    check(weights, weights, "model.pt")
    for name, weight, message in [
        ("lm_head.bias", torch.zeros(3), "has the shape .3,., expected .7,."),
        ("more.bias", torch.zeros(3), "has the shape .3,., expected none"),
        ("lm_head.bias", torch.full((7,), torch.nan), "contains NaN or infinity"),
    ]:
        changed = {**weights, name: weight}
        refuses(f"model.pt: .*weight '{name}' {message}", check, changed, weights, "model.pt")
    refuses("has the shape none, expected", check, {}, weights, "model.pt")


# Other tasks --------------------------------------------------------------------------------------


class AnotherTask(FairseqTask):
    """A task of somebody's own, which knows nothing of MaeLmTask."""

    source_dictionary = DICTIONARY

    def max_positions(self):
        return 8


def another(**attributes):
    task = AnotherTask(None)
    vars(task).update(attributes)
    return task


def test_a_task_of_ones_own_gets_the_decoder_that_it_asks_for():
    model = MaeLmModel.build_model(MaeLmConfig(**ONE_LAYER), another(needs_lm_head=True))
    tokens = torch.tensor([[0, 4]])
    positions = torch.tensor([[0, 2]])
    masked = torch.tensor([[1]])
    assert model(tokens, positions, masked, num_predicted=1).shape == (1, 1, len(DICTIONARY))
    cfg = MaeLmConfig(**ONE_LAYER, max_positions=7)
    with pytest.raises(ValueError, match="--tokens-per-sample 8, but the model has 7 positions"):
        MaeLmModel.build_model(cfg, another(needs_lm_head=True))


def test_a_decoder_that_was_not_asked_for_is_never_silently_missing():
    model = MaeLmModel.build_model(MaeLmConfig(**ONE_LAYER), another())
    assert model.decoder is None
    assert model.lm_head is None
    tokens = torch.tensor([[0, 4]])
    positions = torch.tensor([[0, 2]])
    masked = torch.tensor([[1]])
    message = "built without a language-model head: a task that pretrains sets needs_lm_head = True"
    with pytest.raises(ValueError, match=message):
        model(tokens, positions, masked, num_predicted=1)
    # fairseq's masked_lm calls a model like this.
    refuses("built without a language-model head", model, tokens, masked_tokens=tokens == 4)
    features, _ = model(tokens, features_only=True)
    assert features.shape == (1, 2, 16)


def test_without_decoder_layers_masked_positions_are_an_error():
    cfg = MaeLmConfig(**{**ONE_LAYER, "decoder_layers": 0})
    model = MaeLmModel.build_model(cfg, another(needs_lm_head=True))
    tokens = torch.tensor([[0, 4, 6]])
    positions = torch.tensor([[0, 2, 1]])
    visible, masked = positions[:, :2], positions[:, 2:]
    none_masked = positions[:, :0]
    logits = model(tokens, positions, none_masked, num_predicted=1)
    assert logits.shape == (1, 1, len(DICTIONARY))
    refuses("--decoder-layers 0", model, tokens[:, :2], visible, masked, num_predicted=1)
