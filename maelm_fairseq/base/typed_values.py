"""Values that were read from a file, checked against a type, such as a dataclass."""

import dataclasses
import enum
import functools
import typing

from .errors import UsageError

# Large files have a hundred thousand objects of a kind.
type_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))
KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def typed(kind, value, where):
    """A value read from a file as a value of a type, or an error that says where it is another.

    Args:
        kind: int, float, str, bool, dict, list; a dataclass, for an object whose unknown fields are ignored; an Enum of
            texts; List, Dict with texts as keys, Tuple, or Optional of these; numbers Annotated by a
            `ranges.Range`
        value: what was read
        where: for the message: the file, and the place in it
    Raises ValueError: `WHERE: found WHAT, expected WHAT`
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        number, allowed = arguments
        allowed.check(typed(number, value, where), f"{where}: found")
        return value
    if origin is typing.Union:
        return None if value is None else typed(arguments[0], value, where)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        kinds = arguments if origin is tuple and ... not in arguments else arguments[:1] * len(value)
        if len(kinds) != len(value):
            raise UsageError(f"{where}: found a list of {len(value)}, expected a list of {len(kinds)}")
        return origin(typed(*each, f"{where}: item {i}") for i, each in enumerate(zip(kinds, value), 1))
    if origin is dict and isinstance(value, dict):
        return {
            typed(arguments[0], key, f"{where}: name"): typed(arguments[1], each, f"{where}: {key}")
            for key, each in value.items()
        }
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        fields, hints = dataclasses.fields(kind), type_hints(kind)
        for field in fields:
            if field.name not in value and field.default is field.default_factory is dataclasses.MISSING:
                raise UsageError(f"{where}: found no {field.name}")
        names = [field.name for field in fields if field.name in value]
        return kind(**{name: typed(hints[name], value[name], f"{where}: {name}") for name in names})
    if isinstance(kind, enum.EnumMeta):
        choices = [choice.value for choice in kind]
        if value in choices:
            return value
        raise UsageError(f"{where}: found {shown(value)}, expected one of {', '.join(choices)}")
    if type(value) is kind or kind is typing.Any:
        return value
    if kind is float and type(value) is int and value.bit_length() < 1024:
        return float(value)
    is_object, is_list = dict in (kind, origin) or dataclasses.is_dataclass(kind), (origin or kind) in (list, tuple)
    expected = "an object" if is_object else "a list" if is_list else KINDS.get(kind) or f"a {kind.__name__}"
    raise UsageError(f"{where}: found {shown(value)}, expected {expected}")


def shown(value):
    """A value as an error message can show it."""
    text = repr(value) if isinstance(value, (str, bytes, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
