"""Draw the results of `edgefold forecast`: a panel for each sensor, with the coming forecasts.

    all rows, alarms, the part shown below                              share below each level
    values, 50 % and 90 % band, alarms ──│── fan of the next slots

The module draws given values and computes no score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgefold.cli.plots.style import BLUE, GREY, ORANGE, RED, STYLE, content_of, finish_axes
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.forecasts import Forecast, Path

LEAST_SHOWN, MOST_SEASONS = 300, 2
"""Rows and seasons that are shown one by one: 300 rows, or two seasons where those are more."""
YEARS_S = (-62_000_000_000.0, 253_000_000_000.0)
"""Years 5 to 9987, in seconds since 1970: an axis cannot show dates outside of them."""
GAP = 4.0
"""A time between two pieces of the overview is a gap if it is this many times the usual one."""
OUTER, INNER = (0, -1), (2, -3)
"""Indices of the lower and upper quantiles of the 90 % band and of the 50 % band."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Holds all that is drawn of one sensor; a slot is one of the sensor's equally spaced times.

    Attributes:
        name: Name of the sensor.
        scores: Text next to the name.
        rows: The last rows, each with its forecast.
        overview: All rows in n pieces: first time, lowest and highest value of each, (n,).
        marked: Time and value of each alarm.
        fan: Forecasts of the slots to come; None where nothing is forecast.
        pace: Time between two slots, in the unit of the rows' times.
        season: Length of the season in slots; 0 for none.
        shares: Shares of the values below each level's quantile, (Q,); None before the first
            forecast.
    """

    name: str
    scores: str
    rows: Sequence[Forecast]
    overview: tuple[FloatArray, FloatArray, FloatArray]
    marked: Sequence[tuple[float, float]]
    fan: Path | None
    pace: float
    season: int
    shares: FloatArray | None


def draw_sensors(format: str, title: str, panels: Sequence[Panel], is_dated: bool) -> bytes:
    """Draw all sensors and return the content of a picture file.

    Args:
        format: Format of the file: png, svg or pdf.
        title: Title of the picture.
        panels: Values to draw, one panel for each sensor.
        is_dated: Whether times are seconds since 1970; these are drawn as dates if all years are
            within `YEARS_S`.
    """
    # Names of sensors are texts, not formulas: a dollar is a dollar.
    with matplotlib.rc_context({**STYLE, "text.color": "black", "text.parse_math": False}):
        n = len(panels)
        figure = Figure(figsize=(13, 0.9 + 4.3 * n), layout="constrained")
        grid = figure.add_gridspec(2 * n, 2, width_ratios=(5, 1), height_ratios=(1, 2.8) * n)
        mains = []
        is_dated = is_dated and all(map(has_dates, panels))
        for i, panel in enumerate(panels):
            whole, main = (figure.add_subplot(grid[2 * i + k, 0]) for k in (0, 1))
            _draw_overview(whole, panel, is_dated)
            draw_rows(main, panel, is_dated)
            _draw_shares(figure.add_subplot(grid[2 * i + 1, 1]), panel)
            mains.append(main)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        handles: dict[str, Any] = {}
        for main in mains:
            for handle, label in zip(*main.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=len(handles)
        )
        return content_of(figure, format, dpi=130)


def has_dates(panel: Panel) -> bool:
    """Return whether an axis can show all times of a panel as dates."""
    times = np.concatenate([panel.overview[0], [row.time for row in panel.rows]])
    ahead = panel.pace * len(panel.fan.mean) if panel.fan is not None else 0.0
    return bool(YEARS_S[0] <= times.min() and times.max() + ahead <= YEARS_S[1])


def _times(seconds: Sequence[float], is_dated: bool) -> Any:
    if not is_dated:
        return np.array(seconds)
    return np.array([datetime.fromtimestamp(s, timezone.utc) for s in seconds])


def draw_rows(axes: Axes, panel: Panel, is_dated: bool, crops: bool = False) -> None:
    """Draw the last rows, their bands and alarms, and the forecasts of the times after them.

    Args:
        axes: Axes to draw into.
        panel: Values to draw.
        is_dated: Whether times are seconds since 1970.
        crops: Whether values far from all others are marked at the edge, so that these stay
            readable, and names of events stand above the curves.
    """
    rows = list(panel.rows)[-_n_shown(panel) :]
    at = _times([row.time for row in rows], is_dated)
    value = np.array([row.value for row in rows])
    band = np.array([list(row.quantiles.values()) for row in rows])
    mean = np.array([row.mean for row in rows])
    after_gap = [i for i, row in enumerate(rows) if row.n_missing and i]
    times = np.insert(at, after_gap, at[after_gap]) if after_gap else at
    band, mean = (np.insert(a, after_gap, math.nan, axis=0) for a in (band, mean))
    _draw_band(axes, times, band, BLUE, "")
    axes.plot(times, mean, color=BLUE, lw=1.1, label="forecast one row before")
    size = 3.2 if len(rows) <= 200 else 2.3 if len(rows) <= 700 else 1.4
    shown = [_cropped(value) if crops else value, *_held(band)]
    heights = shown[0]
    inside = np.where(heights == value, value, math.nan)
    axes.plot(at, inside, "o", color="black", ms=size, mew=0, label="value")
    for marker, outside in (("^", value > heights), ("v", value < heights)):
        if outside.any():
            axes.plot(
                at[outside],
                heights[outside],
                marker,
                color="black",
                ms=5,
                mew=0,
                label="value beyond",
            )
    _draw_events(axes, rows, at, heights, is_above=crops)
    if panel.fan is not None and rows and math.isfinite(panel.pace):
        steps = panel.pace * np.arange(1, len(panel.fan.mean) + 1)
        ahead = _times((rows[-1].time + steps).tolist(), is_dated)
        axes.axvline(at[-1], color=GREY, lw=0.8, ls=":")
        _draw_band(axes, ahead, panel.fan.quantiles, ORANGE, " ahead")
        axes.plot(ahead, panel.fan.mean, color=ORANGE, lw=1.4, label="forecast of what comes")
        shown += _held(panel.fan.quantiles)
    _limit(axes, heights, shown)
    if crops and any(row.event for row in rows):
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + 0.16 * (top - bottom))  # room for names
    _finish(axes, is_dated)


def _draw_overview(axes: Axes, panel: Panel, is_dated: bool) -> None:
    """Draw the range of all rows, a ring at each alarm, and a shade behind the rows shown below."""
    seconds, low, high = with_gaps(*panel.overview)
    at = _times(seconds.tolist(), is_dated)
    axes.fill_between(at, low, high, color=GREY, alpha=0.6, lw=0.6)
    if panel.marked:
        times, values = zip(*panel.marked, strict=True)
        heights = [value if math.isfinite(value) else float(np.nanmean(low)) for value in values]
        axes.plot(_times(times, is_dated), heights, "o", mfc="none", mec=RED, mew=1.2, ms=6)
    shown = list(panel.rows)[-_n_shown(panel) :]
    if len(shown) < len(panel.overview[0]) or len(shown) == len(panel.rows):
        edges = _times([shown[0].time, shown[-1].time], is_dated)
        axes.axvspan(edges[0], edges[1], color=BLUE, alpha=0.12, lw=0)
    axes.set_title(panel.name, loc="left", fontsize=11, fontweight="bold")
    axes.set_title(panel.scores, loc="right", fontsize=9, color=GREY)
    _finish(axes, is_dated)


def with_gaps(
    seconds: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Insert a piece without values where the time to the next piece is far longer than usual.

    So a gap is left empty in the picture. Times and values are those of `Panel.overview`, (n,).
    """
    steps = np.diff(seconds)
    if not len(steps):
        return seconds, low, high
    usual = np.median(steps)
    after = np.flatnonzero(steps > GAP * usual) + 1
    times = np.insert(seconds, after, seconds[after - 1] + usual)
    return times, np.insert(low, after, math.nan), np.insert(high, after, math.nan)


