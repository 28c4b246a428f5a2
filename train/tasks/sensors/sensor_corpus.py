"""Draw pieces of real series to train on among made-up sensors: cut, thinned, mixed and rescaled.

The series come with the package (data/README.md has their sources). A piece is the sum of one to
three cuts with random weights (TSMixup, Ansari et al. 2024); some pieces also get the faults of a
made-up sensor. No cut is reversed in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.train.tasks.sensors.sensor_prior import (
    MEASURED,
    PHASE,
    SEASON,
    VALUE,
    DrawnSensor,
    draw_sensor,
    in_a_unit,
    sensor_of,
    told_season,
)
from edgefold.train.tasks.sensors.sensor_processes import Random

SHARE = 0.17
"""Share of pieces of real series among all streams."""
MOST_MIXED, EVENNESS = 3, 1.5
"""Largest number of cuts of a piece, and the parameter of the Dirichlet distribution from which
their weights are drawn."""
FAULTS = 0.3
"""Probability that a piece gets made-up faults in addition to its own."""
STRIDES = (1, 1, 1, 2, 3, 4, 6)
REAL = "real series"


@dataclass(frozen=True, slots=True)
class RealSeries:
    """Holds a real series.

    Attributes:
        values: (n,), one value a slot (time step), NaN where nothing was measured.
        season: Length of the season in slots, 0 for none.
    """

    values: FloatArray
    season: int


def read_corpus() -> list[RealSeries]:
    """Read the real series that come with the package."""
    with (
        files("edgefold.train.tasks.sensors").joinpath("built_in_sensors.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        seasons = arrays["seasons"].tolist()
        names = [name for name in arrays.files if name not in ("seasons", "nab_licence")]
        return [
            RealSeries(arrays[name].astype(np.float64), season)
            for name, season in zip(names, seasons, strict=True)
        ]


def draw_stream(random: Random, n: int, corpus: list[RealSeries]) -> DrawnSensor:
    """Draw a stream of n slots (time steps): mostly a made-up sensor, else real pieces."""
    if not corpus or random.random() >= SHARE:
        return draw_sensor(random, n)
    return draw_piece(random, n, corpus)


def draw_piece(random: Random, n: int, corpus: list[RealSeries]) -> DrawnSensor:
    """Draw a stream of n slots (time steps) as a weighted sum of cuts from the real series."""
    n_cuts = int(random.integers(1, MOST_MIXED + 1))
    weights = random.dirichlet(np.full(n_cuts, EVENNESS))
    cuts = [_cut(random, n, corpus[random.integers(len(corpus))]) for _ in weights]
    (largest, season), values = cuts[0], np.zeros(n)
    measured = np.isfinite(largest)  # the gaps of the others are bridged
    for weight, (cut, _) in zip(np.sort(weights)[::-1], cuts, strict=True):
        is_finite = np.isfinite(cut)
        whole = np.interp(np.arange(n), np.flatnonzero(is_finite), cut[is_finite])
        values += weight * (whole - cut[is_finite].mean()) / (cut[is_finite].std() + 1e-9)
    if n_cuts > 1:
        quantum = 10.0 ** random.integers(-4, 0)
        values = np.round(values / quantum) * quantum
    if random.random() < FAULTS:
        drawn = sensor_of(random, values, season, REAL)
        rows = drawn.rows
        rows[:, MEASURED] *= measured
    else:
        rows = np.zeros((n, 4), np.float32)
        rows[:, VALUE] = in_a_unit(random, values, values.min())
        rows[:, MEASURED] = measured
        rows[:, SEASON], rows[:, PHASE] = told_season(random, n, season)
    rows[:, VALUE] *= rows[:, MEASURED]
    return DrawnSensor(rows, REAL)


def _cut(random: Random, n: int, series: RealSeries) -> tuple[Array, int]:
    """Cut n slots out of a real series; a short series begins again at its end.

    Sometimes the series is thinned first: of every 2, 3, 4 or 6 slots one is kept, or their mean,
    where enough slots remain.

    Returns:
        The values (n,), and the season of the cut in slots.
    """
    values, stride = series.values, int(random.choice(STRIDES))
    if len(values) // stride < n // 2 or series.season % stride:
        stride = 1
    n_whole = len(values) // stride * stride
    rows = values[:n_whole].reshape(-1, stride)
    thinned = rows.mean(1) if random.random() < 0.5 else rows[:, 0]
    start = random.integers(0, max(1, len(thinned) - n + 1))
    if len(thinned) < n:
        start = random.integers(0, len(thinned))
    piece = thinned[(start + np.arange(n)) % len(thinned)]
    return piece, series.season // stride
