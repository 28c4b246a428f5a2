"""Write a firmware that replays recorded rows of sensors, on a board or in qemu.

The rows, with the answers that another machine gave to them, lie in the firmware's flash. The files
are those of `edgefold.export.native.firmware_project`, but for:

sensor_rows.h      the rows with their answers, and names for the bundle's functions
sensor_replay.c    main(): pushes rows, compares, counts instructions, saves, loads
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from edgefold.export.native.firmware_project import PARTS
from edgefold.export.native.generator import NativeSource
from edgefold.export.native.licence import licensed
from edgefold.export.native.toolchain.machines import FIXED, FirmwareMachine


class RecordedRow(NamedTuple):
    """Holds a row of a sensor, and what an engine in C answered to it.

    Attributes:
        time, value, dated: What `edgefold_NAME_push` takes.
        refusal: What it returned.
        mean, quantiles: The forecast; NaN if there was none.
        alarm, event, n_since, season, is_known: Its other answers.
    """

    time: float
    value: float
    dated: bool
    refusal: int
    mean: float
    quantiles: tuple[float, ...]
    alarm: int
    event: int
    n_since: int
    season: int
    is_known: int


def sensor_replay_sources(
    native: NativeSource,
    machine: FirmwareMachine,
    series: Sequence[Sequence[RecordedRow]],
    n_others: int = 0,
) -> dict[str, str]:
    """Return all files of a firmware that replays series, by their names.

    Args:
        native: The C of a bundle of the general model of sensors.
        machine: The machine for which the firmware is linked.
        series: Rows of each series with their answers; no series may be empty.
        n_others: How many decisions may differ.
    """
    around = {
        "sensor_rows.h": rows_header(native.name, series, n_others),
        **{name: (FIXED / name).read_text(encoding="utf-8") for name in ("sensor_replay.c", PARTS)},
        **machine.sources(),
    }
    return {**native.files, **licensed(around)}


def rows_header(name: str, series: Sequence[Sequence[RecordedRow]], n_others: int) -> str:
    """Return the text of sensor_rows.h."""
    stream, macro = f"edgefold_{name}", f"EDGEFOLD_{name.upper()}"
    lines = [
        "/* Rows of sensors, with the answers of another machine. Written by edgefold. */",
        f'#include "{stream}.h"',
        "",
        f"#define SENSOR(word) {stream}_##word",
        f"#define SENSOR_N_LEVELS {macro}_N_LEVELS",
        f"#define SENSOR_SHARED_BYTES {macro}_SHARED_BYTES",
        f"#define SENSOR_SNAPSHOT_BYTES {macro}_SENSOR_SNAPSHOT_BYTES",
        f"#define SENSOR_OTHERS {n_others} /* decisions that may differ */",
        "",
        "/* least: the smallest width that counts as a band. */",
        "struct sensor_row {",
        "    double time, value;",
        "    float mean, quantiles[SENSOR_N_LEVELS], least;",
        "    int32_t n_since, season;",
        "    int8_t dated, refusal, alarm, event, is_known;",
        "};",
        "",
    ]
    for at, rows in enumerate(series):
        least = _least_band(rows)
        lines.append(f"static const struct sensor_row sensor_rows_{at}[] = {{")
        lines += [f"    {_row_text(row, least)}," for row in rows]
        lines += ["};", ""]
    lines.append("static const struct {")
    lines += ["    const struct sensor_row *rows;", "    uint32_t n;", "} sensor_series[] = {"]
    lines += [f"    {{sensor_rows_{at}, {len(rows)}}}," for at, rows in enumerate(series)]
    return "\n".join([*lines, "};", ""])


def _least_band(rows: Sequence[RecordedRow]) -> float:
    """Return a hundredth of the median width of the forecasts' bands.

    A narrower band, such as that of values that rest, measures no error.
    """
    bands = sorted(row.quantiles[-1] - row.quantiles[0] for row in rows if row.is_known)
    return bands[len(bands) // 2] / 100 if bands else 0.0


def _row_text(row: RecordedRow, least: float) -> str:
    floats = [row.mean, *row.quantiles] if row.is_known else [0.0] * (1 + len(row.quantiles))
    mean, *quantiles = map(repr, floats)
    counts = (row.n_since, row.season, int(row.dated), row.refusal, row.alarm, row.event)
    numbers = ", ".join(map(str, (*counts, row.is_known)))
    value = "0.0 / 0.0" if math.isnan(row.value) else repr(row.value)
    return f"{{{row.time!r}, {value}, {mean}, {{{', '.join(quantiles)}}}, {least!r}, {numbers}}}"
