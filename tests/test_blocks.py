"""Every token of binarized text is in one block, however its index is read; damaged files are refused."""

import os
import random
import shutil
import socket
import subprocess

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset

from conftest import PYTHON
from maelm_fairseq.base.errors import UsageError
from maelm_fairseq.data import blocks as module
from maelm_fairseq.data import stored_blocks
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


@pytest.mark.parametrize("stored_before", [False, True])
@pytest.mark.parametrize("file, implied", [("bin", "but .idx implies"), ("idx", "but its header implies")])
def test_a_file_written_in_part_is_refused(tmp_path, monkeypatch, file, implied, stored_before):
    monkeypatch.setattr(module, "STORED_FROM", 0)
    prefix = write(tmp_path / "train", random_lines(1))
    if stored_before:
        TokenBlocks(prefix, 8, "complete")
    os.truncate(f"{prefix}.{file}", 100)
    with pytest.raises(UsageError, match=f"train.{file} has 100 bytes, {implied}"):
        TokenBlocks(prefix, 8, "complete")


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
@pytest.mark.parametrize("at_once", [13, 40, 239])
def test_lines_read_in_parts_give_the_same_blocks(tmp_path, mode, at_once):
    for seed in range(10):
        lines = random_lines(seed, count=240)
        lines[60:120] = [[]] * 60  # parts without text
        index = LineSizes(write(tmp_path / f"train{seed}", lines))
        whole, parts = (np.concatenate(list(line_spans(index, 12, mode, count))) for count in [1000, at_once])
        assert parts.tolist() == whole.tolist() and (len(whole) > 50 or mode == "none")


# Stored blocks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(monkeypatch):
    """Blocks of small files are stored, too."""
    monkeypatch.setattr(module, "STORED_FROM", 0)


def count_finding(monkeypatch):
    """A list that gets an item whenever blocks are found rather than read."""
    found, find = [], TokenBlocks._find

    def counted(self, index):
        found.append(self.prefix)
        return find(self, index)

    monkeypatch.setattr(TokenBlocks, "_find", counted)
    return found


def contents(blocks):
    return str(blocks), [block.tolist() for block in blocks]


@pytest.mark.parametrize("size, mode", [(12, "complete_doc"), (300, "none"), (12, "eos")])
def test_blocks_are_found_once_and_then_read(tmp_path, monkeypatch, size, mode):
    prefix = write(tmp_path / "train", random_lines(1))
    expected = contents(TokenBlocks(prefix, size, mode))
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setattr(module, "STORED_FROM", 0)
    found = count_finding(monkeypatch)
    for _ in range(3):
        assert contents(TokenBlocks(prefix, size, mode)) == expected
    assert len(found) == 1
    assert contents(TokenBlocks(prefix, 7, mode)) != expected  # of another size
    assert len(found) == 2


@pytest.mark.parametrize("damage", ["other text", "cut", "no record"])
def test_stored_blocks_of_other_data_and_damaged_ones_are_replaced(tmp_path, monkeypatch, stored, damage):
    prefix = write(tmp_path / "train", random_lines(1))
    TokenBlocks(prefix, 12, "complete")
    folder = tmp_path / "train.blocks-12-complete"
    if damage == "other text":
        write(tmp_path / "train", random_lines(2))
    elif damage == "cut":
        os.truncate(folder / "starts.bin", 80)
    else:
        (folder / "blocks.json").unlink()
    found = count_finding(monkeypatch)
    again = [contents(TokenBlocks(prefix, 12, "complete")) for _ in range(2)]
    assert len(found) == 1
    monkeypatch.setattr(module, "STORED_FROM", 1 << 60)
    shutil.rmtree(folder)
    assert again == [contents(TokenBlocks(prefix, 12, "complete"))] * 2


def test_blocks_that_cannot_be_stored_are_kept_in_memory(tmp_path, monkeypatch, stored):
    prefix = write(tmp_path / "train", random_lines(1))
    monkeypatch.setattr(stored_blocks, "save_json", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    blocks = TokenBlocks(prefix, 12, "complete")
    assert [block.tolist() for block in blocks] == naive_blocks(random_lines(1), 12, "complete")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.bin", "train.idx"]


SEVERAL = """
import sys
from maelm_fairseq.data import blocks
blocks.STORED_FROM = 0
find = blocks.TokenBlocks._find
blocks.TokenBlocks._find = lambda self, index: print("found") or find(self, index)
print(len(blocks.TokenBlocks(sys.argv[1], 12, "complete_doc")))
"""


def test_one_of_several_processes_finds_the_blocks_and_removes_what_killed_ones_left(tmp_path):
    prefix = write(tmp_path / "train", random_lines(1, count=3000))
    left = tmp_path / f".train.blocks-12-complete_doc.{socket.gethostname()}.1.partial"
    left.mkdir()
    processes = [subprocess.Popen([PYTHON, "-c", SEVERAL, prefix], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = [process.communicate()[0].split() for process in processes]
    expected = str(len(TokenBlocks(prefix, 12, "complete_doc")))
    assert sorted(printed) == [[expected]] * 3 + [["found", expected]]
    assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "train.bin",
        "train.blocks-12-complete_doc",
        "train.idx",
    ]
