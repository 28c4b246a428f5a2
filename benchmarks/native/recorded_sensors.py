"""Read series as rows, and record what the engine in C of this machine answers to them."""

from __future__ import annotations

import csv
import ctypes
import itertools
import math
from pathlib import Path
from typing import Any

from edgefold.export.native.generator import NativeSource
from edgefold.export.native.sensors.sensor_replay import RecordedRow
from edgefold.export.native.toolchain.compilers import compile_library, find_compiler
from edgefold.runtime.sensors.time_parsing import kind_of, seconds_of

N_LEVELS = 7


class RowOfC(ctypes.Structure):
    """`struct edgefold_sensors_row`."""

    _fields_ = [
        ("mean", ctypes.c_double),
        ("quantiles", ctypes.c_double * N_LEVELS),
        *((name, ctypes.c_double) for name in ("log_density", "p_value", "size")),
        *((name, ctypes.c_int64) for name in ("n_since", "n_missing", "season")),
        *((name, ctypes.c_int) for name in ("event", "alarm", "is_known")),
        *((name, ctypes.c_int) for name in ("season_news", "clock_leap")),
    ]


def rows_of(path: Path, n: int) -> list[tuple[float, float, bool]]:
    """Return time, value, and whether times are dates, of the first n rows of a file time,value."""
    rows = []
    with path.open() as file:
        lines = csv.reader(file)
        next(lines)
        kind = None
        for at, (text, value) in enumerate(itertools.islice(lines, n)):
            time = float(text) if text.replace(".", "").isdigit() else text
            kind = kind or kind_of(time)
            number = float(value) if value else math.nan
            rows.append((float(seconds_of(time, kind, at)), number, kind == "dates"))
    return rows


def host_library(native: NativeSource, folder: Path, *flags: str) -> ctypes.CDLL:
    """Compile the engine for this machine, with a search in float as microcontrollers have it."""
    compiler = find_compiler(extra=("-O1", "-DEDGEFOLD_REAL=float", *flags))
    folder.mkdir(parents=True)
    return ctypes.CDLL(str(compile_library(native.files, compiler, folder)))


def recorded(library: Any, rows: list[tuple[float, float, bool]]) -> list[RecordedRow]:
    """Push the rows into a new sensor, and return them with its answers."""
    sensor = ctypes.create_string_buffer(library.edgefold_sensors_sensor_bytes())
    library.edgefold_sensors_start(sensor, ctypes.c_double(1e-4))
    answer, found = RowOfC(), []
    for time, value, dated in rows:
        numbers = ctypes.c_double(time), ctypes.c_double(value)
        refusal = library.edgefold_sensors_push(sensor, *numbers, dated, ctypes.byref(answer))
        found.append(
            RecordedRow(
                *(time, value, dated, refusal, answer.mean, tuple(answer.quantiles)),
                alarm=answer.alarm,
                event=answer.event,
                n_since=answer.n_since,
                season=answer.season,
                is_known=answer.is_known,
            )
        )
    return found
