"""Models that are compared start, for one seed, from the same weights, and see the same text and masks in one order."""

import itertools

import pytest
import torch

from maelm_fairseq.finetuning.prediction import make_task
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.vocabulary import load_dictionary

MLM = dict(decoder_layers=0)
SIZES = dict(encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2)
VARIANTS = {
    "MLM": MLM,
    "decoder with relative bias": dict(decoder_layers=2, decoder_relative_bias=True),
    "shared decoder of 2 layers": dict(decoder_layers=2, share_decoder_layers=True),
    "no relative bias": dict(decoder_layers=2, relative_position_num_buckets=0),
    "heads that attend to neighbours": dict(decoder_layers=2, relative_position_local_init=True),
    "MLM of 3 layers": dict(MLM, encoder_layers=3),
}


def start(dictionary, seed=1, pretraining=True, **sizes):
    """The weights of a new model, and a number drawn after it was built."""
    torch.manual_seed(seed)
    model = MaeLmModel(MaeLmConfig(**{**SIZES, **sizes}), dictionary, pretraining)
    return dict(model.named_parameters()), torch.rand(()).item()


def differing(one, other):
    """The weights that both models have, but not with the same values: set of names."""
    return {name for name in one.keys() & other.keys() if not torch.equal(one[name], other[name])}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_models_have_in_common_starts_equal(data, variant):
    dictionary, options = load_dictionary(data), VARIANTS[variant]
    weights, drawn = start(dictionary, **options)
    for other in VARIANTS.values():
        others, drawn_later = start(dictionary, **other)
        local = [sizes.get("relative_position_local_init", False) for sizes in (options, other)]
        tables = {name for name in weights.keys() & others.keys() if name.endswith("relative_bias.table.weight")}
        assert differing(weights, others) == (tables if local[0] != local[1] else set())
        assert drawn == drawn_later
    if options.get("share_decoder_layers"):  # it adds no weights
        assert weights.keys() == start(dictionary, **MLM)[0].keys()
    encoder, drawn_later = start(dictionary, **options, pretraining=False)
    assert differing(weights, encoder) == set() and drawn == drawn_later


def test_weights_of_other_seeds_modules_and_models_differ(data):
    models = []
    for seed in [1, None, 2]:
        if seed:
            torch.manual_seed(seed)
        models.append(MaeLmModel(MaeLmConfig(**SIZES, decoder_layers=2), load_dictionary(data), True))
    drawn = [w.flatten()[-8:] for model in models for w in model.parameters() if w.dim() == 2]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(drawn, 2))


def iterator(data, encoder_mask_fraction, seed=1, **more):
    """The iterator over epochs of a run, as fairseq's Trainer gets it; the fraction is 0 for MAE-LM, 1 for an MLM."""
    options = dict(tokens_per_sample=32, mask_prob=0.3, encoder_mask_fraction=encoder_mask_fraction, seed=seed)
    task = make_task("mae_lm", data=str(data), **options)
    task.load_dataset("train")
    return task.get_batch_iterator(task.dataset("train"), max_sentences=8, seed=seed, epoch=1, **more)


def test_validation_on_the_training_split_leaves_its_masks_alone(data):
    task = make_task("mae_lm", data=str(data), tokens_per_sample=32)
    task.load_dataset("train")
    both = [task.get_batch_iterator(task.dataset("train"), max_sentences=8, epoch=epoch) for epoch in [2, 1]]
    assert [iterator.dataset.epoch for iterator in both] == [2, 1]


def batches(iterator):
    """Yields the batches of an epoch: the blocks, the predicted positions, and their tokens."""
    for batch in iterator.next_epoch_itr():
        inputs = batch["net_input"]
        positions = torch.cat([inputs["positions"], inputs["masked_positions"]], dim=1)
        predicted = positions[:, positions.size(1) - inputs["num_predicted"] :]
        yield batch["id"].tolist(), predicted.tolist(), batch["target"].tolist()


def test_an_mlm_and_mae_lm_see_the_same_text_and_masks(data):
    mae_lm, mlm = iterator(data, 0), iterator(data, 1)
    first, second = list(batches(mae_lm)), list(batches(mae_lm))
    assert [list(batches(mlm)), list(batches(mlm))] == [first, second] and len(first) > 5
    assert first != second and list(batches(iterator(data, 0, seed=2))) != first


def test_masks_change_every_epoch_and_do_not_depend_on_the_number_of_workers(data):
    """fairseq's own `masked_lm` repeats the first epoch's masks where it has workers."""
    alone, by_workers = iterator(data, 0), iterator(data, 0, num_workers=2)
    epochs = [list(batches(alone)) for _ in range(3)]
    assert [list(batches(by_workers)) for _ in range(3)] == epochs
    masks = [{i: {*row} - {-1} for ids, rows, _ in epoch for i, row in zip(ids, rows)} for epoch in epochs]
    for one, other in itertools.combinations(masks, 2):
        long = [i for i in one if len(one[i]) > 2]
        assert len(long) > 30 and sum(one[i] == other[i] for i in long) < len(long) / 10
