"""Draw forecasts of a series with their 90 % band: the held-out part, and its end enlarged.

The module draws given values and computes no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgefold.cli.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    RED,
    STYLE,
    content_of,
    finish_axes,
)
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions import BAND_90
from edgefold.runtime.series.scores import SeriesForecast

if TYPE_CHECKING:
    from edgefold.runtime.series.held_out import HeldOut


ANOMALY_Z = 4.0
"""Number of standard deviations beyond which a value is an anomaly, as in `edgefold run`."""
SEASONS_SHOWN = 2
ROWS_SHOWN = 100
"""Number of rows in the enlarged picture of a series without a season."""


def draw_forecasts(
    format: str, title: str, part: HeldOut, forecast: SeriesForecast, scores: dict[str, Any]
) -> bytes:
    """Draw the held-out part of a series with its forecasts; return the content of a picture file.

    Args:
        format: Format of the file: png, svg or pdf.
        title: Title of the picture.
        part: The series with its held-out part.
        forecast: Forecasts of the held-out part, as changes from the last value.
        scores: Scores of the forecasts, from `Scores.to_json`.
    """
    points, start = part.points, part.n_training
    value, mean = points.value[start:], points.last[start:] + forecast.mean
    times: Sequence[Any] = points.time[start:].tolist()
    if part.spec.clock == "date":
        times = [datetime.fromtimestamp(t, timezone.utc) for t in times]
    n_shown = min(len(value), SEASONS_SHOWN * part.spec.season_rows or ROWS_SHOWN)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 6.8), layout="constrained")
        whole, end = figure.subplots(2, height_ratios=(1, 1.25))
        _draw(whole, times, value, mean, forecast.std, enlarged=False)
        shown = slice(len(value) - n_shown, None)
        _draw(end, times[shown], value[shown], mean[shown], forecast.std[shown], enlarged=True)
        whole.axvspan(times[len(value) - n_shown], times[-1], color=GREY, alpha=0.13, lw=0)
        whole.set_title(f"all {len(value):,} held-out rows", loc="left", fontsize=10, color=GREY)
        end.set_title(
            f"the last {n_shown} of them, shaded above", loc="left", fontsize=10, color=GREY
        )
        figure.suptitle(
            f"{title}, one step ahead: RMSE {scores['rmse']:.3g}, "
            f"{100 * scores['coverage_90']:.1f} % of the values inside the 90 % band",
            x=0.01,
            ha="left",
            fontsize=13,
            fontweight="bold",
        )
        for axes in (whole, end):
            finish_axes(axes, part.spec.clock == "date")
        handles = end.get_legend_handles_labels()[0] + whole.get_legend_handles_labels()[0][3:]
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
        return content_of(figure, format, dpi=150)


def _draw(
    axes: Axes,
    times: Sequence[Any],
    value: FloatArray,
    mean: FloatArray,
    std: FloatArray,
    enlarged: bool,
) -> None:
    """Draw rows with their forecasts and 90 % band; ring values beyond `ANOMALY_Z` deviations.

    Args:
        axes: Axes to draw into.
        times: Times of the rows, numbers or dates, (n,).
        value: Values of the rows, (n,).
        mean: Forecasts of the values, (n,).
        std: Standard deviations of the forecasts, (n,).
        enlarged: Whether marks are larger, and values outside the band coloured.
    """
    distance = np.abs(value - mean) / std
    outside, far = distance > BAND_90, distance > ANOMALY_Z
    half = BAND_90 * std
    at: Any = np.array(times)  # matplotlib's stubs know no datetimes
    axes.fill_between(at, mean - half, mean + half, color=BLUE, alpha=0.22, lw=0, label="90 % band")
    axes.plot(at, mean, color=BLUE, lw=1.1 if enlarged else 0.8, label="prediction")
    axes.plot(at, value, "o", color=INK, ms=3.4 if enlarged else 1.5, mew=0, label="value")
    if enlarged:
        name = f"outside the band: {outside.sum()} of {len(value)}"
        axes.plot(at[outside], value[outside], "o", color=ORANGE, ms=4.6, mew=0, label=name)
    ring: dict[str, Any] = {"mfc": "none", "mec": RED, "mew": 1.5, "ms": 10}
    axes.plot(at[far], value[far], "o", **ring)
    if not enlarged:
        axes.plot(
            [], [], "o", label=f"anomaly, beyond {ANOMALY_Z:g} std: {far.sum()} in all", **ring
        )
