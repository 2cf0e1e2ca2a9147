"""Options and sizes that do not fit each other, the data or a checkpoint, and what other tasks get of the model.

test_errors.py shows refusals to a user.
"""

import pytest
import torch
from fairseq.tasks import FairseqTask

from conftest import refuses
from maelm_fairseq.base.settings import option
from maelm_fairseq.checkpoints import compatibility
from maelm_fairseq.checkpoints.compatibility import ENCODER, OTHERS, compare_configurations, model_configuration
from maelm_fairseq.config import check_sizes
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.task import MaeLmTask, MaeLmTaskConfig
from test_vocabulary import dictionary as dictionary_of

SIZES = dict(encoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=8, encoder_attention_heads=2)
SIZES["decoder_layers"] = 1
DICTIONARY = dictionary_of("a", "b")


@pytest.mark.parametrize("options, message", [
    (dict(mask_prob=0), "--mask-prob 0 must be from 1e-09 to 0.999999999"),
    (dict(encoder_mask_fraction=-0.1), "--encoder-mask-fraction -0.1 must be from 0 to 1"),
    (dict(leave_unmasked_prob=0.6, random_token_prob=0.6), "add up to more than 1"),
    (dict(tokens_per_sample=1), "--tokens-per-sample 1 must be from 2 to"),
    (dict(encoder_mask_fade_updates=-1), "--encoder-mask-fade-updates -1 must be from 0 to"),
    (dict(bf16=True), "use --bf16-autocast"),
    (dict(bf16_autocast=True, fp16=True), "--bf16-autocast contradicts --fp16"),
    (dict(amp=True), "--amp cannot train with torch_adamw: use --fp16"),
])  # fmt: skip
def test_options_are_refused(data, options, message):
    others = dict(data=str(data), seed=1, fp16=False, bf16=False, amp=False)
    refuses(message, lambda: MaeLmTask.setup_task(MaeLmTaskConfig(**{**others, **options})))


@pytest.mark.parametrize("sizes, message", [
    (dict(encoder_layers=0), "--encoder-layers 0 must be from 1 to 1,000"),
    (dict(encoder_layers=10_000_000), "--encoder-layers 10000000 must be from 1 to 1,000"),
    (dict(decoder_layers=-1), "--decoder-layers -1 must be from 0 to 1,000"),
    (dict(max_positions=0), "--max-positions 0 must be from 2 to"),
    (dict(encoder_attention_heads=3), "--encoder-attention-heads 3 must divide --encoder-embed-dim 16"),
    (dict(relative_position_num_buckets=2), "--relative-position-num-buckets 2 must be even and at least 4"),
    (dict(relative_position_max_distance=9), "--relative-position-max-distance 9 must be over 9"),
    (dict(relative_position_buckets="t5", relative_position_num_buckets=64),
     "--relative-position-buckets t5 needs --relative-position-num-buckets 32 .it is 64. and"),
    (dict(relative_position_buckets="t5", relative_position_max_distance=64), "max-distance 128 .it is 64.: MPNet"),
    (dict(pooler_dropout=1.0), "--pooler-dropout 1.0 must be from 0 to 0.999999999"),
    (dict(relative_position_num_buckets=0, decoder_relative_bias=True), "--decoder-relative-bias needs"),
    (dict(share_decoder_layers=True, decoder_layers=2),
     "--share-decoder-layers: --decoder-layers 2 must be at most --encoder-layers 1"),
    (dict(share_decoder_layers=True, decoder_dropout=0.1),
     "--decoder-dropout 0.1 contradicts --share-decoder-layers: .* remove it"),
])  # fmt: skip
def test_sizes_that_do_not_fit_each_other(sizes, message):
    check_sizes(MaeLmConfig(**SIZES))
    refuses(message, check_sizes, MaeLmConfig(**{**SIZES, **sizes}))


def checkpoint(**sizes):
    """The configuration of a checkpoint, as its weights and its options tell it, and the weights."""
    cfg = MaeLmConfig(**{**SIZES, **sizes})
    weights = MaeLmModel(cfg, DICTIONARY, pretraining=True).state_dict()
    return model_configuration(weights, vars(cfg), "model.pt"), weights


