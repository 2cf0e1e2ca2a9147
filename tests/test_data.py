import os
import pickle
import random
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset

from conftest import binarize
from maelm_fairseq.blocks import TokenBlocks
from maelm_fairseq.data import MaskedBlockDataset
from maelm_fairseq.errors import UsageError
from maelm_fairseq.masking import Masking, MaskSettings

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


def dataset(tmp_path, lines_of_parts, size=12, mode="complete_doc", **options):
    dictionary = Dictionary()
    for i in range(4, 40):
        dictionary.add_symbol(f"w{i}")
    dictionary.add_symbol("<mask>")
    masking = Masking(MaskSettings(**{"mask_prob": 0.3, **options}), dictionary, seed=1)
    parts = [TokenBlocks(write(tmp_path / f"part{i}", lines), size, mode) for i, lines in enumerate(lines_of_parts)]
    return MaskedBlockDataset(parts, masking, dictionary, seed=1)


def test_files_are_read_one_after_the_other(tmp_path):
    lines = [random_lines(1), random_lines(2)]
    blocks = dataset(tmp_path, lines)
    expected = [[0, *block] for part in lines for block in naive_blocks(part, 12, "complete_doc")]
    assert [blocks.tokens(i).tolist() for i in range(len(blocks))] == expected
    assert blocks.sizes.tolist() == list(map(len, expected))


@pytest.mark.parametrize(
    "options", [{}, dict(leave_unmasked_prob=0.3, encoder_mask_fraction=0.3), dict(encoder_mask_fraction=1)]
)
def test_a_batch_holds_its_blocks(tmp_path, options):
    blocks = dataset(tmp_path, [random_lines(3)], **options)
    indices = [0, int(blocks.sizes.argmax()), 9, int(blocks.sizes.argmin())]
    batch = blocks.collater([blocks[i] for i in indices])
    net, target = batch["net_input"], batch["target"]
    masked = net["masked_positions"]
    assert target.shape[1] == net["num_predicted"]
    predicted_visible = target.shape[1] - masked.shape[1]
    # The last rows of [encoder input, masked] are the predicted ones, in the order of the targets.
    rows = torch.cat([net["positions"], masked], 1)
    for row, index in enumerate(indices):
        tokens = torch.from_numpy(blocks.tokens(index))
        real = rows[row] >= 0
        assert sorted(rows[row][real].tolist()) == list(range(len(tokens)))
        predicted = rows[row, -target.shape[1] :]
        assert torch.equal(predicted >= 0, target[row] != 1)
        assert torch.equal(tokens[predicted[predicted >= 0]], target[row][predicted >= 0])
        context = net["positions"][row, : net["positions"].shape[1] - predicted_visible]
        seen = net["src_tokens"][row, : len(context)]
        assert torch.equal(tokens[context[context >= 0]], seen[context >= 0])
        assert (seen[context < 0] == 1).all()
    assert net["padded"] is True
    assert batch["ntokens"] == sum(blocks.sizes[i] for i in indices)
    assert batch["npredicted"] == int((target != 1).sum())
    assert batch["nvisible"] == int((net["positions"] >= 0).sum())
    assert blocks.collater([blocks[i] for i in [2, 2]])["net_input"]["padded"] is False
    assert blocks.collater([]) == {}


@pytest.mark.parametrize("sentences, tokens, multiple", [(8, None, 8), (16, None, 8), (None, 40, 8), (5, 64, 1)])
def test_batches_hold_every_block_once(tmp_path, sentences, tokens, multiple):
    # fairseq drops the remainder of a multiple where it ends the data.
    blocks = dataset(tmp_path, [random_lines(seed) for seed in range(3)])
    batches = blocks.batch_by_size(blocks.ordered_indices(), tokens, sentences, multiple)
    assert sorted(np.concatenate(batches)) == list(range(len(blocks)))
    assert all(len(batch) <= (sentences or tokens) for batch in batches)
    few = blocks.ordered_indices()[:3]
    assert sorted(np.concatenate(blocks.batch_by_size(few, tokens, sentences, multiple))) == sorted(few)


