"""Compares values read from JSON with a schema. Imports nothing of the package: data-prep/ loads this file by its path.

A schema is a type; a predicate, whose docstring says what it accepts; `[schema]` for a list of any length;
`(schema, ...)` for a list of that length; or `{key: schema}` for an object with at least these keys.
"""

import math

NAMES = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def count(value):
    """a whole number from 0 to 2**64 - 1"""
    return type(value) is int and 0 <= value < 1 << 64


def positive(value):
    """a whole number from 1 to 2**31 - 1"""
    return type(value) is int and 0 < value < 1 << 31


def labels(value):
    """null, or a list of two or more strings"""
    return value is None or isinstance(value, list) and len(value) > 1 and all(_fits(label, str) for label in value)


def squad_version(value):
    """'1.1' or '2.0'"""
    return value in ("1.1", "2.0")


def mismatch(value, schema, name="the record"):
    """The first difference between a value and a schema, in words; None if it fits.

    Args:
        name: what to call the value
    """
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return _wrong(value, NAMES[dict], name)
        missing = [key for key in schema if key not in value]
        if missing:
            return f"{name} has no {missing[0]!r}"
        parts = [(value[key], part, repr(key)) for key, part in schema.items()]
    elif isinstance(schema, (list, tuple)):
        items = f"{NAMES[list]} of {len(schema)} values" if isinstance(schema, tuple) else NAMES[list]
        if not isinstance(value, list) or (isinstance(schema, tuple) and len(value) != len(schema)):
            return _wrong(value, items, name)
        schemas = schema if isinstance(schema, tuple) else schema * len(value)
        parts = [(item, part, f"{name}, item {i}") for i, (item, part) in enumerate(zip(value, schemas), 1)]
    else:
        expected = NAMES[schema] if isinstance(schema, type) else schema.__doc__
        return None if _fits(value, schema) else _wrong(value, expected, name)
    return next(filter(None, (mismatch(*part) for part in parts)), None)


def _fits(value, schema):
    if not isinstance(schema, type):
        return schema(value)
    if schema is str:
        return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
    if schema is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is schema


def _wrong(value, expected, name):
    text = repr(value)
    return f"{name} is {text if len(text) <= 60 else text[:60] + '...'}, expected {expected}"


FILE = {"file": str, "bytes": count, "sha256": str}
GLUE_TASK = {  # task.json, which data-prep/glue.py writes
    "pair": bool,
    "labels": labels,
    "max_tokens": positive,
    "splits": {"train": {"examples": positive}},
    "inputs": [FILE],
}
SQUAD = {  # squad.json, which data-prep/squad.py writes
    "format": int,
    "version": squad_version,
    "inputs": dict,
    "options": dict.fromkeys(("max_tokens", "stride", "max_question"), positive),
    "counts": {"train": {"windows": positive}, "valid": {"windows": positive}},
}
