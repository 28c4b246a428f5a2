"""Read JSON lines: each line is one JSON object, whose keys are the names of the columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgefold.runtime.rows.csv_fields import plain, shown


class WrittenNumber(str):
    """Holds the text of a JSON number; its decimal sign is a point even if texts have commas."""

    __slots__ = ()


def is_json(line: str) -> bool:
    """Return whether the first line of an input shows that the input holds JSON lines."""
    return line.lstrip().startswith("{")


def parse_object(line: str) -> dict[str, Any]:
    """Read a line as a JSON object; its numbers stay texts (`WrittenNumber`), as they are written.

    Raises:
        ValueError: The line is not one JSON object, or names a key twice; the message says which.
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
    """Return the texts that a JSON object holds under some keys; null becomes an empty text.

    Args:
        row: The JSON object, as `parse_object` reads it.
        names: The keys, in the order of the result.
        may_lack: Whether a missing key becomes an empty text too.

    Raises:
        ValueError: A value is neither a number nor a text, or a key is missing.
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