def _n_shown(panel: Panel) -> int:
    """Return the number of rows that are drawn one by one."""
    return max(LEAST_SHOWN, MOST_SEASONS * panel.season)


def _finish(axes: Axes, is_dated: bool) -> None:
    """Label the axis of times, and draw a grid behind everything."""
    if not is_dated:
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    axes.ticklabel_format(axis="y", useOffset=False)
    finish_axes(axes, is_dated)


def _draw_band(axes: Axes, at: Any, band: FloatArray, colour: str, what: str) -> None:
    for (low, high), alpha, share in ((OUTER, 0.18, 90), (INNER, 0.32, 50)):
        axes.fill_between(
            at,
            band[:, low],
            band[:, high],
            color=colour,
            alpha=alpha,
            lw=0,
            label=f"{share} % band{what}",
        )


def _cropped(value: FloatArray) -> FloatArray:
    """Return values (N,), those that are far outside of the 1st to 99th percentile at an edge."""
    finite = value[np.isfinite(value)]
    if not len(finite):
        return value
    low, high = np.percentile(finite, [1, 99])
    room = 0.5 * (high - low)
    cropped: FloatArray = value.clip(low - room, high + room) if room else value
    return cropped


def _draw_events(
    axes: Axes, rows: Sequence[Forecast], at: Any, value: FloatArray, is_above: bool = False
) -> None:
    """Draw a ring at each alarm, and write the name of each event where it begins.

    Args:
        axes: Axes to draw into.
        rows: The N rows that are drawn one by one.
        at: Times of the rows, numbers or dates, (N,).
        value: Values of the rows, (N,); NaN where a row has none.
        is_above: Whether names stand at the top of the axes, instead of at the values.
    """
    alarms = [i for i, row in enumerate(rows) if row.alarm]
    if alarms:
        ring: dict[str, Any] = {"mfc": "none", "mec": RED, "mew": 1.5, "ms": 9}
        heights = [_height(value, i) for i in alarms]
        axes.plot(at[alarms], heights, "o", label="alarm", **ring)
    last, until = "", -1
    for i, row in enumerate(rows):
        if row.event and (row.event != last or row.alarm) and i > until:
            style: dict[str, Any] = {"fontsize": 8, "color": RED if row.alarm else GREY}
            if is_above:
                side = "left" if i < 0.8 * len(rows) else "right"
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
                transform = axes.get_xaxis_transform()
                axes.text(
                    at[i],
                    0.97,
                    row.event,
                    transform=transform,
                    ha=side,
                    va="top",
                    bbox=box,
                    **style,
                )
            else:
                place = (at[i], _height(value, i))
                axes.annotate(row.event, place, xytext=(5, 7), textcoords="offset points", **style)
            # Names must not cover each other.
            until = i + len(rows) // (8 if is_above else 40)
        last = row.event


