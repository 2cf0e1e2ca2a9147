import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch

from maelm_fairseq.data.blocks import TokenBlocks
from maelm_fairseq.data.masked_items import MaskedBlockDataset, masking_of
from maelm_fairseq.masking import MaskSettings
from test_blocks import naive_blocks, random_lines, write
from test_vocabulary import dictionary as dictionary_of


def dataset(tmp_path, lines_of_parts, size=12, mode="complete_doc", **options):
    dictionary = dictionary_of(*(f"w{i}" for i in range(4, 40)))
    masking = masking_of(MaskSettings(**{"mask_prob": 0.3, **options}), dictionary, seed=1)
    parts = [TokenBlocks(write(tmp_path / f"part{i}", lines), size, mode) for i, lines in enumerate(lines_of_parts)]
    return MaskedBlockDataset(parts, masking, dictionary, seed=1)


def test_files_are_read_one_after_the_other(tmp_path):
    lines = [random_lines(1), random_lines(2)]
    blocks = dataset(tmp_path, lines)
    expected = [[0, *block] for part in lines for block in naive_blocks(part, 12, "complete_doc")]
    assert [blocks.tokens(i).tolist() for i in range(len(blocks))] == expected
    assert blocks.sizes.tolist() == list(map(len, expected))


def test_a_batch_counts_what_it_holds(tmp_path):
    """What is in it, and where, test_model.py compares with the lines."""
    blocks = dataset(tmp_path, [random_lines(3)], leave_unmasked_prob=0.3)
    indices = [0, int(blocks.sizes.argmax()), 9, int(blocks.sizes.argmin())]
    batch = blocks.collater([blocks[i] for i in indices])
    assert batch["ntokens"] == sum(blocks.sizes[i] for i in indices)
    assert batch["npredicted"] == int((batch["target"] != 1).sum())
    assert batch["nvisible"] == int((batch["net_input"]["positions"] >= 0).sum())
    assert batch["net_input"]["padded"] is True
    assert blocks.collater([blocks[i] for i in [2, 2]])["net_input"]["padded"] is False
    assert blocks.collater([]) == {}


def test_data_go_to_a_worker_and_batches_come_back_as_bytes(tmp_path):
    blocks = dataset(tmp_path, [random_lines(5)])
    batch = blocks.collater([blocks[i] for i in range(4)])
    there = pickle.loads(ForkingPickler.dumps(blocks))  # in a process that is spawned
    assert there.tokens(3).tolist() == blocks.tokens(3).tolist()
    assert all(map(np.array_equal, there[3][1], blocks[3][1]))
    sent = bytes(ForkingPickler.dumps(batch))
    assert b"storage" not in sent  # torch would send a tensor through a shared file
    received = pickle.loads(sent)
    assert received.keys() == batch.keys() and received["net_input"].keys() == batch["net_input"].keys()
    for there, here in [(received, batch), (received["net_input"], batch["net_input"])]:
        for key, value in here.items():
            if torch.is_tensor(value):
                assert torch.equal(there[key], value)
                there[key] += 1  # it may be written to
            elif key != "net_input":
                assert np.array_equal(there[key], value)


@pytest.mark.parametrize("token, found", [(40, "<mask>"), (41, "token 41")])
def test_mask_in_the_data_and_a_foreign_vocabulary_are_refused(tmp_path, token, found):
    blocks = dataset(tmp_path, [[[5, 6], [7, token], []]])
    with pytest.raises(ValueError, match=f"part0: {found} in block 0.*another dict.txt"):
        blocks[0]
