"""Every token of binarized text is in one block, however its index is read; damaged files are refused."""

import os
import random

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset

from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.data.blocks import LineSizes, TokenBlocks, line_spans

EOS = 2


def write(prefix, lines):
    """Binarizes lines of token indices, with `</s>` after each."""
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for line in lines:
        builder.add_item(torch.tensor([*line, EOS]))
    builder.finalize(f"{prefix}.idx")
    return str(prefix)


def random_lines(seed, count=80, longest=30):
    rng = random.Random(seed)
    lines = [[rng.randrange(4, 40) for _ in range(rng.choice([1, 3, 8, longest]))] for _ in range(count)]
    for blank in rng.sample(range(count), count // 6):
        lines[blank] = []
    return lines


def naive_blocks(lines, size, mode):
    """fairseq's break modes written out; longer lines are cut."""
    lines = [[*line, EOS] for line in lines]
    if mode == "none":
        lines = [[token] for line in lines for token in line]
    blocks, block = [], []
    for line in lines:
        ends = mode == "eos" or len(block) + len(line) > size or (mode == "complete_doc" and line == [EOS])
        if ends and block:
            blocks.append(block)
            block = []
        if not (mode == "complete_doc" and line == [EOS]):
            block = block + line
    blocks += [block] if block else []
    return [b[i : i + size] for b in blocks for i in range(0, len(b), size)]


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("size", [1, 2, 7, 15, 1000])
def test_blocks_hold_every_token_once_and_in_order(tmp_path, mode, size):
    for seed in range(3):
        lines = random_lines(seed)
        blocks = TokenBlocks(write(tmp_path / f"train{seed}", lines), size, mode)
        assert [blocks[i].tolist() for i in range(len(blocks))] == naive_blocks(lines, size, mode)
        out = sum(map(len, blocks))
        assert f"{blocks.tokens_in:,} tokens in" in str(blocks) and f"{out:,} tokens out" in str(blocks)
        assert blocks.tokens_in == out + (sum(line == [] for line in lines) if mode == "complete_doc" else 0)


@pytest.mark.parametrize(
    "lines, message",
    [
        ([[4, 5], [6]], "no blank line among 2 lines.*--sample-break-mode complete"),
        ([], "train.idx contains no text"),
        ([[], []], "all 2 lines are blank"),
    ],
)
def test_data_without_documents_are_refused(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        TokenBlocks(write(tmp_path / "train", lines), 8, "complete_doc")


@pytest.mark.parametrize("file, implied", [("bin", "but .idx implies"), ("idx", "but its header implies")])
def test_a_file_written_in_part_is_refused(tmp_path, file, implied):
    prefix = write(tmp_path / "train", random_lines(1))
    os.truncate(f"{prefix}.{file}", 100)
    with pytest.raises(UsageError, match=f"train.{file} has 100 bytes, {implied}"):
        TokenBlocks(prefix, 8, "complete")


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
        lines[60:120] = [[]] * 60  # parts without text
        index = LineSizes(write(tmp_path / f"train{seed}", lines))
        whole, parts = (np.concatenate(list(line_spans(index, 12, mode, count))) for count in [1000, at_once])
        assert parts.tolist() == whole.tolist() and len(whole) > 50
