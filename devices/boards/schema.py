"""Read JSON into dataclasses: types are checked, and every error names the field.

A field may be missing only where its default is None; a field that the dataclass lacks is refused.
A dataclass that refuses its values raises ValueError in `__post_init__`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

SMALLEST, LARGEST = 1e-3, 1e24
"""Numbers outside this range are rejected as errors of units or of typing."""


class FieldError(Exception):
    """Says that a field is missing, unknown or wrong; the message begins with the field's path."""


def read_as(kind: Any, value: Any, path: str = "") -> Any:
    """Turn JSON into an instance of `kind`.

    Args:
        kind: A dataclass, str, bool, int, float, tuple[X, ...], Mapping[str, X], a Literal of
            texts, or X | None.
        value: Value that json.loads returned.
        path: Place of the value in the file, for errors; empty for the whole file.

    Raises:
        FieldError: The value does not fit.
    """
    if get_origin(kind) is UnionType:
        return None if value is None else read_as(get_args(kind)[0], value, path)
    if is_dataclass(kind):
        return _read_object(kind, _of_type(dict, value, path, "an object"), path)
    if get_origin(kind) is tuple:
        items = _of_type(list, value, path, "a list")
        return tuple(read_as(get_args(kind)[0], v, f"{path}[{i}]") for i, v in enumerate(items))
    if get_origin(kind) is Mapping:
        items = _of_type(dict, value, path, "an object")
        return {name: read_as(get_args(kind)[1], v, f"{path}.{name}") for name, v in items.items()}
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise FieldError(f"{path} is {_shown(value)}, not one of {', '.join(get_args(kind))}")
        return value
    if kind is bool:
        return _of_type(bool, value, path, "true or false")
    if kind is str:
        if not _of_type(str, value, path, "a text").strip():
            raise FieldError(f"{path} is empty; write a text")
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not SMALLEST <= value <= LARGEST:
        raise FieldError(
            f"{path} is {_shown(value)}, not a number from {SMALLEST:g} to {LARGEST:g}"
        )
    return kind(value)


def _read_object(kind: Any, value: dict[str, Any], path: str) -> Any:
    hints, prefix = get_type_hints(kind), f"{path}." if path else ""
    for name in sorted(value.keys() - hints.keys()):
        raise FieldError(f"{prefix}{name} is not a field of a profile; remove it")
    for field in fields(kind):
        if field.name not in value and field.default is not None:
            raise FieldError(f"{prefix}{field.name} is missing")
    values = {name: read_as(hints[name], v, f"{prefix}{name}") for name, v in value.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise FieldError(f"{prefix}{error}") from None


def _of_type(kind: type, value: Any, path: str, name: str) -> Any:
    if not isinstance(value, kind):
        raise FieldError(f"{path or 'the profile'} is {_shown(value)}, not {name}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value)[:40]
