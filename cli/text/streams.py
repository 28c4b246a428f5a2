"""Write the sensors of a loop as a table, one line for each sensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefold.runtime.rows.csv_fields import plain

if TYPE_CHECKING:
    from edgefold.runtime.loop.counters import Counters
    from edgefold.runtime.loop.streams import LoopStream

NAME_WIDTH = 40


def table(sensors: Sequence[LoopStream]) -> list[str]:
    """Return the lines of the table: a header, and each sensor's counts since its first row."""
    heads = ["updates", "predictions", "malformed", "refused in a row"]
    has_errors, has_band = sensors[0].columns.has_errors, sensors[0].columns.has_band
    heads += ["RMSE"] * has_errors + ["90 % band", "anomalies"] * has_band
    rows = [["stream", *heads]]
    for sensor in sensors:
        counted = _fields(sensor.counters, has_errors, has_band)
        rows.append([short(sensor.name), *counted])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines in which the rows' fields form columns, the first one left-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def short(name: str) -> str:
    """Return a sensor's name without characters that command a terminal.

    A name beyond `NAME_WIDTH` is cut in its middle: names of one place often differ at the end.
    """
    shown = plain(name)
    if len(shown) <= NAME_WIDTH:
        return shown
    half = (NAME_WIDTH - 3) // 2
    return f"{shown[: NAME_WIDTH - 3 - half]}...{shown[-half:]}"


def _fields(counters: Counters, has_errors: bool, has_band: bool) -> list[str]:
    counts = (counters.rows, counters.predicted, counters.malformed, counters.refused_in_a_row)
    fields = [f"{count:,}" for count in counts]
    if has_errors:
        fields.append(" ".join(f"{error:.4g}" for error in counters.rmse) or "-")
    if has_band:
        fields.append(f"{counters.coverage_90:.1%}" if counters.predicted else "-")
        fields.append(f"{counters.anomalies:,}")
    return fields
