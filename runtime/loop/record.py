"""Write and read the record of a loop, a JSON text in the snapshot next to the state.

The record says how far input and output were, and holds the counts. Every field is checked when it
is read: whoever wrote the file, anything that is not the record of a loop is a `SnapshotError`. A
mark is the place up to which an input was read or an output written, as a JSON object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.rows.csv_columns import Columns, Layout
from edgefold.runtime.rows.csv_fields import plain

RECORD = "loop"
"""A snapshot's array with this name holds the record."""
LARGEST = 2**62
"""Every count and every position is smaller than this number."""
DAYS = range(-719_162, 2_932_897)
"""Holds the numbers of the days in the years 1 to 9999, counted from 1970-01-01, which is 0."""
DAMAGE = (
    *(AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError),
)
"""Lists the errors that Python raises where a snapshot does not hold what a loop writes."""
PLACE = {"length", "part", "day"}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoopRecord:
    """Holds how far a loop is, between two lines of its input.

    Attributes:
        settings: The settings that must stay the same when a later run continues.
        input: The mark (place as JSON) up to which the input was processed.
        layout: The places of the columns in a line; None if no line was processed.
        output: The mark (place as JSON) up to which the output was written.
        counters: The counts of the only sensor; where there may be several, the counts of lines
            that belong to no sensor.
        names: Names of the sensors, where there may be several.
        sensors: The counts of these sensors, in the same order.
        table: The columns that were found from the input's first lines; None if they were given.
        alarms: The mark (place as JSON) up to which the file of alarms was written; None without
            such a file.
        known: Names of the sensors whose next rows may come again
            (`edgefold.runtime.loop.known_rows`).
        trial: The state of a candidate's trial (`edgefold.runtime.trial`); None without one.
        rows: The place of the kept rows (`edgefold.runtime.trial.kept_rows`); None without them.
        successor: The path of the bundle, if it was a candidate and took over; None otherwise.
        row: The number of the next row of the input, if the states say which rows they have
            learned; None otherwise.
    """

    settings: Json
    input: Json
    layout: Layout | None
    output: Json
    counters: Counters
    names: tuple[str, ...] = ()
    sensors: tuple[Counters, ...] = ()
    table: Json | None = None
    alarms: Json | None = None
    known: tuple[str, ...] = ()
    trial: Json | None = None
    rows: Json | None = None
    successor: str | None = None
    row: int | None = None

    def to_array(self) -> Array:
        """Return the record as JSON text, in an array (n,) of bytes (uint8)."""
        form = asdict(self)
        if not self.names:
            del form["names"], form["sensors"]
        for name in ("table", "alarms", "trial", "rows", "successor", "row"):
            if form[name] is None:
                del form[name]
        if not self.known:
            del form["known"]
        return np.frombuffer(json.dumps(form).encode(), np.uint8)


def read_record(array: Array, columns: Columns, n_errors: int) -> LoopRecord:
    """Read a loop's record from the array that `LoopRecord.to_array` made, and check every field.

    Args:
        array: The array from the snapshot.
        columns: The columns of the input that this run reads.
        n_errors: Number of outputs for which a prediction's error is summed.

    Raises:
        SnapshotError: The array is not the record of a loop, or of other columns.
    """
    try:
        form = json.loads(array.tobytes())
        settings, output = _object(form["settings"]), _object(form["output"])
        for name in _sequence(settings["input"]):
            _text(name)
        found = _object(form["input"])
        _count(found["position"])
        for text in (found[name] for name in ("head", "seam", "start") if name in found):
            _text(text)
        names = tuple(_text(name) for name in _sequence(form.get("names", [])))
        if len(set(names)) != len(names):
            raise ValueError("two streams have one name")
        sensors = tuple(_counters(own, n_errors) for own in _sequence(form.get("sensors", [])))
        if len(sensors) != len(names):
            raise ValueError("names and counters differ in number")
        counters = _counters(form["counters"], n_errors)
        table = _object(form["table"]) if "table" in form else None
        alarms = _mark(_object(form["alarms"])) if "alarms" in form else None
        known = tuple(_text(name) for name in _sequence(form.get("known", [])))
        trial, rows = (_object(form[n]) if n in form else None for n in ("trial", "rows"))
        successor = _text(form["successor"]) if "successor" in form else None
        row = _count(form["row"]) if "row" in form else None
        return LoopRecord(
            *(settings, found, _layout(form, columns), _mark(output), counters, names, sensors),
            *(table, alarms, known, trial, rows, successor, row),
        )
    except (*DAMAGE, DataError) as error:
        raise SnapshotError(f"it was not made by `edgefold run` ({error});") from None


def _layout(form: Json, columns: Columns) -> Layout | None:
    if form["layout"] is None:
        return None
    layout = Layout.from_json(_object(form["layout"]))
    if len(layout.names) != len(columns.defaults):
        raise SnapshotError(
            f"it was made of the columns {', '.join(map(plain, layout.names))}, asked now are "
            f"{plain(columns.wish)}: give the same options as before, or"
        )
    return layout


def _mark(output: Json) -> Json:
    """Return the mark (place in the output) that `OutputFile` wrote, after checking its fields.

    Raises:
        ValueError, KeyError: A field is missing, or not as `OutputFile` writes it.
    """
    if "length" in output:
        _count(output["length"])
        for text in (output["seam"], output["name"], output.get("first", "")):
            _text(text)
        # Marks of earlier versions have no "ahead".
        days = [day for day in (output["day"], output.get("ahead")) if day is not None]
        if _count(output["part"]) < 1 or any(
            type(day) is not int or day not in DAYS for day in days
        ):
            raise ValueError("its output is of no part or day")
        if "finished" in output and not _mark(output["finished"]).keys() >= PLACE:
            raise ValueError("its output has a finished part without a place")
    return output


def _counters(form: Any, n_errors: int) -> Counters:
    errors = [_number(error) for error in _sequence(_object(form)["squared_error"])]
    names = {f.name for f in fields(Counters)}
    counts = {name: _count(form[name]) for name in form if name != "squared_error"}
    if len(errors) != n_errors or not names >= set(form):
        raise ValueError("its counters are not those of this bundle")
    return Counters(**counts, squared_error=errors)


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:20]!r} stands for several values")
    return value


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:20]!r} stands for a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:20]!r} stands for a text")
    value.encode()  # half of a pair of surrogates raises ValueError
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < LARGEST:
        raise ValueError(f"{str(value)[:20]!r} stands for a count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{str(value)[:20]!r} stands for a number from 0 on")
    return float(value)
