"""Exports to Hugging Face: what is written, and what is refused."""

import ast
import json
import os
import re
import shutil
import subprocess

import pytest
import torch
import yaml
from tokenizers import Tokenizer

import naive
from conftest import command, error_of, refuses, run_main
from huggingface_cases import (
    CASES,
    FINE_TUNED,
    NO_BIAS,
    C,
    H,
    P,
    classifier,
    make,
    read,
    write_checkpoint,
)
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.heads import SpanHead
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.huggingface.config_json import MODELING_FILE
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, recorded_lines
from maelm_fairseq.huggingface.weights import mpnet_table
from maelm_fairseq.layers import RelativePositionBias
from maelm_fairseq.preparation.manifest import read_split_summary
from maelm_fairseq.vocabulary import load_dictionary


@pytest.mark.parametrize("case, pipeline", [
    ("roberta", "feature-extraction"),
    ("roberta-mlm", "fill-mask"),
    ("roberta-score", "text-classification"),
    ("mpnet-t5-span", "question-answering"),
    ("roberta-tags", "token-classification"),
    ("code-shared", "fill-mask"),
    ("code-mean", "text-classification"),
])  # fmt: skip
def test_what_is_written(case, pipeline, prepared, tmp_path):
    make(case, prepared, tmp_path)
    config, _ = read(tmp_path / case)
    folder = tmp_path / case
    has_code = case.startswith("code")
    assert config["architectures"] == [CASES[case][0]]
    assert config["layer_norm_eps"] == 1e-5
    assert config.get("problem_type") == ("regression" if case == "roberta-score" else None)
    if case in ["code-mean", "roberta-tags"]:
        assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    assert (folder / MODELING_FILE).exists() == has_code
    assert ("auto_map" in config) == has_code
    if has_code:
        assert ("AutoModelForMaskedLM" in config["auto_map"]) == (pipeline == "fill-mask")
        assert config["max_position_embeddings"] == P
        assert config["mask_token_id"] == len(load_dictionary(prepared)) - 1

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert check_tokenizer(tokenizer, read_tokenizer(prepared), recorded_lines(prepared)) > 200
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == P
    check_card(case, pipeline, (folder / "README.md").read_text(encoding="utf-8"))


def check_card(case, pipeline, card):
    has_code = case.startswith("code")
    is_shared = "shared" in case
    _, metadata, text = card.split("---\n", 2)
    assert yaml.safe_load(metadata)["pipeline_tag"] == pipeline
    assert "license:" in card
    assert "$" not in card
    (usage,) = re.findall(r"```python\n(.*?)```", text, re.S)
    ast.parse(usage)
    assert f'"{case}"' in usage
    assert ("trust_remote_code=True" in usage) == has_code
    bits = " bits"
    stage = " of fine-tuning"
    if pipeline in ["feature-extraction", "fill-mask"]:
        bits = " bits per predicted token, 15% of the tokens predicted; "
        bits += "by token frequencies alone: 9.5"
        stage = ""
    assert re.search(rf"- Validation loss{stage}: 5\.125(.*)", card)[1] == bits
    assert "combining marks" in card
    assert f", {P} positions, " in card
    assert ("`share_decoder_layers` True" in card) == is_shared
    assert ("MAE-LM (" in card and "unlike the paper's" in card) == is_shared


