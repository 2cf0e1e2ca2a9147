"""The rows of a record."""

import csv
from typing import NamedTuple, Union

from maelm_fairseq.base.files import atomic_write

HELD_OUT_TEXT = "held-out text"  # the task of what is measured on the dev split of pretraining


class Measurement(NamedTuple):
    """A row of a record. What does not apply is empty."""

    arm: str = ""
    seed: Union[int, str] = ""
    updates: Union[int, str] = ""  # of pretraining
    layer: str = ""
    task: str = ""
    feature: str = ""
    metric: str = ""
    value: Union[float, str] = ""


def write_record(path, measurements):
    """Writes `Measurement`s, with a header."""
    with atomic_write(path) as stream:
        rows = [Measurement._fields, *measurements]
        csv.writer(stream, lineterminator="\n").writerows(rows)
