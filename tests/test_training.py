"""The real commands, end to end."""

import json
import re

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main

from conftest import BIN, PLUGIN, TINY, TINY_MODEL, binarize, documents, hydra, succeed, text_of
from maelm_fairseq.criterion import MaeLmCriterion
from maelm_fairseq.task import MaeLmTask


def train(data, save_dir, *arguments):
    return succeed("fairseq-train", data, *TINY, "--save-dir", save_dir, "--seed", 1, *arguments)


def checkpoint(save_dir, name="checkpoint_last.pt"):
    import maelm_fairseq  # noqa: F401  lets torch read it

    return torch.load(save_dir / name, map_location="cpu", weights_only=True)


def updates(save_dir):
    return checkpoint(save_dir)["optimizer_history"][-1]["num_updates"]


def assert_same_weights(one, other, tolerance):
    one, other = checkpoint(one)["model"], checkpoint(other)["model"]
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], rtol=0, atol=tolerance, msg=key)


NO_DROPOUT = ["--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0]


def test_trains_validates_saves_and_logs(data, tmp_path):
    printed = train(data, tmp_path, "--max-update", 6)
    assert updates(tmp_path) == 6
    assert (tmp_path / "checkpoint_best.pt").exists()
    logged = [json.loads(line[line.index("{") :]) for line in printed.splitlines() if 'num_updates"' in line]
    train_log, valid_log = logged[0], next(log for log in logged if "valid_loss" in log)
    assert {"loss", "ppl", "accuracy", "wps", "predicted", "visible", "wpb"} <= train_log.keys()
    assert float(train_log["predicted"]) + float(train_log["visible"]) == float(train_log["wpb"])
    assert {"valid_loss", "valid_ppl", "valid_accuracy"} <= valid_log.keys()
    # tokens in = tokens out + blank lines
    for counts in re.findall(r"([\d,]+) tokens in; .* blocks, ([\d,]+) tokens out, and ([\d,]+) blank", printed):
        tokens_in, out, blank = (int(count.replace(",", "")) for count in counts)
        assert tokens_in == out + blank and blank > 0

    validated = succeed(
        "fairseq-validate", data, "--user-dir", PLUGIN, "--task", "mae_lm", "--cpu", "--batch-size", 8,
        "--path", tmp_path / "checkpoint_best.pt", "--log-format", "json",
    )  # fmt: skip
    assert f'"valid_loss": "{valid_log["valid_loss"]}"' in validated


def test_loss_falls(tmp_path):
    # Documents that repeat one word: what is masked can be read off the rest.
    repeated = [[" ".join([lines[0].split()[0]] * len(line.split())) for line in lines] for lines in documents(120, 1)]
    data = binarize(tmp_path / "data", {"train": text_of(repeated), "valid": text_of(repeated[:20])})
    schedule = ["--max-update", 200, "--total-num-update", 200, "--lr", 0.003, "--warmup-updates", 20]
    printed = train(data, tmp_path / "run", *schedule, "--log-interval", 40)
    losses = [float(loss) for loss in re.findall(r'"loss": "([\d.]+)"', printed)]
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_and_ten_updates_are_twenty(data, tmp_path, workers):
    arguments = ["--num-workers", workers]
    train(data, tmp_path / "whole", "--max-update", 20, *arguments)
    train(data, tmp_path / "parts", "--max-update", 10, *arguments)
    assert updates(tmp_path / "parts") == 10
    train(data, tmp_path / "parts", "--max-update", 20, *arguments)
    assert updates(tmp_path / "whole") == updates(tmp_path / "parts") == 20
    assert_same_weights(tmp_path / "whole", tmp_path / "parts", 1e-6)


def train_with_two_processes(data, save_dir, *arguments):
    launch = [
        "--no-python", "--nproc_per_node", 2, "--standalone",
        "bash", "-c", 'exec "$0" "$@" --distributed-rank $RANK', BIN / "fairseq-train", data, *TINY,
        "--save-dir", save_dir, "--seed", 1, "--distributed-backend", "gloo", "--distributed-world-size", 2,
        "--distributed-no-spawn", "--distributed-init-method", "env://", "--ddp-backend", "legacy_ddp",
    ]  # fmt: skip
    return succeed("torchrun", *launch, *arguments)


def test_two_processes_are_one_with_twice_the_accumulation_and_resume_too(data, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    options = [*NO_DROPOUT, "--mask-prob", 0.3]
    train(data, one, "--update-freq", 2, "--max-update", 6, *options)
    train_with_two_processes(data, two, "--max-update", 3, *options)
    assert updates(two) == 3
    train_with_two_processes(data, two, "--max-update", 6, *options)
    assert updates(one) == updates(two) == 6
    assert_same_weights(one, two, 1e-5)


def masks_of_three_epochs(data, save_dir, monkeypatch, workers):
    """Runs fairseq's own training loop; gives epoch -> index of a block -> its left-out positions."""
    seen, epoch = {}, []
    forward = MaeLmCriterion.forward

    def record(self, model, sample, reduce=True):
        if model.training:
            for index, positions in zip(sample["id"].tolist(), sample["net_input"]["masked_positions"].tolist()):
                seen.setdefault(epoch[-1], {})[index] = tuple(sorted(p for p in positions if p >= 0))
        return forward(self, model, sample, reduce)

    with monkeypatch.context() as patch:
        patch.setattr(MaeLmTask, "begin_epoch", lambda self, number, model: epoch.append(number))
        patch.setattr(MaeLmCriterion, "forward", record)
        arguments = [data, *TINY, "--max-update", 1000, "--max-epoch", 3, "--save-dir", save_dir, "--no-save"]
        arguments += ["--num-workers", workers]
        args = options.parse_args_and_arch(options.get_training_parser(), list(map(str, arguments)))
        main(convert_namespace_to_omegaconf(args))
    return seen


def test_masks_are_new_every_epoch_and_the_same_for_any_number_of_workers(data, tmp_path, monkeypatch):
    """fairseq's own `masked_lm` repeats the first epoch's masks where it has workers."""
    seen = masks_of_three_epochs(data, tmp_path, monkeypatch, workers=0)
    assert sorted(seen) == [1, 2, 3]
    assert len(seen[1]) == len(seen[2]) == len(seen[3]) > 100
    for a, b in [(1, 2), (2, 3), (1, 3)]:
        long = [index for index in seen[a] if len(seen[a][index]) > 2]
        equal = sum(seen[a][index] == seen[b][index] for index in long)
        assert len(long) > 30 and equal < len(long) / 10
    for workers in [1, 2]:
        assert masks_of_three_epochs(data, tmp_path, monkeypatch, workers) == seen


def test_shards_take_turns(data, tmp_path):
    other = binarize(tmp_path / "other", {"train": text_of(documents(30, 5))}, data / "dict.txt")
    printed = train(f"{data}:{other}", tmp_path / "run", "--max-epoch", 3, "--max-update", 1000)
    loaded = re.findall(r"(\w+)/train: [\d,]+ lines", printed)
    assert loaded[:3] == ["data", "other", "data"]


def test_mlm_baseline_and_options_of_the_method(data, tmp_path):
    for name, arguments in {
        "mlm": ["--encoder-mask-fraction", 1, "--decoder-layers", 0],
        "half": ["--encoder-mask-fraction", 0.5, "--decoder-layers", 2, "--relative-position-num-buckets", 0],
        "roberta": ["--leave-unmasked-prob", 0.1, "--random-token-prob", 0.1, "--decoder-relative-bias"],
        "autocast": ["--bf16-autocast", "--sample-break-mode", "none"],
    }.items():
        train(data, tmp_path / name, "--max-update", 3, *arguments)
        assert updates(tmp_path / name) == 3
    weights = checkpoint(tmp_path / "autocast")["model"]
    assert all(w.dtype in (torch.float32, torch.int64) for w in weights.values())


def test_hydra_is_the_legacy_command_line(data, tmp_path):
    succeed("fairseq-hydra-train", *hydra(tmp_path, data, TINY_MODEL), cwd=tmp_path)
    train(data, tmp_path / "legacy")
    assert updates(tmp_path / "hydra") == updates(tmp_path / "legacy") == 4
    assert_same_weights(tmp_path / "hydra", tmp_path / "legacy", 1e-6)


SIZES = {  # without embeddings of tokens and positions: layers of the encoder, of the decoder, and the head
    "mae_lm_base": dict(layers=12, width=768, ffn=3072, heads=12, num_buckets=32),
    "mae_lm_large": dict(layers=24, width=1024, ffn=4096, heads=16, num_buckets=128),
}


def parameters(vocabulary, layers, width, ffn, heads, num_buckets):
    layer = 4 * width * width + 2 * width * ffn + 9 * width + ffn
    embeddings = vocabulary * width + 2 * 513 * width + 4 * width
    head = width * width + 3 * width + vocabulary
    return (layers + 4) * layer + embeddings + head + num_buckets * heads


@pytest.mark.parametrize("arch", SIZES)
def test_architectures_have_their_sizes_through_both_command_lines(data, tmp_path, arch):
    vocabulary = len((data / "dict.txt").read_text().splitlines()) + 5
    expected = f"num. shared model params: {parameters(vocabulary, **SIZES[arch]):,} "
    # A learning rate below the smallest: builds all and trains nothing.
    legacy = [*TINY[:6], "--arch", arch, "--batch-size", 8, "--optimizer", "adam", "--lr", 0.001, "--cpu"]
    printed = succeed("fairseq-train", data, *legacy, "--stop-min-lr", 1, "--save-dir", tmp_path)
    assert expected in printed
    arguments = hydra(tmp_path, data, {"_name": arch}, stop_min_lr=1)
    assert expected in succeed("fairseq-hydra-train", *arguments, cwd=tmp_path)


def test_relative_paths_work_from_any_folder(data, tmp_path):
    import os

    user_dir, folder = os.path.relpath(PLUGIN, tmp_path), os.path.relpath(data, tmp_path)
    arguments = [user_dir if a == PLUGIN else a for a in TINY]
    succeed("fairseq-train", folder, *arguments, "--save-dir", "run", "--max-update", 2, cwd=tmp_path)
    assert updates(tmp_path / "run") == 2


def test_a_pretrained_encoder_is_fine_tuned(data, tmp_path):
    """fairseq's own sentence_prediction takes the encoder and leaves the decoder behind."""
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
    assert printed.count("the checkpoint's decoder is left behind") == 1
    assert updates(tmp_path / "finetuned") == 3
    pretrained, finetuned = (
        checkpoint(tmp_path / "pretrained", "checkpoint_best.pt")["model"],
        checkpoint(tmp_path / "finetuned")["model"],
    )
    assert not any(key.startswith(("decoder", "lm_head")) for key in finetuned)
    for key in finetuned:
        if not key.startswith("classification_heads"):
            torch.testing.assert_close(finetuned[key], pretrained[key], rtol=0, atol=1e-6)


def test_one_token_samples_and_batches_with_nothing_selected_train(data, tmp_path):
    arguments = ["--sample-break-mode", "eos", "--mask-prob", 0.02, "--max-update", 12, "--batch-size", 1]
    printed = train(data, tmp_path, *arguments)
    assert updates(tmp_path) == 12
    assert '"predicted": "0"' in printed and "nan" not in printed.lower()