# Of a checkpoint, where these sizes and defaults have another value.
DIFFERENT = dict(
    encoder_layers=3, encoder_embed_dim=32, encoder_ffn_embed_dim=9, encoder_attention_heads=4, max_positions=9,
    relative_position_num_buckets=64, relative_position_max_distance=64, relative_position_buckets="t5",
    layer_norm_eps=1e-12,
    decoder_layers=2, share_decoder_layers=True, decoder_relative_bias=True, classification_pooling="mean",
)  # fmt: skip


@pytest.mark.parametrize("name", ENCODER + OTHERS)
def test_each_option_that_differs_from_the_checkpoint_is_named(name):
    value, own = DIFFERENT[name], getattr(MaeLmConfig(**SIZES), name)
    (theirs, _), (ours, _) = checkpoint(**{name: value}), checkpoint()
    compare_configurations(ours, ours, ENCODER + OTHERS, "model.pt")
    with pytest.raises(ValueError) as raised:
        compare_configurations(theirs, ours, ENCODER + OTHERS, "model.pt")
    named = f"{option(name)} {value} in the checkpoint, {own} here"
    assert str(raised.value) == f"model.pt: the checkpoint is of another model: {named}"
    if name in OTHERS:  # other parts may be others for fine-tuning
        compare_configurations(theirs, ours, ENCODER, "model.pt")


def test_sizes_are_those_of_the_weights_whatever_the_options_say():
    cfg, weights = checkpoint()
    options = {**vars(cfg), "encoder_layers": 10**6, "max_positions": -1, "decoder_layers": 10**7, "unknown": []}
    assert model_configuration(weights, options, "model.pt") == cfg
    with pytest.raises(ValueError, match="model.pt: model: encoder_layers: found '1', expected a whole number"):
        model_configuration(weights, {**options, "encoder_layers": "1"}, "model.pt")


def test_weights_of_another_shape_and_numbers_that_are_not_finite_are_named():
    _, weights = checkpoint()
    compatibility.check_weights(weights, weights, "model.pt")
    for change, message in [
        ({"lm_head.bias": torch.zeros(3)}, "weight 'lm_head.bias' has the shape .3,., expected .7,."),
        ({"more.bias": torch.zeros(3)}, "weight 'more.bias' has the shape .3,., expected none"),
        ({"lm_head.bias": torch.full((7,), torch.nan)}, "weight 'lm_head.bias' contains NaN or infinity"),
    ]:
        refuses(f"model.pt: .*{message}", compatibility.check_weights, {**weights, **change}, weights, "model.pt")
    refuses("has the shape none, expected", compatibility.check_weights, {}, weights, "model.pt")


# Other tasks ---------------------------------------------------------------------------------------------------------


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
    model = MaeLmModel.build_model(MaeLmConfig(**SIZES), another(needs_decoder=True))
    tokens, positions, masked = torch.tensor([[0, 4]]), torch.tensor([[0, 2]]), torch.tensor([[1]])
    assert model(tokens, positions, masked, num_predicted=1).shape == (1, 1, len(DICTIONARY))
    with pytest.raises(ValueError, match="--tokens-per-sample 8, but the model has 7 positions"):
        MaeLmModel.build_model(MaeLmConfig(**SIZES, max_positions=7), another(needs_decoder=True))


def test_a_decoder_that_was_not_asked_for_is_never_silently_missing():
    model = MaeLmModel.build_model(MaeLmConfig(**SIZES), another())
    assert model.decoder is None and model.lm_head is None
    tokens = torch.tensor([[0, 4]])
    with pytest.raises(ValueError, match="built without a decoder: a task that pretrains sets needs_decoder = True"):
        model(tokens, torch.tensor([[0, 2]]), torch.tensor([[1]]), num_predicted=1)
    refuses("built without a decoder", model, tokens, masked_tokens=tokens == 4)  # as fairseq's masked_lm calls a model
    features, _ = model(tokens, features_only=True)
    assert features.shape == (1, 2, 16)


def test_without_decoder_layers_masked_positions_are_an_error():
    cfg = MaeLmConfig(**{**SIZES, "decoder_layers": 0})
    model = MaeLmModel.build_model(cfg, another(needs_decoder=True))
    tokens, positions = torch.tensor([[0, 4, 6]]), torch.tensor([[0, 2, 1]])
    assert model(tokens, positions, positions[:, :0], num_predicted=1).shape == (1, 1, len(DICTIONARY))
    refuses("--decoder-layers 0", model, tokens[:, :2], positions[:, :2], positions[:, 2:], num_predicted=1)
