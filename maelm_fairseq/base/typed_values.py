"""Values that were read from a file, checked against a type, such as a dataclass."""

import dataclasses
import enum
import functools
import typing

from .errors import UsageError

# Cached, as large files have a hundred thousand objects of one class.
type_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))
TYPE_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def as_type(expected_type, value, location):
    """A value read from a file as a value of a type, or an error that says where it is another.

    Args:
        expected_type: int, float, str, bool, dict, list; a dataclass, for an object whose unknown
            fields are ignored; an Enum of texts, for one of its texts; List, Dict with texts as
            keys, Tuple, or Optional of these; numbers Annotated by a `ranges.Range`
        value: what was read
        location: for the message: the file, and the place in it
    Raises UsageError: `WHERE: found WHAT, expected WHAT`
    """
    origin = typing.get_origin(expected_type)
    arguments = typing.get_args(expected_type)
    if origin is typing.Annotated:
        number_type, allowed = arguments
        number = as_type(number_type, value, location)
        allowed.check(number, f"{location}: found")
        return number
    if origin is typing.Union:
        return None if value is None else as_type(arguments[0], value, location)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        return origin(typed_items(origin, arguments, value, location))
    if origin is dict and isinstance(value, dict):
        name_type, item_type = arguments
        return {
            as_type(name_type, name, f"{location}: name"): as_type(
                item_type, item, f"{location}: {name}"
            )
            for name, item in value.items()
        }
    if dataclasses.is_dataclass(expected_type) and isinstance(value, dict):
        return typed_fields(expected_type, value, location)
    if isinstance(expected_type, enum.EnumMeta):
        choices = [choice.value for choice in expected_type]
        if value in choices:
            return value
        raise UsageError(
            f"{location}: found {short_repr(value)}, expected one of {', '.join(choices)}"
        )
    if type(value) is expected_type or expected_type is typing.Any:
        return value
    if expected_type is float and type(value) is int and value.bit_length() < 1024:
        return float(value)
    expected = describe_expected(expected_type, origin)
    raise UsageError(f"{location}: found {short_repr(value)}, expected {expected}")


def typed_items(origin, arguments, items, location):
    """The items of a list or tuple, each as a value of its type: list."""
    is_fixed = origin is tuple and ... not in arguments
    item_types = arguments if is_fixed else arguments[:1] * len(items)
    if len(item_types) != len(items):
        expected = f"expected a list of {len(item_types)}"
        raise UsageError(f"{location}: found a list of {len(items)}, {expected}")
    pairs = enumerate(zip(item_types, items), 1)
    return [
        as_type(item_type, item, f"{location}: item {number}")
        for number, (item_type, item) in pairs
    ]


def typed_fields(expected_type, value, location):
    """A dict as a dataclass, whose fields have values of their types."""
    fields = dataclasses.fields(expected_type)
    hints = type_hints(expected_type)
    for field in fields:
        is_required = field.default is field.default_factory is dataclasses.MISSING
        if is_required and field.name not in value:
            raise UsageError(f"{location}: found no {field.name}")
    names = [field.name for field in fields if field.name in value]
    values = {name: as_type(hints[name], value[name], f"{location}: {name}") for name in names}
    return expected_type(**values)


def describe_expected(expected_type, origin):
    """What was expected, in words."""
    if dict in (expected_type, origin) or dataclasses.is_dataclass(expected_type):
        return "an object"
    if (origin or expected_type) in (list, tuple):
        return "a list"
    return TYPE_NAMES.get(expected_type) or f"a {expected_type.__name__}"


def short_repr(value):
    """A value as an error message can show it."""
    if isinstance(value, (str, bytes, int, float, bool, type(None))):
        text = repr(value)
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