def test_order_is_by_length_and_new_each_epoch(tmp_path):
    blocks = dataset(tmp_path, [random_lines(4)])
    first = blocks.ordered_indices()
    assert np.array_equal(first, blocks.ordered_indices())
    assert (np.diff(blocks.sizes[first]) >= 0).all()
    blocks.set_epoch(2)
    assert not np.array_equal(first, blocks.ordered_indices())


def test_a_dataset_is_sent_to_workers_without_its_corpus(tmp_path):
    blocks = dataset(tmp_path, [random_lines(5, count=3000)])
    corpus = blocks.parts[0].tokens_in * 2
    sent = pickle.dumps(blocks)
    index = blocks.sizes.nbytes + blocks.parts[0].sizes.nbytes + blocks.parts[0].starts.nbytes
    assert len(sent) < index + corpus / 2
    assert np.array_equal(pickle.loads(sent).tokens(7), blocks.tokens(7))


def test_a_batch_travels_as_bytes(tmp_path):
    blocks = dataset(tmp_path, [random_lines(5)])
    batch = blocks.collater([blocks[i] for i in range(4)])
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
                assert there[key] == value


def test_data_without_blank_lines_is_refused_for_complete_doc(tmp_path):
    prefix = write(tmp_path / "train", [[4, 5], [6]])
    with pytest.raises(ValueError, match="no blank line among 2 lines.*--sample-break-mode complete"):
        TokenBlocks(prefix, 8, "complete_doc")
    assert len(TokenBlocks(prefix, 8, "complete")) == 1


def test_empty_and_blank_data_are_refused(tmp_path):
    with pytest.raises(ValueError, match="empty.idx contains no text"):
        TokenBlocks(write(tmp_path / "empty", []), 8, "none")
    with pytest.raises(ValueError, match="all 2 lines are blank"):
        TokenBlocks(write(tmp_path / "blank", [[], []]), 8, "complete_doc")


def test_a_file_written_in_part_is_refused(tmp_path):
    prefix = write(tmp_path / "train", random_lines(1))
    with open(f"{prefix}.bin", "r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match="train.bin has 100 bytes, but .idx implies"):
        TokenBlocks(prefix, 8, "complete")


@pytest.mark.parametrize("size", [17, 20, 26, 100])
def test_an_index_written_in_part_is_refused(tmp_path, size):
    prefix = write(tmp_path / "train", random_lines(1))
    os.truncate(f"{prefix}.idx", size)
    with pytest.raises(UsageError, match=f"train.idx has {size} bytes, but its header implies"):
        TokenBlocks(prefix, 8, "complete")


def test_an_index_with_a_damaged_header_is_refused(tmp_path):
    prefix = write(tmp_path / "train", random_lines(1))
    with open(f"{prefix}.idx", "r+b") as file:
        file.seek(17)
        file.write(b"\xff")
    with pytest.raises(UsageError, match="train.idx is damaged"):
        TokenBlocks(prefix, 8, "complete")


def test_other_formats_are_refused(tmp_path):
    folder = binarize(tmp_path / "data", {"train": "a b\n\nc\n\n"})
    (folder / "train.idx").write_bytes(b"TNTIDX\x00\x00" + bytes(40))
    with pytest.raises(ValueError, match="expected 'mmap'"):
        TokenBlocks(str(folder / "train"), 8, "complete")


@pytest.mark.parametrize("token, found", [(40, "<mask>"), (41, "token 41")])
def test_mask_in_the_data_and_a_foreign_vocabulary_are_refused(tmp_path, token, found):
    blocks = dataset(tmp_path, [[[5, 6], [7, token], []]])
    with pytest.raises(ValueError, match=f"part0: {found} in block 0.*another dict.txt"):
        blocks[0]
