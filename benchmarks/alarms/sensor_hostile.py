"""Rows as no sensor should send them, and whether a stream does its work again after them.

    1,000 clean rows ──> hostile among clean rows ──> 200 clean rows ──> 500: errors as before?

The kinds are those of `attack/kinds/rows.py`, as numbers: times of the future, of the past and
none, values beyond all measure and none, repeats; and so are their shares. What the feed refuses is
counted.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.record import progress
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import EdgefoldError
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.predictions.sensor_forecast import usual_of
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict
from edgefold.runtime.sensors.clock.row_clock import SensorFeed

Random = np.random.Generator
RATES = (1e-2, 1e-3, 1e-4)
N_RECOVERY, N_CLEAN = 200, 1000
SHARES = (0.3, 0.9)
"""Shares of hostile rows among all."""
HOUR_S = 3600.0


@dataclass
class Sensor:
    """A bundle's stream of one sensor with its feed and its alarms at each rate.

    Attributes:
        errors: |value - median| of the rows so far.
    """

    stream: Stream
    feed: SensorFeed
    watches: dict[float, Watch]
    errors: list[float] = field(default_factory=list)

    @classmethod
    def fresh(cls, stream: Stream) -> Sensor:
        """With an empty state."""
        stream.reset()
        kind = stream.manifest.prediction
        assert isinstance(kind, SensorForecast)
        return cls(stream, SensorFeed(kind.longest_season), {rate: Watch(rate) for rate in RATES})

    def see(self, time: float, value: float, dated: bool = False) -> dict[float, AlarmVerdict]:
        """Take a row; the verdict at each rate.

        Raises:
            EdgefoldError: The row is refused.
        """
        x = self.feed.rows(time, value, dated)
        for row in x:
            told = self.stream.step(row).tensors
        self.feed.commit()
        quantiles = told["quantiles"].ravel().tolist()
        middle = quantiles[len(quantiles) // 2]
        p_value, log_density = told["p_value"].item(), told["log_density"].item()
        self.errors.append(abs(value - middle))
        usual, place = usual_of(told), self.feed.place
        return {
            rate: watch.see(value, p_value, middle, log_density, len(x) - 1, usual, place)
            for rate, watch in self.watches.items()
        }

    def copy(self) -> Sensor:
        """Return a copy of what it knows besides the stream's state."""
        return Sensor(
            self.stream, copy.deepcopy(self.feed), copy.deepcopy(self.watches), list(self.errors)
        )


def hostile_row(random: Random, time: float, value: float) -> tuple[float, float]:
    """A row as no sensor should send it, near a good one."""
    kind = random.integers(9)
    if kind == 0:
        return time, float(random.choice([1e18, -1e18, 1e29, 3e38, 1e300, -1e308]))
    if kind == 1:
        return time, float(random.choice([math.nan, math.inf, -math.inf]))
    if kind == 2:  # the future
        return time + HOUR_S * float(10 ** random.uniform(0, 6)), value
    if kind == 3:  # the past
        return time - HOUR_S * float(10 ** random.uniform(0, 6)), value
    if kind == 4:  # the row before once more
        return time - HOUR_S, value
    if kind == 5:
        return time - HOUR_S * float(random.random()), value
    if kind == 6:
        return float(random.choice([math.nan, math.inf, -math.inf, 1e300, -1e300])), value
    if kind == 7:
        return time, float(10 ** random.uniform(-30, 29) * random.choice([-1, 1]))
    return time, 0.0


def after_hostile_rows(stream: Stream, n_rows: int, share: float) -> dict[str, Any]:
    """Errors on clean rows before and after hostile ones, and whether the state is finite."""
    random = np.random.default_rng(7)
    sensor = Sensor.fresh(stream)

    def true_value(row: int) -> float:
        return 20 + 3 * math.sin(2 * math.pi * row / 24) + 0.3 * float(random.normal())

    def clean(first: int, n: int) -> FloatArray:
        for row in range(first, first + n):
            try:
                sensor.see(HOUR_S * row, true_value(row), True)
            except EdgefoldError:
                sensor.errors.append(math.nan)
        found: FloatArray = np.array(sensor.errors[-n:])
        return found

    before = clean(0, N_CLEAN)[-N_CLEAN // 2 :]
    n_refused = 0
    for row in range(N_CLEAN, N_CLEAN + n_rows):
        time, value = HOUR_S * row, true_value(row)
        if random.random() < share:
            time, value = hostile_row(random, time, value)
        try:
            sensor.see(time, value, True)
        except EdgefoldError:
            n_refused += 1
        del sensor.errors[:-N_CLEAN]
        if row % 50_000 == 0:
            progress(f"{share:.0%} hostile rows: {row - N_CLEAN:,} of {n_rows:,}")
    first = N_CLEAN + n_rows
    clean(first, N_RECOVERY)
    after = clean(first + N_RECOVERY, N_CLEAN // 2)
    return {
        "n_rows": n_rows,
        "share": share,
        "n_refused": n_refused,
        "mae_before": float(np.nanmean(before)),
        "mae_after": float(np.nanmean(after)),
        "refused_after": int(np.isnan(after).sum()),
        "finite": all(np.isfinite(array).all() for array in stream.state().values()),
    }
