"""What transformers computes from exported folders, in environments without this package."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

from conftest import ROOT, TRANSFORMERS, run, script
from huggingface_cases import (
    CASES,
    FINE_TUNED,
    HEADS,
    NO_BIAS,
    T5_BUCKETS,
    P,
    add_special_token,
    byte_level_roberta,
    changed_vocabulary,
    head_of,
    make,
    write_checkpoint,
)
from maelm_fairseq import hub
from maelm_fairseq.base import text_input
from maelm_fairseq.base.vocabulary_files import read_tokenizer
from maelm_fairseq.finetuning.sentence_files import SCHEMAS
from maelm_fairseq.huggingface.edge_cases import EDGE_CASES, EDGE_CASES_WITH_MASK
from maelm_fairseq.huggingface.export import export
from maelm_fairseq.huggingface.export_kinds import KINDS
from maelm_fairseq.huggingface.import_roberta import import_roberta
from maelm_fairseq.huggingface.tokenizer import write_tokenizer
from maelm_fairseq.huggingface.verification import expected_outputs
from maelm_fairseq.vocabulary import load_dictionary
from vocabularies import text, vocabulary

BYTES = "roberta-bytes"
EXTENDED = "bytes-extended"
EXPORT_CHECKS = "maelm_fairseq/huggingface/export_checks.py"


def logits_everywhere(model, row):
    """The logits of pretraining at all T positions, masks and others: (T, N)."""
    hidden = row.eq(model.mask_id) & (not model.masks_in_encoder)
    positions = torch.arange(len(row))
    seen = positions[~hidden]
    masked = positions[hidden]
    outputs = model.model(
        row[seen][None], seen[None], masked[None], num_predicted=len(row), has_padding=False
    )
    return outputs[0][torch.cat([seen, masked]).argsort()]


@torch.no_grad()
def reference(model, tokens, case):
    """What our model computes in float64 at each text without padding.

    Returns {output of transformers: array}.
    """
    model.model.double()
    outputs = {}
    for row in tokens:
        for name, values in outputs_of_row(model, row[row.ne(1)], case).items():
            outputs.setdefault(name, []).append(values)
    pad = torch.nn.utils.rnn.pad_sequence
    return {name: pad(rows, True).numpy() for name, rows in outputs.items()}


def outputs_of_row(model, row, case):
    """{output of transformers: tensor} for the tokens of one text."""
    head = head_of(case)
    if head is not None:
        logits = model.model(row[None], classification_head_name=head)[0][0]
        if head == "span":
            return dict(zip(["start_logits", "end_logits"], logits.unbind(-1)))
        return {"logits": logits}
    predicts_masks = case.startswith("code") or model.masks_in_encoder
    if model.model.lm_head is not None and predicts_masks:
        return {"logits": logits_everywhere(model, row)}
    return {"last_hidden_state": model.extract_features(row)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def models(prepared, folder):
    """Exports the models of all cases, and writes the outputs that are expected.

    Returns the hub's models by case.
    """
    models = {case: make(case, prepared, folder) for case in CASES}
    generator = torch.Generator().manual_seed(1)
    N = len(load_dictionary(prepared))
    tokens = torch.full((4, P), 1)
    for i, length in enumerate([P, 3, 101, 47]):
        tokens[i, :length] = torch.randint(3, N, (length,), generator=generator)
        tokens[i, 0] = 0
        tokens[i, length - 1] = 2
        tokens[i, 2:length:7] = N - 1  # <mask>, also in place of </s>
    for case, (class_name, _, _) in CASES.items():
        auto_class = kind_of(class_name).auto_class
        outputs = reference(models[case], tokens, case)
        np.savez(folder / f"{case}.npz", **{"class": auto_class}, tokens=tokens, **outputs)
        if case in ["code", "code-mean"]:
            features = models[case].extract_features(tokens).numpy()
            outputs = {"class": "AutoModel", "last_hidden_state": features}
            np.savez(folder / f"{case}@AutoModel.npz", tokens=tokens, **outputs)
    return models


def kind_of(class_name):
    """The `ExportKind` that becomes this class."""
    (kind,) = [kind for kind in KINDS if class_name.endswith(kind.class_suffix)]
    return kind


@pytest.fixture(scope="module")
def texts(prepared, folder, tmp_path_factory):
    """The texts of the folder, and those with masks.

    Also writes the tokens that tokenizers of several kinds must give.
    """
    sample = json.loads((prepared / "valid.json").read_text())["sample"]
    lines = [line for _, line in sample][:5]
    masked = [lines[0] + " <mask> " + lines[1][:20], "<mask>.", f"<mask> {lines[2][:30]} <mask>"]
    (folder / "texts.json").write_text(json.dumps({"texts": lines, "masked": masked}))
    tokens = {}
    parent = tmp_path_factory.mktemp("tokenizers")
    singles = text(6, 10) + EDGE_CASES + EDGE_CASES_WITH_MASK
    # To transformers, an empty second text is none.
    pairs = [(one, other) for one, other in zip(singles, singles[::-1]) if other]
    for name, options in [("words", {}), ("bytes", dict(byte_fallback=True, vocab_size=420))]:
        vocabulary(parent / name, **options)
        exported = parent / f"{name}-exported"
        exported.mkdir()
        write_tokenizer(exported, read_tokenizer(parent / name), 512)
        tokens[str(exported)] = tokens_of(parent / name, singles, pairs)
    tokens.update(byte_level(folder, parent))
    (folder / "tokens.json").write_text(json.dumps(tokens))
    return lines, masked


def tokens_of(data, singles, pairs):
    """What a tokenizer must give: list of (text, second text or None, tokens)."""
    tokenizer = read_tokenizer(data)
    inputs = [(single, None) for single in singles] + pairs
    return [(one, other, text_input.tokens_of(tokenizer, one, other)) for one, other in inputs]


def byte_level(folder, parent):
    """Adds a RoBERTa, its export with more words and positions, and what both compute.

    Returns {folder: tokens} of both.
    """
    theirs, data, _ = byte_level_roberta(parent / "bytes-bpe", text(1))
    sources = {BYTES: data, EXTENDED: parent / "more"}
    import_roberta(theirs, data, parent / f"{BYTES}.pt", decoder_layers=0)
    shutil.copytree(theirs, folder / BYTES)
    (parent / "words.txt").write_text("kanlo\nlosha\n")
    options = ["--vocabulary", theirs, "--add-tokens", parent / "words.txt"]
    options += ["--train", theirs / "text.txt", "--valid", theirs / "text.txt"]
    script("data-prep/prepare.sh", *options, "--dest", sources[EXTENDED])
    checkpoint = parent / f"{EXTENDED}.pt"
    import_roberta(theirs, sources[EXTENDED], checkpoint, decoder_layers=0, extend_positions=P + 9)
    export(checkpoint, sources[EXTENDED], folder / EXTENDED)
    for name, source in sources.items():
        model = hub.from_pretrained(parent / f"{name}.pt", source)
        generator = torch.Generator().manual_seed(2)
        shape = (2, model.model.max_positions())
        rows = torch.randint(4, len(model.dictionary), shape, generator=generator)
        logits = reference(model, rows, "roberta-mlm")["logits"]
        outputs = {"class": "AutoModelForMaskedLM", "logits": logits}
        np.savez(folder / f"{name}.npz", tokens=rows, **outputs)
    singles = [*text(6, 10), *EDGE_CASES, *EDGE_CASES_WITH_MASK]
    singles += [" a", "a kanlo losha, kanlos (kanlo)"]
    return {
        str(folder / name): tokens_of(source, singles, [("a b", " c")])
        for name, source in sources.items()
    }


# More exports: {name: (vocabulary, head, options of write_checkpoint)}.
OTHER_VOCABULARIES = {
    "bytes-tags": (BYTES, "tags", NO_BIAS),
    "bytes-topic": (BYTES, "topic", NO_BIAS),
    "bytes-span": (BYTES, "span", {}),
    "bytes-prefix-tags": ("bytes-prefix", "tags", NO_BIAS),
    "bytes-own-tags": ("bytes-own", "tags", NO_BIAS),
    "fallback-tags": ("fallback", "tags", T5_BUCKETS),
    "fallback-pairs": ("fallback", "topic", T5_BUCKETS),
}


def add_prefix(file):
    """A change of a tokenizer.json: a text begins as if a space came before it."""
    file["pre_tokenizer"]["add_prefix_space"] = True


def become_pairs(state):
    """A change: the head is of a task with pairs of texts."""
    state["task_state"].update(form=list(SCHEMAS[4]))


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Folders of data by the names of OTHER_VOCABULARIES."""
    parent = tmp_path_factory.mktemp("vocabularies")
    theirs, data, _ = byte_level_roberta(parent, text(1))
    folders = {
        "bytes-prefix": changed_vocabulary(theirs, parent / "prefix", add_prefix),
        "bytes-own": changed_vocabulary(theirs, parent / "own", add_special_token),
        "fallback": vocabulary(parent / "fallback", byte_fallback=True, vocab_size=420),
    }
    for folder in folders.values():
        tokenizer = read_tokenizer(folder)
        (folder / "dict.txt").write_text(tokenizer.dict_text(), encoding="utf-8")
    return {BYTES: data, **folders}


