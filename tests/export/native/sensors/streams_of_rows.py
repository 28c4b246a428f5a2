"""Streams of rows of varied kinds, of which each event, refusal and change of season comes once."""

from __future__ import annotations

import math

import numpy as np

from edgefold.runtime.arrays import FloatArray
from tests.export.native.sensors.c_sensors import Row

SINCE = 1_700_006_400.0  # a midnight
HOUR, MINUTE = 3600.0, 60.0


def noise(n: int, seed: int, phi: float = 0.5) -> FloatArray:
    """A series that follows itself."""
    x, before = np.empty(n), 0.0
    for i, e in enumerate(np.random.default_rng(seed).normal(size=n).tolist()):
        before = phi * before + e
        x[i] = before
    return x


def daily(n: int, seed: int, per_day: int = 24, size: float = 8.0) -> FloatArray:
    """A day's cycle with noise."""
    turns = 2 * math.pi / per_day * np.arange(n)
    values: FloatArray = noise(n, seed) + 20.0 + size * np.sin(turns)
    return values


def dated(values: FloatArray, step: float = HOUR, start: float = SINCE) -> list[Row]:
    """Even rows with dates."""
    return [Row(start + step * i, float(v), True) for i, v in enumerate(values.tolist())]


def faults(seed: int) -> list[Row]:
    """Hours of a day's cycle with a spike, a shift, stuck values, a gap, missing and bad values."""
    values = daily(1100, seed)
    values[400] += 60.0
    values[470:] += 25.0
    values[600:680] = values[600]
    values[750] = math.nan
    rows = dated(values)
    refused = [
        Row(math.inf, 1.0, True),
        Row(rows[820].time, 1e31, True),
        Row(1e301, 1.0, True),
        rows[819],
        rows[810],
        Row(rows[820].time + 4e8, 1.0, True),
    ]
    return [*rows[:500], *rows[530:820], *refused, *rows[820:]]


def clocks(seed: int) -> list[Row]:
    """Numbers as times: jitter, missing rows, a clock that is set back and one that leaps ahead."""
    random = np.random.default_rng(seed)
    times = np.arange(900) * 10.0 + random.uniform(-1.0, 1.0, 900)
    times[400:] -= 1500.0
    times[650:] += 5e6
    values = 100.0 + 5.0 * noise(900, seed, 0.9)
    kept = random.uniform(size=900) > 0.05
    rows = zip(times[kept].tolist(), values[kept].tolist(), strict=True)
    return [Row(time, value, False) for time, value in rows]


def uneven(seed: int) -> list[Row]:
    """Rows at times without any pace, then every 5 s, then every 20 s."""
    random = np.random.default_rng(seed)
    steps = [*random.exponential(30.0, 300), *[5.0] * 300, *[20.0] * 300]
    values = noise(len(steps), seed, 0.99)
    times = np.cumsum(steps).tolist()
    return [Row(time, value, False) for time, value in zip(times, values.tolist(), strict=True)]


def found_season(seed: int) -> list[Row]:
    """Counts with a season of 37 rows, which no calendar has; then rows come five times as late."""
    values = np.rint(np.maximum(daily(900, seed, 37, 12.0) - 15.0, 0.0))
    values[600:] = np.rint(20.0 + 30.0 * np.random.default_rng(seed).normal(size=300))
    times = np.cumsum(np.where(np.arange(900) < 750, 1.0, 5.0)).tolist()
    return [Row(time, value, False) for time, value in zip(times, values.tolist(), strict=True)]


def weekly(seed: int) -> list[Row]:
    """A row a day, other ones at the end of the week, and a year of them."""
    values = 50.0 + noise(365, seed) + np.where(np.arange(365) % 7 >= 5, 30.0, 0.0)
    return dated(values, 86_400.0)


def lasting(seed: int, kind: str) -> list[Row]:
    """Rows that drift, lose their rhythm, or become quiet or noisy, for long."""
    n = 1900
    values = daily(n, seed, size=0.0 if kind != "rhythm" else 8.0)
    late = np.arange(n) >= 1300
    if kind == "drift":
        values = values + np.where(late, 0.02 * (np.arange(n) - 1300), 0.0)
    elif kind == "rhythm":
        values = np.where(late, 20.0 + noise(n, seed + 1), values)
    else:
        values = np.where(late, 20.0 + (values - 20.0) * (0.1 if kind == "quiet" else 3.0), values)
    return dated(values)


def absent(seed: int) -> list[Row]:
    """A peak each day that stays away at last."""
    values = noise(24 * 50, seed, 0.2)
    values[12::24] += 40.0
    values[24 * 44 + 12 :: 24] -= 40.0
    return dated(values)


def gaps(seed: int) -> list[Row]:
    """Every 5 minutes for days, with short gaps, one of nine hours, and one of 40 days."""
    rows = dated(daily(1600, seed, 288), 5 * MINUTE)
    late = [row._replace(time=row.time + 40 * 86_400.0) for row in rows[1400:]]
    return [*rows[:300], *rows[302:700], *rows[701:900], *rows[1008:1400], *late]


STREAMS = {
    "faults": faults(1),
    "clocks": clocks(2),
    "uneven": uneven(3),
    "a found season": found_season(4),
    **{kind: lasting(5, kind) for kind in ("drift", "rhythm", "quiet", "noisy")},
    "absent": absent(6),
    "gaps": gaps(7),
    "weekly": weekly(8),
}
