"""Read a line of JSON: one object a line, whose keys are the columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgefold.runtime.rows.csv_fields import plain, shown


class WrittenNumber(str):
    """A JSON number as it is written; its decimal sign is a point, whatever that of texts is."""

    __slots__ = ()


def is_json(line: str) -> bool:
    """Whether the first line of an input shows that it holds JSON lines."""
    return line.lstrip().startswith("{")


def parse_object(line: str) -> dict[str, Any]:
    """Read an object; its numbers stay as they are written, as text.

    Raises:
        ValueError: It is not one JSON object, or names a key twice; the message says so.
    """
    try:
        row = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is not JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError("the line is JSON that is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError('the line is not a JSON object like {"time": 1, "value": 2}')
    return row


def fields_of(row: dict[str, Any], names: Sequence[str], may_lack: bool = False) -> list[str]:
    """The texts under some keys; null is an empty text.

    Args:
        row: The object.
        names: The keys.
        may_lack: Whether a key that is not there is an empty text too.

    Raises:
        ValueError: One is neither a number nor a text, or is not there.
    """
    texts = []
    for name in names:
        if not may_lack and name not in row:
            raise ValueError(f"the line has no key {shown(name)}")
        value = row.get(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"column {plain(name)} holds {_kind(value)}, not a number or a text")
        texts.append(value or "")
    return texts


def _kind(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value).lower()  # true or false


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the line has the key {shown(twice)} twice")
    return row


def _refuse(constant: str) -> Any:
    raise ValueError(f"the line holds {constant}, which is not JSON; write null for a missing one")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_once,
    parse_int=WrittenNumber,
    parse_float=WrittenNumber,
    parse_constant=_refuse,
)
