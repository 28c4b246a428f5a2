"""Write lines of text on a series task: the rows that were read, and the features chosen."""

from __future__ import annotations

import numpy as np

from edgefold.runtime.series.durations import elapsed
from edgefold.runtime.series.report_text import mended, passed_over
from edgefold.runtime.series.series_file import Series
from edgefold.runtime.series.spec import DAY_S, SeriesSpec

SINCE_1970_S = 1e9, 4e9
"""Range of seconds since 1970, from 2001 to 2096: numbers in it are hardly anything but times."""


def series_notes(
    name: str,
    series: Series,
    spec: SeriesSpec,
    n_training: int,
    n_passed_over: int,
    asked: bool,
) -> tuple[str, ...]:
    """Return lines of text on a series: its rows, its training part, its season and its features.

    Args:
        name: Name of the file.
        series: All rows of the file.
        spec: Specification of the features.
        n_training: Number of rows of the training part.
        n_passed_over: Number of rows that give no point, because they do not come in the usual step
            of time.
        asked: Whether the user chose the season.
    """
    n, clock = len(series.times), spec.clock
    first, last = (_moment(series.times[row], spec) for row in (0, -1))
    step = elapsed(spec.step, clock) if clock == "date" else f"{spec.step:g}"
    bridged, refused = mended(series.report), passed_over(n_passed_over)
    seasonal = (
        f", the changes one season ago ({spec.season_lags}), the season's phase "
        f"({2 * spec.harmonics})"
    )
    return (
        f"{name}: {n:,} rows in steps of {step}, from {first} to {last}",
        *([f"mended as asked: {bridged}"] if bridged else []),
        *([refused] if refused else []),
        f"the first {n_training:,} are for training; the last {n - n_training:,} are held out and "
        "scored by `edgefold evaluate`",
        f"season: {_season(spec, asked)}",
        *_unix_notes(spec, float(series.times[-1])),
        f"{spec.n_inputs} features: the last changes ({spec.lags})"
        f"{seasonal if spec.season else ''}{', the level' if spec.level else ''}",
    )


def _season(spec: SeriesSpec, asked: bool) -> str:
    """Return the season and its reason in words; `asked` is whether the user chose the season."""
    other = "--season sets another"
    if spec.season is not None:
        rule = "1 to 120 days" if spec.step >= DAY_S else "up to 6 hours"
        why = "as asked" if asked else f"chosen since rows are {rule} apart; {other}"
        return f"{elapsed(spec.season, spec.clock)} ({spec.season_rows} rows), {why}"
    if asked:
        return "none, as asked"
    if spec.clock == "number":
        return f"none, since times that are numbers do not tell one; {other}"
    return f"none, since the rows cover fewer than 3 of them or are too far apart; {other}"


def _unix_notes(spec: SeriesSpec, last: float) -> tuple[str, ...]:
    """Return a line of advice where times are plain numbers that look like times since 1970.

    Args:
        spec: Specification of the features; its clock says how times are read.
        last: The last time of the series.
    """
    forms = {"unix": ("seconds", 1.0), "unix-ms": ("thousandths of a second", 1e3)}
    return tuple(
        f"the times look like {unit} since 1970: --time-format {form} reads them as dates, which "
        "have days and years"
        for form, (unit, factor) in forms.items()
        if spec.clock == "number" and SINCE_1970_S[0] < last / factor < SINCE_1970_S[1]
    )


def _moment(time: float, spec: SeriesSpec) -> str:
    """Return a time as people write it; a date is in UTC, to the day, minute or second."""
    if spec.clock == "number":
        return f"{time:g}"
    unit = "D" if spec.step >= DAY_S else "m" if spec.step >= 60 else "s"
    return f"{np.datetime64(round(time), 's').astype(f'M8[{unit}]')}".replace("T", " ")
