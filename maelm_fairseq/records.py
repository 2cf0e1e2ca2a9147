"""Reads JSON records and compares them with a schema. Imports nothing of the package: data-prep/ loads it by its path.

A schema is one of
- a type;
- a predicate, whose docstring says what it accepts;
- `[schema]`, a list of any length;
- `(schema, ...)`, a list of that length;
- `{key: schema}`, an object with at least these keys; a key that is itself a type or a predicate stands for all others.
"""

import json
import math

NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


# Predicates --------------------------------------------------------------------------------------------------------


def count(value):
    """a whole number from 0 to 2**64 - 1"""
    return type(value) is int and 0 <= value < 1 << 64


def positive(value):
    """a whole number from 1 to 2**31 - 1"""
    return type(value) is int and 0 < value < 1 << 31


def labels(value):
    """null, or a list of two or more different labels without tabs and line breaks"""
    if not isinstance(value, list):
        return value is None
    if not all(fits(label, str) and label.strip() and set("\t\r\n").isdisjoint(label) for label in value):
        return False
    return len(set(value)) == len(value) > 1


def one_of(*values):
    """A predicate that accepts some strings or numbers only."""

    def accepts(value):
        return any(type(value) is type(v) and value == v for v in values)

    accepts.__doc__ = " or ".join(map(repr, values))
    return accepts


# The comparison ----------------------------------------------------------------------------------------------------


def load(path, expected, schema=None):
    """The value in a JSON file.

    Args:
        path: of the file
        expected: what the file should be, for the message
        schema: what it must contain; None for anything
    Raises:
        ValueError: it is not JSON, or does not fit the schema; the message, without the path, says what was found and
            expected
        OSError: it cannot be read
    """
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
        problem = mismatch(value, schema) if schema is not None else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}), expected {expected}") from None
    if problem:
        raise ValueError(problem)
    return value


def mismatch(value, schema, place=""):
    """The first difference between a value and a schema, in words; None if it fits.

    Args:
        place: of the value in the record, such as "counts.train" or "inputs[0]"; "" for the whole record
    """
    if not fits(value, schema):
        return f"{_named(place)} is {shortened(value)}, expected {description(schema)}"
    if isinstance(schema, dict):
        problems = _mismatches_in_object(value, schema, place)
    elif isinstance(schema, (list, tuple)):
        schemas = schema if isinstance(schema, tuple) else schema * len(value)
        problems = (mismatch(item, part, f"{place}[{i}]") for i, (item, part) in enumerate(zip(value, schemas)))
    else:
        return None
    return next(filter(None, problems), None)


def _mismatches_in_object(value, schema, place):
    """Yields the difference, or None, for each key."""
    within = f"{place}." if place else ""
    for key, part in schema.items():
        if isinstance(key, str) and key not in value:
            yield f"no {within + key!r}, expected {description(part)}"
        elif isinstance(key, str):
            yield mismatch(value[key], part, within + key)
        else:
            for name in sorted(set(value).difference(schema)):
                if fits(name, key):
                    yield mismatch(value[name], part, within + name)
                else:
                    yield f"{_named(place)} has the key {shortened(name)}, expected {description(key)}"


def fits(value, schema):
    """Whether a value fits a schema; the parts of a list or an object are not compared."""
    if isinstance(schema, dict):
        return isinstance(value, dict)
    if isinstance(schema, (list, tuple)):
        return isinstance(value, list) and (isinstance(schema, list) or len(value) == len(schema))
    if not isinstance(schema, type):
        return schema(value)
    if schema is str:
        return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
    if schema is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is schema


def description(schema):
    """What fits a schema, in words."""
    if isinstance(schema, tuple):
        return f"{NAMES[list]} of {len(schema)} values"
    if isinstance(schema, (dict, list)):
        return NAMES[type(schema)]
    return NAMES[schema] if isinstance(schema, type) else schema.__doc__


def _named(place):
    return shortened(place) if place else "the record"


def shortened(value):
    """A value as Python writes it, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


# Records that more than one folder reads ---------------------------------------------------------------------------

GLUE_TASK = {  # task.json, which data-prep/glue.py writes
    "pair": bool,
    "labels": labels,
    "max_tokens": positive,
    "splits": {
        "train": {"examples": positive},
        "valid": dict,
        one_of("train", "valid", "valid1", "test", "test1"): dict,
    },
    "inputs": [{"file": str, "bytes": count, "sha256": str}],
}