@pytest.fixture(scope="module")
def expected(models, prepared, vocabularies, folder):
    """Files of what the hub answers, for export_checks.py, by names of exports."""
    hubs = dict(models)
    for name, (vocabulary_name, head, options) in OTHER_VOCABULARIES.items():
        data = vocabularies[vocabulary_name]
        change = become_pairs if name == "fallback-pairs" else None
        options = dict(heads={head: HEADS[head]()}, change=change, **options, **FINE_TUNED)
        checkpoint = write_checkpoint(folder / "checkpoints" / name, data, **options)
        export(checkpoint, data, folder / name)
        hubs[name] = hub.from_pretrained(checkpoint, data)
    (folder / "expected").mkdir()
    paths = {}
    for name, model in hubs.items():
        config = json.loads((folder / name / "config.json").read_text())
        (class_name,) = config["architectures"]
        is_ours = class_name.startswith("MaeLm")
        model.model.float()
        lines = ["was [DRUG] given [DRUG] 5", *text(6, 10)]
        paths[name] = folder / "expected" / f"{name}.pt"
        torch.save(expected_outputs(model, kind_of(class_name), is_ours, lines), paths[name])
    return paths


def printed_by(*command, **environment):
    """What a program of another environment prints, on standard output and standard error.

    It must exit with 0.
    """
    variables = {**os.environ, **environment}
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module", params=TRANSFORMERS)
def results(request, folder, models, texts, expected):
    """The results of huggingface_use.py and of export_checks.py.

    The interpreter that runs them does not have this package.
    """
    use = [ROOT / "tests/helpers/huggingface_use.py", folder]
    check = [ROOT / EXPORT_CHECKS, folder, *expected.values()]
    cache = folder / "huggingface"  # for modeling files
    printed, _ = printed_by(request.param, *use, *check, HF_HOME=str(cache))
    used, checked = map(json.loads, printed.splitlines()[-2:])
    return {**used, "checks": checked}


