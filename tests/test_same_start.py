"""Models that are compared start from the same weights and see the same text and masks.

This holds for each seed; the text and the masks come in the same order, too.
"""

import itertools

import pytest
import torch

from maelm_fairseq.base_task import make_task
from maelm_fairseq.model import MaeLmConfig, MaeLmModel
from maelm_fairseq.task import MaeLmTask
from maelm_fairseq.vocabulary import load_dictionary

MLM = dict(decoder_layers=0)
SIZES = dict(
    encoder_layers=2, encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2
)
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
    """The names of the weights that both models have, but not with the same values."""
    shared = one.keys() & other.keys()
    return {name for name in shared if not torch.equal(one[name], other[name])}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_models_have_in_common_starts_equal(data, variant):
    dictionary = load_dictionary(data)
    options = VARIANTS[variant]
    weights, drawn = start(dictionary, **options)
    for other_options in VARIANTS.values():
        other_weights, drawn_later = start(dictionary, **other_options)
        expected = set()
        if starts_locally(options) != starts_locally(other_options):
            shared = weights.keys() & other_weights.keys()
            expected = {name for name in shared if name.endswith("relative_bias.table.weight")}
        assert differing(weights, other_weights) == expected
        assert drawn == drawn_later
    if options.get("share_decoder_layers"):  # it adds no weights
        assert weights.keys() == start(dictionary, **MLM)[0].keys()
    encoder, drawn_later = start(dictionary, **options, pretraining=False)
    assert differing(weights, encoder) == set()
    assert drawn == drawn_later


def starts_locally(sizes):
    return sizes.get("relative_position_local_init", False)


def test_weights_of_other_seeds_modules_and_models_differ(data):
    drawn = []
    for seed in [1, None, 2]:
        if seed:
            torch.manual_seed(seed)
        config = MaeLmConfig(**SIZES, decoder_layers=2)
        model = MaeLmModel(config, load_dictionary(data), True)
        drawn += [weight.flatten()[-8:] for weight in model.parameters() if weight.dim() == 2]
    for one, other in itertools.combinations(drawn, 2):
        assert not torch.equal(one, other)


def iterator(data, encoder_mask_fraction, seed=1, **further):
    """The iterator over epochs of a run, as fairseq's Trainer gets it.

    The fraction is 0 for MAE-LM, 1 for an MLM.
    """
    task = make_task(
        MaeLmTask,
        data=str(data),
        tokens_per_sample=32,
        mask_prob=0.3,
        encoder_mask_fraction=encoder_mask_fraction,
        seed=seed,
    )
    task.load_dataset("train")
    dataset = task.dataset("train")
    return task.get_batch_iterator(dataset, max_sentences=8, seed=seed, epoch=1, **further)


def test_validation_on_the_training_split_leaves_its_masks_alone(data):
    task = make_task(MaeLmTask, data=str(data), tokens_per_sample=32)
    task.load_dataset("train")
    dataset = task.dataset("train")
    iterators = [task.get_batch_iterator(dataset, max_sentences=8, epoch=epoch) for epoch in [2, 1]]
    assert [iterator.dataset.epoch for iterator in iterators] == [2, 1]


def batches(iterator):
    """Yields the batches of an epoch: the blocks, the predicted positions, and their tokens."""
    for batch in iterator.next_epoch_itr():
        inputs = batch["net_input"]
        positions = torch.cat([inputs["positions"], inputs["masked_positions"]], dim=1)
        predicted = positions[:, positions.size(1) - inputs["num_predicted"] :]
        yield batch["id"].tolist(), predicted.tolist(), batch["target"].tolist()


def test_an_mlm_and_mae_lm_see_the_same_text_and_masks(data):
    mae_lm = iterator(data, 0)
    mlm = iterator(data, 1)
    first_epoch = list(batches(mae_lm))
    second_epoch = list(batches(mae_lm))
    assert len(first_epoch) > 5
    assert list(batches(mlm)) == first_epoch
    assert list(batches(mlm)) == second_epoch
    assert first_epoch != second_epoch
    assert list(batches(iterator(data, 0, seed=2))) != first_epoch


def test_masks_change_every_epoch_and_do_not_depend_on_the_number_of_workers(data):
    """fairseq's own `masked_lm` repeats the first epoch's masks where it has workers."""
    alone = iterator(data, 0)
    by_workers = iterator(data, 0, num_workers=2)
    epochs = [list(batches(alone)) for _ in range(3)]
    assert [list(batches(by_workers)) for _ in range(3)] == epochs
    for one, other in itertools.combinations(map(masks_of_blocks, epochs), 2):
        long = [i for i in one if len(one[i]) > 2]
        assert len(long) > 30
        assert sum(one[i] == other[i] for i in long) < len(long) / 10


def masks_of_blocks(epoch):
    """The predicted positions of each block: {number of the block: set of positions}."""
    masks = {}
    for ids, rows, _ in epoch:
        for i, row in zip(ids, rows):
            masks[i] = {*row} - {-1}
    return masks
