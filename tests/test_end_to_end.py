"""From raw text to a model that fills masks, with the commands that users run."""

import gzip
import re

import pytest

from conftest import PLUGIN, TINY, documents, succeed, text_of
from maelm_fairseq import hub
from scripts import script
from test_recipes import ODD
from training import updates


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two shards that data-prep/prepare.sh writes, of text with capitals; one of the two input files is compressed."""
    folder = tmp_path_factory.mktemp("raw") / ODD
    folder.mkdir()
    text = text_of(documents(300, 1)).replace("kan", "Kan")
    (folder / "a.txt").write_text(text, encoding="utf-8")
    with gzip.open(folder / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write(text_of(documents(200, 2)) + " ".join(["long line"] * 300))
    (folder / "valid.txt").write_text(text_of(documents(30, 3)), encoding="utf-8")
    options = ["--train", folder / "a.txt", folder / "b.txt.gz", "--valid", folder / "valid.txt"]
    options += ["--dest", folder / "data", "--vocab-size", 120, "--lowercase", "--shards", 2, "--workers", 2]
    return script("data-prep/prepare.sh", *options).stdout.splitlines()[-1]


def test_raw_text_to_filled_masks(shards, tmp_path):
    train = ["fairseq-train", shards, *TINY, "--save-dir", tmp_path / "run", "--mask-whole-words"]
    printed = succeed(*train, "--max-update", 3)
    # The long line was cut, not dropped: tokens in = tokens out + blank lines.
    found = re.findall(r"([\d,]+) tokens in; .* blocks, ([\d,]+) tokens out, and ([\d,]+) blank", printed)
    assert len(found) >= 2  # of valid, and of one training shard at least
    for counts in found:
        tokens_in, out, blank = (int(count.replace(",", "")) for count in counts)
        assert tokens_in == out + blank and out > 0 < blank
    resumed = succeed(*train, "--max-update", 6)
    assert "Loaded checkpoint" in resumed and '"num_updates": "3"' not in resumed
    last = tmp_path / "run" / "checkpoint_last.pt"
    assert updates(tmp_path / "run") == 6

    validate = ["--user-dir", PLUGIN, "--task", "mae_lm", "--path", last, "--batch-size", 8, "--cpu"]
    first_shard = shards.split(":")[0]
    assert "valid on 'valid' subset | loss" in succeed("fairseq-validate", first_shard, *validate)

    model = hub.from_pretrained(last, data=first_shard)
    tokens = model.encode("Kan <mask> lon.").tolist()
    at = tokens.index(model.dictionary.index("<mask>"))
    assert at > 1
    assert model.tokenizer.processor.decode([i - 1 for i in tokens[1:at]]) == "kan"  # lowercased by the model
    filled = model.fill_mask("kan <mask> lon <mask>", topk=3)
    assert len(filled) == 2 and all(len(candidates) == 3 for candidates in filled)
    assert all(p >= q for candidates in filled for (_, p), (_, q) in zip(candidates, candidates[1:]))