def test_exports_answer_as_the_hub(results, expected):
    checked = results["checks"]
    assert checked.keys() == expected.keys()
    faults = {name: result["faults"] for name, result in checked.items() if result["faults"]}
    assert faults == {}
    keys = set()
    for result in checked.values():
        counts = result["counts"]
        assert sum(counts.values()) > 4
        keys |= {key for key, count in counts.items() if count}
    assert keys == {"texts", "mask_probabilities", "word_labels", "pipeline_texts", "answers"}


def test_transformers_computes_the_same(results):
    compared = dict(results["compared"])
    for name in [BYTES, EXTENDED]:
        byte_level = compared.pop(name)
        assert byte_level["class"] == "RobertaForMaskedLM"
        assert max(byte_level["differences"].values()) < 1e-5
    assert compared.keys() == {*CASES, "code@AutoModel", "code-mean@AutoModel"}
    for name, result in compared.items():
        case, _, base = name.partition("@")
        assert result["class"] == ("MaeLmModel" if base else CASES[case][0])
        assert all(unused.startswith("classifier.") for unused in result["unused"]), name
        assert bool(result["unused"]) == (name == "code-mean@AutoModel")
        # MPNet has no sdpa in some versions, and stock heads are not compared with padding on the
        # left, as they read the first column.
        assert len(result["differences"]) >= (8 if case.startswith("code") else 2)
        for setting, difference in result["differences"].items():
            limit = 1e-12 if "float64" in setting else 1e-4
            assert difference < limit, (name, setting, difference)


