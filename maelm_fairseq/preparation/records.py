"""The records beside prepared data, each written last: what the data were made from, and what is in them."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Dict, List, Optional, Tuple

from ..base.errors import UsageError
from ..base.json_files import read_json

MANIFEST = "prepare.json"


@dataclass
class Options:
    """Those options of prepare.sh that its data depend on; `vocabulary` and `add_tokens` are SHA-256."""

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
    """prepare.json: what a folder is prepared from; `train` and `valid` have the fingerprint of each file."""

    format: int
    train: List[dict]
    valid: List[dict]
    options: Options

    def origin(self):
        """{name: value} to compare with that of another run."""
        return {"format": self.format, "train": self.train, "valid": self.valid, **by_option(asdict(self.options))}


@dataclass
class Read:
    """Counts of all input files."""

    files: int
    lines: int
    text_lines: int
    blank_lines: int
    lines_normalised_to_nothing: int
    documents: int


@dataclass
class SplitRecord:
    """SPLIT.json: what encode.py read, and what it wrote into this shard; a line's `</s>` is one of its tokens."""

    input: Read
    documents: int
    text_lines: int
    tokens: int
    sample: List[Tuple[int, str]]  # lines of the data, from 0, and their text
    # Of "bin", "idx", "vocabulary", and of what the data are, "part"; earlier versions have none of all that follows.
    sha256: Dict[str, str] = field(default_factory=dict)
    characters: int = 0
    unknown: int = 0  # of them
    most_unknown: List[Tuple[str, int]] = field(default_factory=list)  # the most frequent ones


def part(split, shard, shards, fingerprints):
    """The SHA-256 of what a part of the data is: its split, its shard, and the files that it is of."""
    return hashlib.sha256(json.dumps([split, shard, shards, fingerprints]).encode()).hexdigest()


def by_option(values):
    """{name of an attribute: value} as {option: value}, without those that are None."""
    return {f"--{name.replace('_', '-')}": value for name, value in values.items() if value is not None}


def read_manifest(dest):
    """The manifest of a folder that prepare.sh wrote."""
    path, fix = os.path.join(dest, MANIFEST), f"remove {dest} and run prepare.sh again"
    manifest = read_json(path, Manifest, "the record of a folder that prepare.sh wrote", fix, file_names=True)
    if manifest.options.shards < 1:
        raise UsageError(f"{path}: options: shards: found {manifest.options.shards}, expected 1 or more; {fix}")
    return manifest
