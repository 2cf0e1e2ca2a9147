"""Files of minimal pairs: a table with tabs, or the JSON lines of BLiMP (Warstadt et al., 2020).

Letters in shapes: N pairs.
"""

import hashlib
import os
from dataclasses import dataclass

import numpy as np

from ..base.errors import UsageError, counted
from ..base.json_files import parse_json
from ..base.provenance import sha256
from ..base.utf8 import read_lines

PAIR_COLUMNS = ["good", "bad"]  # of a table, and perhaps GROUP
GROUP = "group"
JSON_LINES = ".jsonl"


@dataclass
class Pairs:
    """The pairs of a file or of a folder."""

    name: str  # of the file or folder, without an ending
    sha256: str
    locations: list  # N strings: FILE, line NUMBER
    good: list  # N strings
    bad: list  # N strings
    groups: np.ndarray  # (N,) strings; empty if the file has no groups


@dataclass
class BlimpPair:
    """What is read from a line of BLiMP."""

    sentence_good: str
    sentence_bad: str
    linguistics_term: str
    UID: str


def read_pairs(path):
    """Reads the minimal pairs of a file, or of a folder.

    - NAME.jsonl has an object with the fields of `BlimpPair` on each line. The group of a
      pair is TERM/UID.
    - Any other file has columns that tabs separate, and a header with `good`, `bad` and perhaps
      `group`, in any order.
    - Of a folder, all .jsonl files are read, in the order of their names.

    Any file may be gzip.

    Returns: `Pairs`
    Raises:
        FileNotFoundError: there is no such file
        UsageError: a file has no pairs, or a line that is not one; the folder has no such file
    """
    path = os.fspath(path)
    name = os.path.basename(os.path.abspath(path))
    if os.path.isdir(path):
        files = json_lines_files(path)
        digest = hashlib.sha256(" ".join(map(sha256, files)).encode()).hexdigest()
    else:
        name = os.path.splitext(name.removesuffix(".gz"))[0]
        files = [path]
        digest = sha256(path)
    rows = [row for file in files for row in read_pair_file(file)]
    locations, good, bad, groups = map(list, zip(*rows))
    return Pairs(name, digest, locations, good, bad, np.array(groups))


def is_json_lines(path):
    return path.removesuffix(".gz").endswith(JSON_LINES)


def json_lines_files(folder):
    """The paths of the .jsonl files in a folder, plain or gzip, in the order of their names."""
    names = sorted(name for name in os.listdir(folder) if is_json_lines(name) and name[0] != ".")
    if not names:
        fault = f"found no file called NAME{JSON_LINES}, expected some, as in BLiMP's data"
        raise UsageError(f"{folder}: {fault}; give the folder that has them")
    for name in names:
        if name + ".gz" in names:
            found = f"found {name} and {name}.gz, expected one of them"
            raise UsageError(f"{folder}: {found}; move the other one away")
    return [os.path.join(folder, name) for name in names]


def read_pair_file(path):
    """The pairs of one file: a list of (location, good, bad, group)."""
    if is_json_lines(path):
        rows = list(read_json_lines(path))
        expected = "an object with a pair on each line"
    else:
        rows = list(read_pair_table(path))
        expected = "a header and a line for each"
    if not rows:
        fault = f"found no pairs, expected {expected}"
        raise UsageError(f"{path}: {fault}; add some, or remove the file")
    return rows


def read_json_lines(path):
    """Yields (location, good, bad, group) of each line that is not blank."""
    names = list(BlimpPair.__dataclass_fields__)
    advice = f"expected an object with {', '.join(names)}, all of them text; correct the line"
    for number, line in read_lines(path):
        if not line.strip():
            continue
        location = f"{path}: line {number}"
        try:
            pair = parse_json(line, BlimpPair, location)
        except UsageError as error:
            raise UsageError(f"{error}; {advice}") from None
        for name, text in vars(pair).items():
            if not text.strip():
                raise UsageError(f"{location}: {name}: found no text; {advice}")
        good, bad, term, paradigm = (text.strip() for text in vars(pair).values())
        yield location, good, bad, f"{term}/{paradigm}"


def read_pair_table(path):
    """Yields (location, good, bad, group) of each line after the header that is not empty."""
    for number, line in read_lines(path):
        cells = line.split("\t")
        location = f"{path}: line {number}"
        if number == 1:
            header = cells
            has_columns = set(PAIR_COLUMNS) <= set(header)
            if not has_columns or len(set(header)) < len(header):
                expected = "expected good and bad, and optionally group, separated by tabs"
                raise UsageError(f"{path}: found the header {line!r}, {expected}; correct it")
        elif line:
            if len(cells) != len(header):
                fault = f"found {counted(len(cells), 'column')}, expected {len(header)}"
                raise UsageError(f"{location}: {fault}; correct the line")
            row = dict(zip(header, map(str.strip, cells)))
            if not row["good"] or not row["bad"]:
                fault = "found an empty cell, expected two sentences"
                raise UsageError(f"{location}: {fault}; correct the line, or remove it")
            yield location, row["good"], row["bad"], row.get(GROUP, "")
