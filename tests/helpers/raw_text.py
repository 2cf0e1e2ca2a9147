"""Files of raw text for prepare.sh, and what it wrote."""

import gzip
from pathlib import Path

from conftest import ROOT

PREP = str(ROOT / "data-prep")


def write(path, documents, end="\n", last=True):
    """Writes documents with blank lines between them and, if `last`, after the last one."""
    text = (end + end).join(end.join(document) for document in documents)
    if last:
        text += end + end
    content = text.encode("utf-8")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def arguments(text, dest, *options):
    """The arguments of prepare.sh, with a --train for each of the files."""
    trains = []
    for path in text["train"]:
        trains += ["--train", path]
    return [*trains, "--valid", *text["valid"], "--dest", dest, *options]


def snapshot(folder):
    """Contents of the files of a folder, except the log."""
    paths = [path for path in Path(folder).iterdir() if path.suffix != ".log"]
    return {path.name: path.read_bytes() for path in paths}
