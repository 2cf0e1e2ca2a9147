"""The pretraining task: its options, and what other tasks get of the model."""

import pytest
import torch
from fairseq.tasks import FairseqTask

from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.task import MaeLmTask, MaeLmTaskConfig
from test_vocabulary import dictionary as dictionary_of

SIZES = dict(
    encoder_layers=1, decoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=8, encoder_attention_heads=2
)
DICTIONARY = dictionary_of("a", "b")


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(mask_prob=0), "--mask-prob 0 must be over 0 and under 1"),
        (dict(encoder_mask_fraction=-0.1), "--encoder-mask-fraction -0.1 must be from 0 to 1"),
        (dict(leave_unmasked_prob=0.6, random_token_prob=0.6), "add up to more than 1"),
        (dict(tokens_per_sample=1), "--tokens-per-sample 1 must be at least 2"),
        (dict(encoder_mask_fade_updates=-1), "--encoder-mask-fade-updates -1 must be at least 0"),
        (dict(bf16=True), "use --bf16-autocast"),
        (dict(bf16_autocast=True, fp16=True), "--bf16-autocast contradicts --fp16"),
        (dict(amp=True), "--amp cannot train with torch_adamw: use --fp16"),
    ],
)
def test_options_are_refused(data, options, message):
    others = dict(data=str(data), seed=1, fp16=False, bf16=False, amp=False)
    with pytest.raises(ValueError, match=message):
        MaeLmTask.setup_task(MaeLmTaskConfig(**{**others, **options}))


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
    with pytest.raises(ValueError, match="built without a decoder"):
        model(tokens, masked_tokens=tokens == 4)  # as fairseq's masked_lm calls a model
    features, _ = model(tokens, features_only=True)
    assert features.shape == (1, 2, 16)


def test_without_decoder_layers_masked_positions_are_an_error():
    cfg = MaeLmConfig(**{**SIZES, "decoder_layers": 0})
    model = MaeLmModel.build_model(cfg, another(needs_decoder=True))
    tokens, positions = torch.tensor([[0, 4, 6]]), torch.tensor([[0, 2, 1]])
    assert model(tokens, positions, positions[:, :0], num_predicted=1).shape == (1, 1, len(DICTIONARY))
    with pytest.raises(ValueError, match="--decoder-layers 0"):
        model(tokens[:, :2], positions[:, :2], positions[:, 2:], num_predicted=1)
