"""Blocks hold every token once, masked items are made of blocks, and batches are fairseq's."""

import os
import pickle
import random
import struct
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from fairseq.data import data_utils

from conftest import refuses
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.base.line_index import HEADER, LineIndex
from maelm_fairseq.data.batching import BatchIndices, EveryItemDataset, batch_ends
from maelm_fairseq.data.blocks import TokenBlocks, line_spans
from maelm_fairseq.data.masked_items import MaskedBlockDataset
from maelm_fairseq.masking import Masking, MaskSettings
from small_models import EOS, write
from vocabularies import dictionary as dictionary_of


def random_lines(seed, count=80):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        length = rng.choice([1, 3, 8, 30])
        lines.append([rng.randrange(4, 40) for _ in range(length)])
    for blank in rng.sample(range(count), count // 6):
        lines[blank] = []
    return lines


def naive_blocks(lines, size, mode):
    """fairseq's break modes written out; lines longer than a block are cut."""
    lines = [[*line, EOS] for line in lines]
    if mode == "none":
        lines = [[token] for line in lines for token in line]
    blocks, block = [], []
    for line in lines:
        is_separator = mode == "complete_doc" and line == [EOS]
        is_full = len(block) + len(line) > size
        if block and (mode == "eos" or is_full or is_separator):
            blocks.append(block)
            block = []
        if not is_separator:
            block = block + line
    if block:
        blocks.append(block)
    return [block[i : i + size] for block in blocks for i in range(0, len(block), size)]


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("size", [1, 2, 7, 15, 1000])
def test_blocks_hold_every_token_once_and_in_order(tmp_path, mode, size):
    for seed in range(3):
        lines = random_lines(seed)
        blocks = TokenBlocks(write(tmp_path / f"train{seed}", lines), size, mode)
        assert [blocks[i].tolist() for i in range(len(blocks))] == naive_blocks(lines, size, mode)
        tokens_out = sum(map(len, blocks))
        assert f"{blocks.num_tokens:,} tokens in" in str(blocks)
        assert f"{tokens_out:,} tokens out" in str(blocks)
        blank = lines.count([])
        assert f"{len(lines) - blank} lines with text + {blank} blank, " in str(blocks)
        separators = lines.count([]) if mode == "complete_doc" else 0
        assert blocks.num_tokens == tokens_out + separators


@pytest.mark.parametrize("lines, message", [
    ([[4, 5], [6]], "no blank line among 2 lines.*--sample-break-mode complete"),
    ([], "train.idx contains no text"),
    ([[], []], "all 2 lines are blank"),
])  # fmt: skip
def test_data_without_documents_are_refused(tmp_path, lines, message):
    refuses(message, TokenBlocks, write(tmp_path / "train", lines), 8, "complete_doc")


@pytest.mark.parametrize("sizes, begins, message", [
    ([4, 0, 2], [0, 8, 8], "line 2 has 0 tokens from byte 8, expected one or more from byte 8"),
    ([7, -3, 2], [0, 14, 8], "line 2 has -3 tokens from byte 14, expected one or more"),
    ([2, 2, 2], [0, 6, 8], "line 2 has 2 tokens from byte 6, expected one or more from byte 4"),
])  # fmt: skip
def test_an_index_whose_sum_is_right_is_read_line_by_line(tmp_path, sizes, begins, message):
    prefix = write(tmp_path / "train", [[4], [5], [6]])
    header = (tmp_path / "train.idx").read_bytes()[: HEADER.size]
    (tmp_path / "train.idx").write_bytes(header + struct.pack("<3i3q", *sizes, *begins))
    refuses(message, TokenBlocks, prefix, 8, "complete")


def test_a_file_that_is_cut_during_training_is_refused(tmp_path):
    blocks = TokenBlocks(write(tmp_path / "train", random_lines(1)), 8, "complete")
    os.truncate(tmp_path / "train.bin", 100)
    assert len(blocks[0]) == blocks.sizes[0]
    with pytest.raises(UsageError, match="train.bin has 100 bytes, but .idx implies"):
        blocks[len(blocks) - 1]


@pytest.mark.parametrize("mode", ["complete", "complete_doc", "eos"])
@pytest.mark.parametrize("at_once", [13, 40, 239])
def test_lines_read_in_parts_give_the_same_blocks(tmp_path, mode, at_once):
    for seed in range(10):
        lines = random_lines(seed, count=240)
        lines[60:120] = [[]] * 60  # Some parts have no text.
        index = LineIndex(write(tmp_path / f"train{seed}", lines))
        whole = np.concatenate(list(line_spans(index, 12, mode, 1000)))
        in_parts = np.concatenate(list(line_spans(index, 12, mode, at_once)))
        assert in_parts.tolist() == whole.tolist()
        assert len(whole) > 50


# Masked items -------------------------------------------------------------------------------------


def dataset(tmp_path, parts, **options):
    dictionary = dictionary_of(*(f"w{i}" for i in range(4, 40)))
    masking = Masking(MaskSettings(**{"mask_prob": 0.3, **options}), dictionary, seed=1)
    prefixes = [write(tmp_path / f"part{i}", lines) for i, lines in enumerate(parts)]
    blocks = [TokenBlocks(prefix, 12, "complete_doc") for prefix in prefixes]
    return MaskedBlockDataset(blocks, masking, dictionary, seed=1)


def test_files_are_read_one_after_the_other(tmp_path):
    lines = [random_lines(1), random_lines(2)]
    blocks = dataset(tmp_path, lines)
    expected = []
    for part in lines:
        expected += [[0, *block] for block in naive_blocks(part, 12, "complete_doc")]
    assert [blocks.tokens(i).tolist() for i in range(len(blocks))] == expected
    assert blocks.sizes.tolist() == list(map(len, expected))


def test_a_batch_counts_what_it_holds(tmp_path):
    """What the batch holds, and where, test_model.py compares with the lines."""
    blocks = dataset(tmp_path, [random_lines(3)], leave_unmasked_prob=0.3)
    indices = [0, int(blocks.sizes.argmax()), 9, int(blocks.sizes.argmin())]
    batch = blocks.collater([blocks[i] for i in indices])
    assert batch["ntokens"] == sum(blocks.sizes[i] for i in indices)
    assert batch["npredicted"] == int((batch["target"] != 1).sum())
    assert batch["nvisible"] == int((batch["net_input"]["positions"] >= 0).sum())
    assert batch["net_input"]["has_padding"] is True
    assert blocks.collater([blocks[i] for i in [2, 2]])["net_input"]["has_padding"] is False
    assert blocks.collater([]) == {}


def test_data_go_to_a_worker_and_batches_come_back_as_bytes(tmp_path):
    """That batches are the same with workers, test_same_start.py shows."""
    blocks = dataset(tmp_path, [random_lines(5)])
    in_worker = pickle.loads(ForkingPickler.dumps(blocks))  # as a spawned process gets it
    assert in_worker.tokens(3).tolist() == blocks.tokens(3).tolist()
    assert all(map(np.array_equal, in_worker[3][1], blocks[3][1]))
    sent = bytes(ForkingPickler.dumps(blocks.collater([blocks[i] for i in range(4)])))
    assert b"storage" not in sent  # torch would send a tensor through a shared file
    pickle.loads(sent)["target"].add_(1)  # What is received can be written to.


@pytest.mark.parametrize("token, name", [(40, "<mask>"), (41, "token 41")])
def test_mask_in_the_data_and_a_foreign_vocabulary_are_refused(tmp_path, token, name):
    blocks = dataset(tmp_path, [[[5, 6], [7, token], []]])
    with pytest.raises(ValueError, match=f"part0: {name} in block 0.*another dict.txt"):
        blocks[0]


# Batches ------------------------------------------------------------------------------------------

LIMITS = [
    (None, 8, 8), (None, 16, 8), (None, 5, 1), (None, 12, 8),
    (40, None, 8), (64, 5, 1), (200, 24, 8), (63, 9, 4),
]  # fmt: skip


class Items(EveryItemDataset):
    """Items of given sizes."""

    def __init__(self, sizes):
        self.sizes = sizes

    def num_tokens_vec(self, indices):
        return self.sizes[indices]


@pytest.mark.parametrize("tokens, sentences, multiple", LIMITS)
def test_ends_are_those_of_fairseq_and_nothing_is_lost(tokens, sentences, multiple):
    rng = np.random.default_rng(1)
    for count in [1, 7, 8, 9, 60, 400, 401]:
        for most in [2, 5, 40]:
            sizes = rng.integers(1, most + 1, count).astype(np.uint8)
            ordered = np.argsort(sizes, kind="stable")
            mixed = rng.permutation(count)
            of_ordered = BatchIndices(
                ordered, batch_ends(sizes[ordered], tokens, sentences, multiple)
            )
            of_mixed = Items(sizes).batch_by_size(mixed, tokens, sentences, multiple)
            limits = (tokens, sentences, multiple)
            for indices, batches in [(ordered, of_ordered), (mixed, of_mixed)]:
                lengths = sizes[indices].astype(np.int64)
                fairseqs = data_utils.batch_by_size(indices, None, lengths, *limits)
                dropped = indices[sum(map(len, fairseqs)) :]  # by fairseq
                expected = [batch.tolist() for batch in [*fairseqs, dropped] if len(batch)]
                assert [batch.tolist() for batch in batches] == expected
                assert np.concatenate(list(batches)).tolist() == indices.tolist()


def test_no_items_and_items_that_are_too_long():
    assert batch_ends(np.empty(0, np.uint8), 10, 3, 8).tolist() == []
    assert batch_ends(np.array([3, 3, 20, 30]), 6, None, 8).tolist() == [2, 3, 4]
