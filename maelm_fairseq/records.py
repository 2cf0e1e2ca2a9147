"""JSON records that a program of this repository wrote and another one reads: their fields are checked first."""

from collections import namedtuple

from .errors import UsageError
from .files import read_json

Field = namedtuple("Field", "accepts expected")  # whether a value is accepted, and what was expected, for the message


def is_whole(value):
    """Whether a value is an int; true and false are none."""
    return type(value) is int


POSITIVE = Field(lambda value: is_whole(value) and value >= 1, "a whole number, at least 1")
FLAG = Field(lambda value: type(value) is bool, "true or false")
OBJECT = Field(lambda value: isinstance(value, dict), "an object")
WHOLE_NUMBERS = Field(
    lambda value: isinstance(value, dict) and all(is_whole(v) and v >= 0 for v in value.values()),
    "an object of whole numbers, at least 0",
)


def one_of(*values):
    """The field whose value is one of some strings or numbers."""
    return Field(
        lambda value: any(type(value) is type(v) and value == v for v in values), " or ".join(map(repr, values))
    )


def read_record(path, written_by, fields, fix=None):
    """Reads a record.

    Args:
        path: of the file
        written_by: the program, for the message
        fields: {name: :class:`Field`}; "options.stride" is `stride` in the object `options`, "" the whole record.
            Others may be there too
        fix: for the message: what to do; None for preparing the data again
    Returns:
        dict
    Raises:
        FileNotFoundError: there is no such file
        ValueError: it is not JSON, or a field is missing or has a wrong value
    """
    record = read_json(path, f"the record of a finished run of {written_by}")
    fix = fix or f"prepare the data again with {written_by}"
    for name, (accepts, expected) in {"": OBJECT, **fields}.items():
        value = record
        for key in filter(None, name.split(".")):
            if not isinstance(value, dict) or key not in value:
                raise UsageError(f"{path}: no {name!r}, expected {expected}: {fix}")
            value = value[key]
        if not accepts(value):
            found = ascii(value)
            found = found if len(found) <= 60 else found[:57] + "..."
            raise UsageError(f"{path}: {name and repr(name) + ' is '}{found}, expected {expected}: {fix}")
    return record
