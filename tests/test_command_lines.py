"""Both of fairseq's command lines: architectures, paths, and fine-tuning by fairseq's own task."""

import os

import torch

from conftest import PLUGIN, TINY, TINY_MODEL, binarize, documents, hydra, succeed
from training import assert_same_weights, checkpoint, train, updates


def test_hydra_is_the_legacy_command_line(data, tmp_path):
    succeed("fairseq-hydra-train", *hydra(tmp_path, data, TINY_MODEL), cwd=tmp_path, real=True)
    train(data, tmp_path / "legacy")
    assert updates(tmp_path / "hydra") == updates(tmp_path / "legacy") == 4
    assert_same_weights(tmp_path / "hydra", tmp_path / "legacy", 1e-6)


def parameters(vocabulary, layers, width, ffn, heads, num_buckets):
    """Of an encoder and a decoder with so many layers together, 512 positions, and the language-model head."""
    layer = 4 * width * width + 2 * width * ffn + 9 * width + ffn
    embeddings = vocabulary * width + 2 * 513 * width + 4 * width
    head = width * width + 3 * width + vocabulary
    return layers * layer + embeddings + head + num_buckets * heads


def test_an_architecture_has_its_sizes_through_both_command_lines(data, tmp_path):
    vocabulary = len((data / "dict.txt").read_text().splitlines()) + 5
    expected = f"num. shared model params: {parameters(vocabulary, 2 + 1, 128, 512, 2, 32):,} "
    # A learning rate below the smallest: builds all and trains nothing.
    legacy = [*TINY[:8], "--batch-size", 8, "--optimizer", "adam", "--lr", 0.001, "--cpu", "--stop-min-lr", 1]
    assert expected in succeed("fairseq-train", data, *legacy, "--save-dir", tmp_path)
    arguments = hydra(tmp_path, data, {"_name": "mae_lm_tiny"}, stop_min_lr=1)
    assert expected in succeed("fairseq-hydra-train", *arguments, cwd=tmp_path)


def test_relative_paths_work_from_any_folder(data, tmp_path):
    user_dir, folder = os.path.relpath(PLUGIN, tmp_path), os.path.relpath(data, tmp_path)
    arguments = [user_dir if a == PLUGIN else a for a in TINY]
    succeed("fairseq-train", folder, *arguments, "--save-dir", "run", "--max-update", 2, cwd=tmp_path)
    assert updates(tmp_path / "run") == 2


def test_a_pretrained_encoder_is_fine_tuned(data, tmp_path):
    """fairseq's own sentence_prediction takes the encoder and drops the decoder."""
    train(data, tmp_path / "pretrained")
    lines = [line for document in documents(40, 9) for line in document]
    text = "".join(line + "\n" for line in lines)
    binarize(tmp_path / "glue" / "input0", {"train": text, "valid": text}, data / "dict.txt")
    labels = "".join(("yes" if line.startswith("k") else "no") + "\n" for line in lines)
    binarize(tmp_path / "glue" / "label", {"train": labels, "valid": labels})
    finetune = [
        tmp_path / "glue", "--user-dir", PLUGIN, "--task", "sentence_prediction", "--criterion", "sentence_prediction",
        "--num-classes", 2, "--init-token", 0, "--arch", "mae_lm_tiny", "--encoder-embed-dim", 32,
        "--encoder-ffn-embed-dim", 64, "--max-positions", 32, "--batch-size", 8, "--optimizer", "adam", "--lr", 0.001,
        "--cpu", "--max-update", 3, "--restore-file", tmp_path / "pretrained" / "checkpoint_best.pt",
        "--reset-optimizer", "--reset-dataloader", "--reset-meters", "--save-dir", tmp_path / "finetuned",
        "--log-format", "json",
    ]  # fmt: skip
    printed = succeed("fairseq-train", *finetune, "--dropout", 0, "--lr", 1e-9)
    assert printed.count("parts of the checkpoint that are not used: decoder, lm_head") == 1
    assert updates(tmp_path / "finetuned") == 3
    pretrained, finetuned = (
        checkpoint(tmp_path / "pretrained", "checkpoint_best.pt")["model"],
        checkpoint(tmp_path / "finetuned")["model"],
    )
    assert not any(key.startswith(("decoder", "lm_head")) for key in finetuned)
    for key in finetuned:
        if not key.startswith("classification_heads"):
            torch.testing.assert_close(finetuned[key], pretrained[key], rtol=0, atol=1e-6)