def _height(value: FloatArray, i: int) -> float:
    """Return the height of the mark of row `i`: the last finite one of value[: i + 1], or 0."""
    finite = value[: i + 1][np.isfinite(value[: i + 1])]
    return float(finite[-1]) if len(finite) else 0.0


def _held(band: FloatArray) -> list[FloatArray]:
    """Return two heights, (1,) each, between which a band of quantiles (N, Q) mostly lies.

    They are the 3rd percentile of the lowest quantile and the 97th of the highest one.
    """
    finite = band[np.isfinite(band).all(1)]
    if not len(finite):
        return []
    return [np.percentile(finite[:, 0], [3]), np.percentile(finite[:, -1], [97])]


def _limit(axes: Axes, value: FloatArray, shown: Sequence[FloatArray]) -> None:
    """Set the limits of the y axis so that all values are shown, and bands as far as there is room.

    Bands extend the range of the values by at most its own size, above and below.

    Args:
        axes: Axes whose limits are set.
        value: Values, (N,); NaN where there is none.
        shown: All heights to show as far as there is room: the values, and ends of the bands.
    """
    finite = value[np.isfinite(value)]
    if not len(finite):
        return
    low, high = float(finite.min()), float(finite.max())
    room = (high - low) or abs(high) or 1.0
    every = np.concatenate([part[np.isfinite(part)] for part in shown])
    bottom, top = max(float(every.min()), low - room), min(float(every.max()), high + room)
    edge = 0.06 * (top - bottom) or 0.5 * room
    axes.set_ylim(bottom - edge, top + edge)


def _draw_shares(axes: Axes, panel: Panel) -> None:
    """Draw the share of values below each level's quantile; good forecasts lie on the diagonal."""
    levels = 100 * np.array(SENSOR_LEVELS)
    axes.plot([0, 100], [0, 100], color=GREY, lw=0.8, ls="--")
    if panel.shares is not None:
        axes.plot(levels, 100 * panel.shares, "o-", color=BLUE, ms=4)
    axes.set(xlim=(0, 100), ylim=(0, 100), xticks=(0, 50, 100), yticks=(0, 50, 100))
    axes.set_aspect("equal")
    axes.set_title("% of values below level", fontsize=9, color=GREY)
    axes.grid(True)