@pytest.mark.parametrize("length", [None, 64, P])
def test_the_card_says_up_to_which_position_it_was_pretrained(length, prepared, tmp_path):
    """Also for a fine-tuned checkpoint, which keeps this length in its state."""

    def change(state):
        state["cfg"]["optimization"] = {"lr": [0.001]}
        if length:
            state["task_state"]["tokens_per_sample"] = length
        state["task_state"].update(pretraining_updates=9000, mask_prob=0.3)

    heads = {"topic": classifier()}
    checkpoint = write_checkpoint(tmp_path, prepared, change, heads, **FINE_TUNED, **NO_BIAS)
    program.export(checkpoint, prepared, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "\n- Options of pretraining: `decoder_layers` " in card
    assert "\n- Pretraining: 9,000 updates\n" in card
    assert "`mask_prob` 0.3" in card
    assert "\n- Options of fine-tuning: `lr` 0.001\n" in card
    sentence = f"- It reads up to {P} tokens of a text."
    if length == 64:
        sentence += " In pretraining, it read at most 64: later positions are untrained."
    assert sentence + "\n" in card


def test_the_card_says_what_came_before_fine_tuning(prepared, tmp_path):
    def card_of(name, *, pretrained_updates, earlier=(), **pretraining):
        def change(state):
            state["cfg"]["checkpoint"] = {"finetune_from_model": "runs/small/checkpoint_best.pt"}
            state["task_state"].update(pretraining_updates=pretrained_updates, **pretraining)
            state["task_state"].update(train_file="c", earlier_train_files=list(earlier))

        folder = tmp_path / name
        heads = {"topic": classifier()}
        folder.mkdir()
        checkpoint = write_checkpoint(folder, prepared, change, heads, **FINE_TUNED, **NO_BIAS)
        program.export(checkpoint, prepared, folder / "exported")
        return (folder / "exported" / "README.md").read_text()

    twice = card_of("twice", pretrained_updates=6, pretraining_start="a/base.pt", earlier=["d"])
    assert "\n- Pretraining: 6 updates, starting from `a/base.pt`\n" in twice
    assert "starting from `small/checkpoint_best.pt`, which had been fine-tuned on" in twice
    assert "- Pretraining data: " in twice
    assert "- mae-lm\n" in twice
    scratch = card_of("scratch", pretrained_updates=0)
    assert "A text encoder trained on labelled examples alone, from random weights, of" in scratch
    assert "retraining" not in scratch.replace("maelm", "")
    assert "- mae-lm\n" not in scratch
    assert "which had been fine-tuned" not in scratch


def test_the_program_exports_a_trained_model(pretrained, tmp_path):
    """Into a folder of any name."""
    data, checkpoint = pretrained
    name = 'caf\xe9${x}"[a]*'
    dest = tmp_path / "new" / name
    options = ["--checkpoint", checkpoint.parent, "--data", data, "--dest", dest]
    export = command("python", "-m", "maelm_fairseq.huggingface.export", *options)
    done = subprocess.run(export, capture_output=True, check=True)
    written, compared = done.stdout.splitlines()
    assert written.startswith(os.fsencode(f"written: {dest}, MaeLmForMaskedLM"))
    # The tests' environment has no transformers, unless somebody has installed it.
    assert compared.startswith(b"outputs not compared") or b"answers as the hub does" in compared
    assert os.listdir(tmp_path / "new") == [name]
    assert len({file.stat().st_mode for file in dest.rglob("*.*")}) == 1
    card = (dest / "README.md").read_text()
    (usage,) = re.findall(r"```python\n(.*?)```", card, re.S)
    nodes = [node for node in ast.walk(ast.parse(usage)) if isinstance(node, ast.Constant)]
    assert name in [node.value for node in nodes]
    documents = json.loads((data / "train.json").read_text())["documents"]
    assert f"- Data: {documents:,} documents, " in card
    assert "- Pretraining: 2 updates\n" in card
    assert "- Text and language: **please fill in**\n" in card
    assert "truncation=True" in card
    assert "`mask_prob` 0.15, `leave_unmasked_prob` 0.0, `random_token_prob` 0.0," in card
    assert "`lr` 0.0" in card
    assert re.search(r"- Validation loss: \d.* predicted; by token frequencies alone: \d", card)
    check_record_of_shards(data, tmp_path / "data")


def check_record_of_shards(data, folder):
    """It has the documents of all shards."""
    shards = [folder / f"shard{i}" for i in range(2)]
    for shard in shards:
        shutil.copytree(data, shard)
    of_one_shard = read_split_summary(data, "train").documents
    for shard_or_parent in [shards[0], folder]:
        assert read_split_summary(shard_or_parent, "train").documents == 2 * of_one_shard


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_export_is_compared_and_another_refused(prepared, tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "run", prepared, **NO_BIAS)
    dest = tmp_path / "dest"
    options = ["--checkpoint", checkpoint, "--data", prepared, "--dest", dest]
    run_main(program.main, *options)
    before = contents(dest)
    run_main(program.main, *options)
    written, compared, same, compared_again = capsys.readouterr().out.splitlines()
    assert written.startswith(f"written: {dest}, RobertaModel")
    assert same.startswith(f"left unchanged, as it is this export already: {dest}, RobertaModel")
    assert compared_again == compared
    assert "-c constraints.txt transformers" in compared or "answers as the hub does" in compared
    assert contents(dest) == before
    (dest / "README.md").write_text("My own words")
    copy = shutil.copytree(dest, tmp_path / "renamed")
    run_main(program.main, *options, "--description", "of films")
    run_main(program.main, *options[:-1], copy)
    first, description, _, second, _ = capsys.readouterr().out.splitlines()
    for line in [first, second]:
        assert line.startswith("left unchanged, as it is this export already: ")
    assert description == f"--description was not used: edit {dest}/README.md instead"
    assert (dest / "README.md").read_text() == "My own words"
    shutil.rmtree(copy)
    changes = [
        ("model.safetensors", b"mine", "other contents of"),
        ("1_Pooling/config.json", None, "no"),
        ("notes.txt", b"mine", "also"),
    ]
    for name, content, fault_of_name in changes:
        path = dest / name
        was = path.read_bytes() if path.exists() else None
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        edited = contents(dest)
        fault = error_of(program.main, *options)
        assert fault.startswith(f"{dest}: exists already, and is not the same as this export")
        assert f"found {fault_of_name} {name}; choose another --dest" in fault
        assert contents(dest) == edited
        if was is None:
            path.unlink()
        else:
            path.write_bytes(was)
    assert sorted(os.listdir(tmp_path)) == ["dest", "run"]


def test_heads_and_what_is_left_out(prepared, tmp_path):
    def discriminator(state):
        state["model"]["discriminator.weight"] = torch.zeros(2)

    def with_heads(**heads):
        options = {**NO_BIAS, **FINE_TUNED}
        return write_checkpoint(tmp_path / "run", prepared, discriminator, heads=heads, **options)

    done = program.export(with_heads(span=SpanHead(C)), prepared, tmp_path / "new")
    assert done[:2] == ("RobertaForQuestionAnswering", ["discriminator"])
    fault = "^the checkpoint has the heads topic, span, expected one; save it with one"
    with pytest.raises(ValueError, match=fault):
        two_heads = with_heads(topic=classifier(), span=SpanHead(C))
        program.export(two_heads, prepared, tmp_path / "other")
    fault = "fine-tuned on SQuAD by version 0.2, on other pieces of text: fine-tune it"
    with pytest.raises(ValueError, match=fault):
        program.export(with_heads(squad=SpanHead(C)), prepared, tmp_path / "other")
    checkpoint = write_checkpoint(tmp_path / "encoder", prepared, **NO_BIAS)
    done = program.export(checkpoint, prepared, tmp_path / "stock")
    assert done[:2] == ("RobertaModel", ["decoder", "lm_head"])


def test_a_bias_is_taken_over_distance_by_distance():
    four = RelativePositionBias(4, 128, H, P)
    authors = RelativePositionBias(32, 128, H, P)
    t5 = RelativePositionBias(32, 128, H, P)
    distances = range(-P, P + 1)
    buckets = torch.tensor([naive.t5_bucket(distance, 32, 128) for distance in distances])
    t5.bucket = buckets.clone()
    for bias in [t5, four]:
        rows = slice(1, -1)  # at distances that two positions can have
        assert mpnet_table(bias)[buckets[rows]].equal(bias.table.weight[bias.bucket[rows]])
    t5.bucket[P + 100] = 16  # at one distance, it differs: there, T5 has another bucket
    assert mpnet_table(t5) is None
    assert mpnet_table(authors) is None


def test_refused(prepared, tmp_path, monkeypatch):
    run = tmp_path / "run"
    checkpoint = write_checkpoint(run, prepared, **NO_BIAS)
    fault = "run: exists already; remove it or choose another --dest$"
    with pytest.raises(ValueError, match=fault):
        program.export(checkpoint, prepared, run)
    missing = [checkpoint, tmp_path, tmp_path / "new"]
    refuses("dict.txt: not found", program.export, *missing, error=FileNotFoundError)
    assert os.listdir(tmp_path) == ["run"]
