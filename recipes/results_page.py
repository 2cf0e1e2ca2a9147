"""Puts the outcome of an experiment into a page of results."""

import os
import shutil

from maelm_fairseq.files import atomic_write


def put_section(path, section, figures):
    """Puts a section into a Markdown file, in place of that with its heading, or at the end.

    Args:
        path: of the file
        section: Markdown that begins with its heading, `## ...`
        figures: {path of a picture: its path beside the file}; they are copied
    """
    text, heading = "", section.partition("\n")[0]
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    before, found, after = text.partition(heading + "\n")
    _, next_heading, rest = after.partition("\n## ")
    for picture, beside in figures.items():
        copy = os.path.join(os.path.dirname(os.path.abspath(path)), beside)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copyfile(picture, copy)
    with atomic_write(path) as stream:
        stream.write(before if found or not text else text.rstrip("\n") + "\n\n")
        stream.write(section + next_heading + rest)