def test_transformers_gives_the_same_tokens(results):
    assert results["other tokens"] == []


def test_the_folders_are_used_as_any_others(results):
    for use, difference in results["differences"].items():
        assert difference < (1e-12 if use.startswith("save") else 1e-5), use
    assert len(results["losses of Trainer"]) == 2
    assert len(results["in half precision"]) == 6
    assert max(results["in half precision"].values()) < 0.1
    for head, loss in results["losses"].items():
        assert 0 < loss < 100, (head, loss)


def test_masks_are_filled_as_by_the_hub(results, models, texts):
    _, masked = texts
    for name, filled in results["fill_mask"].items():
        model = models[name]
        model.model.float()
        expected = []
        for line in masked:
            expected += model.fill_mask(line, topk=1)
        assert len(filled) == len(expected) == 4
        # The hub's candidates are pieces only.
        specials = {0, 1, 2, 3, model.mask_id}
        for probabilities, [(piece, probability)] in zip(filled, expected):
            numbers = {int(token): p for token, p in probabilities.items()}
            pieces = {token: p for token, p in numbers.items() if token not in specials}
            best = max(pieces, key=pieces.get)
            name_of_best = model.dictionary[best].replace("\u2581", " ").strip()
            assert piece in [model.tokenizer.decode([best]), name_of_best]
            assert pieces[best] / sum(pieces.values()) == pytest.approx(probability, abs=1e-6)


SENTENCES = """
import json, sys
from sentence_transformers import SentenceTransformer

*folders, texts = sys.argv[1:]
for folder in folders:
    model = SentenceTransformer(folder, trust_remote_code="code" in folder, device="cpu")
    print(json.dumps([model.max_seq_length, model.encode(json.loads(texts)).tolist()]))
"""


@pytest.mark.parametrize("interpreter", TRANSFORMERS[-1:])
def test_an_export_is_a_sentence_transformer(models, folder, interpreter, prepared, tmp_path):
    """Its vectors are the hub's, of longer texts too, and nothing warns of anything."""
    texts = [*text(8, 5)[:6], "", "kan " * 2 * P]
    cases = ["roberta", "mpnet-t5", "code", "code-shared"]
    folders = [folder / case for case in cases]
    options = ["-W", "error::UserWarning", "-c", SENTENCES, *folders, json.dumps(texts)]
    printed, warned = printed_by(interpreter, *options, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert not re.search("warn|not used|UNEXPECTED|MISSING|newly", warned, re.I), warned
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    for (length, vectors), case in zip(lines, cases, strict=True):
        expected = models[case].to(torch.float32).embed(texts, truncate=True)
        assert length == P
        assert (torch.tensor(vectors) - expected).abs().max() < 1e-5


WITH_TRANSFORMERS = """
import sys
packages, checkpoint, data, folder = sys.argv[1:]
sys.path.append(packages)
from maelm_fairseq.huggingface import export

print(export.export(checkpoint, data, folder + "/right")[2])
right = export.make_config
export.make_config = lambda *arguments: dict(right(*arguments), layer_norm_eps=1e-2)
export.export(checkpoint, data, folder + "/mistake")
"""


@pytest.mark.parametrize("interpreter", TRANSFORMERS[-1:])  # older ones need an older tokenizers
def test_the_export_compares_features_where_transformers_is_installed(
    prepared, tmp_path, interpreter
):
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = printed_by(interpreter, "-c", code)[0].strip()
    checkpoint = write_checkpoint(tmp_path / "run", prepared)
    arguments = [packages, checkpoint, prepared, tmp_path]
    printed = run("python", "-c", WITH_TRANSFORMERS, *arguments, cwd=ROOT).stdout
    answer = r"^transformers \S+ answers as the hub does \(9 texts, 8 texts with masks; numbers"
    assert re.search(answer, printed, re.M)
    fault = (
        r"UsageError: transformers \S+ gives other results than the hub in \d+ checks; the first"
    )
    assert re.search(fault, printed)
    assert sorted(os.listdir(tmp_path)) == ["right", "run"]
