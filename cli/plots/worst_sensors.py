"""Draw some sensors of a lake beside each other: rows around each one's last alarm, or the last.

The module draws given values and computes no score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, get_args

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure

from edgefold.cli.plots.sensor_forecasts import Panel, draw_rows, has_dates
from edgefold.cli.plots.style import GREY, STYLE, content_of
from edgefold.cli.text.streams import short
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.forecasts import Forecast, Path

if TYPE_CHECKING:
    from edgefold.fleets.forecasting.sensor_summary import SensorPicture, SensorSummary

N_COLUMNS = 3
WORDS = list(get_args(Event))


def draw_worst(
    format: str,
    title: str,
    names: Sequence[str],
    pictures: Sequence[SensorPicture],
    is_dated: bool,
) -> bytes:
    """Draw a panel for each sensor and return the content of a picture file.

    Args:
        format: Format of the file: png, svg or pdf.
        title: Title of the picture.
        names: The names of the sensors.
        pictures: What is shown of each.
        is_dated: Whether times are seconds since 1970.
    """
    panels = [_panel(*pair) for pair in zip(names, pictures, strict=True)]
    is_dated = is_dated and all(map(has_dates, panels))
    # Names of sensors are texts, not formulas: a dollar is a dollar.
    with matplotlib.rc_context({**STYLE, "text.color": "black", "text.parse_math": False}):
        n_lines = math.ceil(len(panels) / N_COLUMNS)
        n_columns = min(len(panels), N_COLUMNS)
        figure = Figure(figsize=(6.4 * n_columns, 0.9 + 3.1 * n_lines), layout="constrained")
        handles: dict[str, Any] = {}
        for number, panel in enumerate(panels, 1):
            axes = figure.add_subplot(n_lines, n_columns, number)
            draw_rows(axes, panel, is_dated, crops=True)
            if is_dated:
                _label_dates(axes)
            axes.set_title(panel.name, loc="left", fontsize=10, fontweight="bold")
            scores = panel.scores
            if panel.marked:
                scores += f", last alarm {_time(panel.marked[-1][0], is_dated)}"
            axes.set_title(scores, loc="right", fontsize=8, color=GREY)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=len(handles)
        )
        return content_of(figure, format, dpi=110)


def _time(time: float, is_dated: bool) -> str:
    if not is_dated:
        return f"{time:,.10g}"
    return datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M")


def _label_dates(axes: Axes) -> None:
    """Label days with their month; the title has the year."""
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        axes.xaxis.get_major_locator(),
        formats=["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
        zero_formats=["", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
        show_offset=False,
    )
    axes.xaxis.set_major_formatter(formatter)


def _panel(name: str, picture: SensorPicture) -> Panel:
    rows = zip(
        picture.times.tolist(),
        picture.values.tolist(),
        picture.forecasts.tolist(),
        picture.events.tolist(),
        picture.alarms.tolist(),
        picture.n_missing.tolist(),
        strict=True,
    )
    forecasts = [
        Forecast(
            *(mean, q05, q10, q25, q50, q75, q90, q95),
            time=time,
            value=value,
            log_density=0.0,
            p_value=1.0,
            alarm=alarm,
            event=WORDS[event],
            n_missing=n_missing,
            season=0,
            since=0,
            size=0.0,
            _horizons=(),
            _ahead=None,
        )
        for time, value, numbers, event, alarm, n_missing in rows
        for mean, q05, q10, q25, q50, q75, q90, q95 in [numbers]
    ]
    own, path = picture.summary, Path(picture.path[:, 0], picture.path[:, 1:])
    return Panel(
        short(name),
        _scores(own),
        forecasts,
        (picture.pieces[0], picture.pieces[1], picture.pieces[2]),
        [(time, value) for time, value in picture.marked.T.tolist()],
        path if np.isfinite(path.mean[0]) else None,
        own.pace,
        own.season,
        None if np.isnan(picture.shares).any() else picture.shares,
    )


def _scores(own: SensorSummary) -> str:
    alarms = "1 alarm" if own.n_alarms == 1 else f"{own.n_alarms:,} alarms"
    scores = f", log score {own.mean_log_density:.3g}" if own.n_scored else ""
    return f"{alarms} in {own.n_rows:,} rows{scores}"
