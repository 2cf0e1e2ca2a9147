"""The records beside prepared data: what the data were made from, and what is in them.

A record is written after what it describes.
"""

import contextlib
import glob
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from ..base.byte_level_tokenizer import TOKENIZER_JSON
from ..base.errors import UsageError
from ..base.json_files import read_json, save_json
from ..base.option_fields import option_name
from ..base.provenance import check_same_origin

MANIFEST = "prepare.json"
# Of what else prepare.sh writes into a folder.
OUTPUT_ENDINGS = (
    ".bin",
    ".idx",
    ".model",
    "dict.txt",
    TOKENIZER_JSON,
    "train.json",
    "valid.json",
    "documents.json",
)


@dataclass
class PreparationOptions:
    """Those options of prepare.sh that its data depend on.

    `vocabulary` and `add_tokens` are the SHA-256 of the files.
    """

    shards: int
    vocabulary: Optional[str] = None
    add_tokens: Optional[str] = None
    vocab_size: Optional[int] = None
    model_type: Optional[str] = None
    lowercase: bool = False
    sample_lines: Optional[int] = None
    byte_fallback: bool = False
    valid_documents: Optional[int] = None


@dataclass
class Manifest:
    """prepare.json: what a folder is prepared from.

    `train` and `valid` have the fingerprint of each file.
    """

    format: int
    train: List[dict]
    valid: List[dict]
    options: PreparationOptions

    def origin(self):
        """{name: value}, by which two runs are compared."""
        options = options_with_values(asdict(self.options))
        return {"format": self.format, "train": self.train, "valid": self.valid, **options}


@dataclass
class InputCounts:
    """Counts of all input files."""

    files: int
    lines: int
    text_lines: int
    blank_lines: int
    lines_normalised_to_nothing: int
    documents: int


@dataclass
class SplitRecord:
    """SPLIT.json: what encode.py read, and what it wrote into this shard.

    The `</s>` of a line is one of its tokens.
    """

    input: InputCounts
    documents: int
    text_lines: int
    tokens: int
    sample: List[Tuple[int, str]]  # lines of the data, from 0, and their text
    # Records of earlier versions lack all that follows.
    # The keys are "bin", "idx" and "vocabulary", and "part" for what the data were made from.
    sha256: Dict[str, str] = field(default_factory=dict)
    characters: int = 0
    unknown: int = 0  # of them
    most_unknown: List[Tuple[str, int]] = field(default_factory=list)  # the most frequent ones


def part_fingerprint(split, shard, num_shards, fingerprints):
    """The SHA-256 of what a part of the data is: its split, shard, and the files of its text."""
    text = json.dumps([split, shard, num_shards, fingerprints])
    return hashlib.sha256(text.encode()).hexdigest()


def options_with_values(values):
    """{name of an attribute: value} as {option: value}, without those that are None."""
    return {option_name(name): value for name, value in values.items() if value is not None}


def read_manifest(dest):
    """The manifest of a folder that prepare.sh wrote."""
    path = os.path.join(dest, MANIFEST)
    expected = "the record of a folder that prepare.sh wrote"
    advice = f"remove {dest} and run prepare.sh again"
    manifest = read_json(path, Manifest, expected, advice)
    shards = manifest.options.shards
    if shards < 1:
        raise UsageError(f"{path}: options: shards: found {shards}, expected 1 or more; {advice}")
    return manifest


def claim(dest, manifest):
    """Writes the manifest into a folder, or compares it with the existing one.

    Raises:
        UsageError: the folder contains data from another corpus, with other options, or of unknown
            origin
    """
    path = os.path.join(dest, MANIFEST)
    names = glob.glob("*", root_dir=dest) + glob.glob("shard*/*", root_dir=dest)
    foreign = sorted(name for name in names if name.endswith(OUTPUT_ENDINGS))
    # The manifest is looked for after the files: a process that started at the same time may have
    # written them, but it writes the manifest first.
    if not os.path.exists(path):
        if foreign:
            found = f"{dest} contains {foreign[0]} but no {MANIFEST}"
            raise UsageError(f"--dest: {found}; expected an empty folder; choose another")
        with contextlib.suppress(UsageError):  # another process was first: it is compared with that
            save_json(asdict(manifest), path, must_be_new=True)
    advice = "choose another --dest, or remove this one"
    check_same_origin(f"--dest {dest}", read_manifest(dest).origin(), manifest.origin(), advice)


def release(dest):
    """Takes back what `claim` did, of a folder without data: another command can claim it."""
    os.remove(os.path.join(dest, MANIFEST))


@dataclass
class SplitSummary:
    """What users want to know of the `SplitRecord` of a shard, or the sum of several."""

    shards: int = 1
    documents: int = 0
    text_lines: int = 0
    tokens: int = 0
    sample: List[Tuple[int, str]] = field(default_factory=list)  # number and text of lines


def read_split_summary(data, split):
    """The record of a split: the sum over all shards, whether `data` contains them or is one.

    It is empty if another program prepared the data.
    """
    folder = Path(data).resolve()
    all_shards = folder.parent if re.fullmatch(r"shard\d+", folder.name) else folder
    paths = sorted(all_shards.glob(f"shard*/{split}.json"))
    if not paths:
        paths = filter(Path.exists, [folder / f"{split}.json"])
    total = SplitSummary(shards=0)
    for path in paths:
        record = read_json(
            path,
            SplitSummary,
            "the record that data-prep/prepare.sh wrote",
            "prepare the data again",
        )
        total.shards += record.shards
        total.documents += record.documents
        total.text_lines += record.text_lines
        total.tokens += record.tokens
        total.sample += record.sample
    return total
