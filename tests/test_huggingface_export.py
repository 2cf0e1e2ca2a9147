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
from conftest import command, refuses
from huggingface_cases import CASES, FINE_TUNED, NO_BIAS, C, H, P, classifier, make, read, write_checkpoint
from maelm_fairseq.base.vocabulary_files import read_subwords
from maelm_fairseq.heads import SpanHead
from maelm_fairseq.huggingface import export as program
from maelm_fairseq.huggingface.card import read_record
from maelm_fairseq.huggingface.config_json import MODELING_FILE
from maelm_fairseq.huggingface.tokenizer import check_tokenizer, sample_lines
from maelm_fairseq.huggingface.weights import mpnet_table
from maelm_fairseq.layers import RelativePositionBias
from maelm_fairseq.vocabulary import load_dictionary


@pytest.mark.parametrize("case, pipeline", [
    ("roberta", "feature-extraction"), ("roberta-mlm", "fill-mask"), ("roberta-score", "text-classification"),
    ("mpnet-t5-span", "question-answering"), ("roberta-tags", "token-classification"),
    ("code-shared", "fill-mask"), ("code-mean", "text-classification"),
])  # fmt: skip
def test_what_is_written(case, pipeline, prepared, tmp_path):
    make(case, prepared, tmp_path)
    (config, _), folder = read(tmp_path / case), tmp_path / case
    assert config["architectures"] == [CASES[case][0]] and config["layer_norm_eps"] == 1e-5
    assert config.get("problem_type") == ("regression" if case == "roberta-score" else None)
    if case in ["code-mean", "roberta-tags"]:
        assert config["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    assert (folder / MODELING_FILE).exists() == ("auto_map" in config) == case.startswith("code")
    if case.startswith("code"):
        assert ("AutoModelForMaskedLM" in config["auto_map"]) == (pipeline == "fill-mask")
        assert config["max_position_embeddings"] == P
        assert config["mask_token_id"] == len(load_dictionary(prepared)) - 1

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert check_tokenizer(tokenizer, read_subwords(prepared), sample_lines(prepared)) > 200
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == P

    card = (folder / "README.md").read_text(encoding="utf-8")
    _, metadata, text = card.split("---\n", 2)
    assert yaml.safe_load(metadata)["pipeline_tag"] == pipeline and "license:" in card and "$" not in card
    (usage,) = re.findall(r"```python\n(.*?)```", text, re.S)
    ast.parse(usage)
    assert f'"{case}"' in usage and ("trust_remote_code=True" in usage) == case.startswith("code")
    bits = " bits per predicted token, 15% of the tokens masked; by token frequencies alone: 9.5"
    pretrained = pipeline in ["feature-extraction", "fill-mask"]
    assert re.search(r"- Validation loss: 5\.125(.*)", card)[1] == bits * pretrained and "combining marks" in card
    assert f", {P} positions, " in card and ("`share_decoder_layers` True" in card) == ("shared" in case)
    assert ("MAE-LM (" in card and "unlike the paper's" in card) == ("shared" in case)


@pytest.mark.parametrize("length", [None, 64, P])
def test_the_card_says_up_to_which_position_it_was_pretrained(length, prepared, tmp_path):
    """Also of a fine-tuned checkpoint, which keeps it in its state."""

    def change(state):
        if length:
            state["task_state"]["tokens_per_sample"] = length

    checkpoint = write_checkpoint(tmp_path, prepared, change, {"topic": classifier()}, **FINE_TUNED, **NO_BIAS)
    program.export(checkpoint, prepared, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    sentence = " In pretraining, it read at most 64: later positions are untrained.\n"
    assert f"- It reads up to {P} tokens of a text.{sentence if length == 64 else chr(10)}" in card


def test_the_program_exports_a_trained_model(pretrained, tmp_path):
    """Into a folder of any name."""
    data, checkpoint = pretrained
    name = 'caf\udcff${x}"[a]*'
    dest = tmp_path / "new" / name
    options = ["--checkpoint", checkpoint.parent, "--data", data, "--dest", dest]
    export = command("python", "-m", "maelm_fairseq.huggingface.export", *options)
    written, compared = subprocess.run(export, capture_output=True, check=True).stdout.splitlines()
    assert written.startswith(os.fsencode(f"written: {dest}, MaeLmForMaskedLM"))
    # As it is here, or in an environment into which somebody has installed transformers.
    assert compared.startswith(b"outputs not compared") or b"answers as the hub does" in compared
    assert os.listdir(tmp_path / "new") == [name]
    assert len({file.stat().st_mode for file in dest.rglob("*.*")}) == 1
    card = (dest / "README.md").read_text()
    (usage,) = re.findall(r"```python\n(.*?)```", card, re.S)
    assert name in [node.value for node in ast.walk(ast.parse(usage)) if isinstance(node, ast.Constant)]
    documents = json.loads((data / "train.json").read_text())["documents"]
    assert f"- Data: {documents:,} documents, " in card and "- Updates: 2\n" in card
    assert "- Text and language: **please fill in**\n" in card and "truncation=True" in card
    assert "`mask_prob` 0.15" in card
    shards = [tmp_path / "data" / f"shard{i}" for i in range(2)]
    for shard in shards:
        shutil.copytree(data, shard)
    for folder in [shards[0], shards[0].parent]:
        assert read_record(folder, "train").documents == 2 * read_record(data, "train").documents
    assert re.search(r"- Validation loss: \d.* masked; by token frequencies alone: \d", card)


def test_heads_and_what_is_left_out(prepared, tmp_path):
    def discriminator(state):
        state["model"]["discriminator.weight"] = torch.zeros(2)

    def with_heads(**heads):
        return write_checkpoint(tmp_path / "run", prepared, discriminator, heads=heads, **NO_BIAS, **FINE_TUNED)

    done = program.export(with_heads(span=SpanHead(C)), prepared, tmp_path / "new")
    assert done[:2] == ("RobertaForQuestionAnswering", ["discriminator"])
    with pytest.raises(ValueError, match="^the checkpoint has the heads topic, span, expected one; save it with one"):
        program.export(with_heads(topic=classifier(), span=SpanHead(C)), prepared, tmp_path / "other")
    with pytest.raises(ValueError, match="fine-tuned on SQuAD by version 0.2, on other pieces of text: fine-tune it"):
        program.export(with_heads(squad=SpanHead(C)), prepared, tmp_path / "other")
    checkpoint = write_checkpoint(tmp_path / "encoder", prepared, **NO_BIAS)
    done = program.export(checkpoint, prepared, tmp_path / "stock")
    assert done[:2] == ("RobertaModel", ["decoder", "lm_head"])


def test_a_bias_is_taken_over_distance_by_distance():
    four, authors, t5 = (RelativePositionBias(buckets, 128, H, P) for buckets in [4, 32, 32])
    buckets = torch.tensor([naive.t5_bucket(distance, 32, 128) for distance in range(-P, P + 1)])
    t5.bucket = buckets.clone()
    for bias in [t5, four]:
        rows = slice(1, -1)  # at distances that two positions can have
        assert mpnet_table(bias)[buckets[rows]].equal(bias.table.weight[bias.bucket[rows]])
    t5.bucket[P + 100] = 16  # one distance that differs is found: none has T5's bucket 16
    assert mpnet_table(t5) is None and mpnet_table(authors) is None


def test_refused(prepared, tmp_path, monkeypatch):
    checkpoint = write_checkpoint(tmp_path / "run", prepared, **NO_BIAS)
    with pytest.raises(ValueError, match="run: exists already; remove it or choose another --dest$"):
        program.export(checkpoint, prepared, tmp_path / "run")
    refuses("dict.txt: not found", program.export, checkpoint, tmp_path, tmp_path / "new", error=FileNotFoundError)
    assert os.listdir(tmp_path) == ["run"]
