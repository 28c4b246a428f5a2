"""Pictures of `sensors`: series with their bands and alarms, best and worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sensors.sensors_run import Followed, SensorFile
from edgefold.runtime.arrays import FloatArray

N_PICTURES, N_SHOWN = 3, 240
"""Series from each end, and rows of each."""


def draw(
    folder: Path,
    files: Sequence[SensorFile],
    followed: Mapping[str, Followed],
    gains: Mapping[str, FloatArray],
) -> list[str]:
    """Draw the series with the most and the least gain over base+; returns names of files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    order = sorted((series.name for series in files), key=lambda n: -float(gains[n].mean()))
    ends = {
        "best": order[:N_PICTURES],
        "worst": [n for n in order[N_PICTURES:]][-N_PICTURES:],
    }
    drawn = []
    for end, names in ends.items():
        if not names:
            continue
        figure, panels = plt.subplots(len(names), 1, figsize=(12, 3.2 * len(names)), dpi=100)
        for axes, name in zip(np.atleast_1d(panels), names, strict=True):
            _panel(axes, followed[name], f"{name}, {gains[name].mean():+.3f} nats over base+")
        figure.tight_layout()
        figure.savefig(folder / f"sensors_{end}.png")
        plt.close(figure)
        drawn.append(f"sensors_{end}.png")
    return drawn


def shown(one: Followed) -> slice:
    """The rows that a panel shows: around the last alarm, or else where the values move most."""
    n, first = len(one.values), one.first
    alarms = np.flatnonzero(one.alarms[first:]) + first
    if len(alarms):
        end = min(n, int(alarms[-1]) + N_SHOWN // 3)
    else:
        moved = np.append(0, np.cumsum(np.diff(one.values) != 0))
        ends = np.arange(min(first + N_SHOWN, n), n + 1)
        rises = moved[ends - 1] - moved[np.maximum(ends - N_SHOWN, 0)]
        end = int(ends[::-1][rises[::-1].argmax()])  # the last of the best
    return slice(max(first, end - N_SHOWN), end)


def _panel(axes: Any, one: Followed, title: str) -> None:
    """One series: its values, the bands of 50 and 90 %, the median, alarms."""
    rows = shown(one)
    at, q = np.arange(len(one.values))[rows], one.told.quantiles[rows]
    axes.fill_between(at, q[:, 0], q[:, 6], color="#9ecae1", lw=0, label="90 % band, one row ahead")
    axes.fill_between(at, q[:, 2], q[:, 4], color="#4292c6", lw=0, label="50 %")
    axes.plot(at, one.values[rows], "k.-", lw=0.5, ms=2, label="value")
    alarms = np.flatnonzero(one.alarms[rows]) + rows.start
    if len(alarms):
        axes.plot(alarms, one.values[alarms], "o", mfc="none", mec="#d62728", label="alarm")
    low, high = np.quantile(one.values[rows], [0, 1])
    margin = 0.3 * (high - low) + 1e-12
    axes.set_ylim(low - margin, high + margin)
    axes.set_title(title, fontsize=10)
    axes.legend(loc="upper left", fontsize=7, ncol=4)
