"""Streams of one sensor through a bundle, and what was told of every row before it was learned.

    file ──> SensorFeed: slots, season ──> Stream.step ──> forecast of the row, and of rows to come
                                                                └> Told, one a series

The bundle is taken as it is shipped: no season, scale or other setting is given to it. What it
tells of the slots ahead is kept for the rows that lie so many slots ahead without a gap between.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.sensors.sensors_scores import Told, first_scored
from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.predictions.sensor_forecast import usual_of
from edgefold.runtime.rows.dates import is_date, parse_date
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed


@dataclass(frozen=True, slots=True)
class SensorFile:
    """A series as it lies in a file.

    Attributes:
        name: Of the file, without its ending.
        times, values: (n,); times in seconds since 1970 where they are dates.
        dated: Whether they are.
        digest: Of the file's bytes, so that a record knows what it was made of.
    """

    name: str
    times: FloatArray
    values: FloatArray
    dated: bool
    digest: str


def read_sensor(path: Path) -> SensorFile:
    """Read `time,value`; rows without a number are left out."""
    content = path.read_bytes()
    rows = [row for row in csv.reader(content.decode().splitlines()[1:]) if len(row) >= 2]
    dated = is_date(rows[0][0])
    times = [parse_date(row[0]) if dated else float(row[0]) for row in rows]
    values = [float(row[1] or "nan") for row in rows]
    known = np.isfinite(values)
    digest = hashlib.sha256(content).hexdigest()[:16]
    return SensorFile(path.stem, np.array(times)[known], np.array(values)[known], dated, digest)


def read_sensors(folder: Path) -> list[SensorFile]:
    """All series of a folder, by name."""
    paths = [path for path in sorted(folder.glob("*.csv")) if not path.name.startswith(".")]
    if not paths:
        raise SystemExit(f"{folder} has no CSV files; give a folder of files `time,value`.")
    return [read_sensor(path) for path in paths]


@dataclass(frozen=True, slots=True)
class Followed:
    """A series as a bundle has followed it; arrays over the n rows that it took.

    Attributes:
        values: (n,).
        slots: Of each row, (n,); a step of 1 where nothing is missing.
        told: Of each row.
        floor: The same of the experts' mixture alone, without quantiles.
        ahead: Quantiles of the rows `horizons` ahead, (n, H + 1, 7), the last one season ahead.
        ahead_mean: (n, H + 1).
        horizons: In slots, without the season's.
        seasons: The season's length that was known at each row, (n,); 0 for none.
        alarms: 1 where a row was alarmed, (n,). events: Its name.
        n_refused: Rows that were refused.
    """

    values: FloatArray
    slots: Array
    told: Told
    floor: Told
    ahead: FloatArray
    ahead_mean: FloatArray
    horizons: tuple[int, ...]
    seasons: Array
    alarms: Array
    events: list[str]
    n_refused: int

    @property
    def season(self) -> int:
        """The season that was known where scoring begins."""
        return int(self.seasons[first_scored(len(self.values), 0)])

    @property
    def first(self) -> int:
        """The first row that is scored."""
        return first_scored(len(self.values), self.season)


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a series that the feed takes, as peers get them.

    Attributes:
        values: (n,).
        season: In slots, where scoring begins; 0 for none.
        first: The first row that is scored.
    """

    values: FloatArray
    season: int
    first: int


def taken(series: SensorFile, longest_season: int) -> Taken:
    """Return the rows of a series that a bundle's feed would take, without a bundle."""
    feed, values, seasons = SensorFeed(longest_season), [], []
    for x, value in _taken(feed, series):
        if x is not None:
            feed.commit()
            values.append(value)
            seasons.append(feed.season)
    season = seasons[first_scored(len(values), 0)]
    return Taken(np.array(values), season, first_scored(len(values), season))


def rows_taken(series: SensorFile, longest_season: int) -> FloatArray:
    """All rows x that the feed makes of a series, those of missing slots too, (N, 4)."""
    feed, kept = SensorFeed(longest_season), []
    for x, _ in _taken(feed, series):
        if x is not None:
            feed.commit()
            kept.append(x)
    return np.concatenate(kept)


def follow(stream: Stream, series: SensorFile, rate: float = 1e-4) -> Followed:
    """Run a series through a bundle from an empty state."""
    kind = stream.manifest.prediction
    assert isinstance(kind, SensorForecast), "the bundle is none of the general model of sensors"
    stream.reset()
    feed, watch = SensorFeed(kind.longest_season), Watch(rate)
    kept: list[tuple[float, ...]] = []
    ahead, ahead_mean, events = [], [], list[str]()
    slot, n_refused = -1, 0
    for x, value in _taken(feed, series):
        if x is None:
            n_refused += 1
            continue
        for row in x:
            told = stream.step(row).tensors
        feed.commit()
        slot += len(x)
        one = {name: np.array(told[name], np.float64).ravel() for name in OF_THE_ROW}
        p_value, log_density = float(one["p_value"][0]), float(one["log_density"][0])
        middle = float(one["quantiles"][len(one["quantiles"]) // 2])
        usual, place = usual_of(told), feed.place
        verdict = watch.see(value, p_value, middle, log_density, len(x) - 1, usual, place)
        events.append(verdict.event)
        ahead.append(np.array(told["ahead_quantiles"], np.float32)[0])
        ahead_mean.append(np.array(told["ahead_mean"], np.float32)[0])
        kept.append(
            (value, slot, feed.season, verdict.alarm, *(n for part in one.values() for n in part))
        )
    table = np.array(kept)
    floor, quantiles = table[:, 7:10], table[:, 10:]
    none = np.full_like(quantiles, math.nan)
    return Followed(
        table[:, 0],
        table[:, 1].astype(np.int64),
        Told(table[:, 4], quantiles, table[:, 5], table[:, 6]),
        Told(floor[:, 0], none, floor[:, 1], floor[:, 2]),
        np.array(ahead),
        np.array(ahead_mean),
        kind.horizons,
        table[:, 2].astype(np.int64),
        table[:, 3].astype(np.int64),
        events,
        n_refused,
    )


OF_THE_ROW = ("mean", "log_density", "p_value", "floor", "quantiles")


def _taken(feed: SensorFeed, series: SensorFile) -> Iterator[tuple[FloatArray | None, float]]:
    """Rows x of each row of a file; None where the feed refuses it."""
    for time, value in zip(series.times.tolist(), series.values.tolist(), strict=True):
        try:
            x = feed.rows(time, value, series.dated)
        except DataError:
            yield None, value
        else:
            yield x, value


def targets(slots: Array, horizon: int) -> Array:
    """The row `horizon` slots ahead of each row with no gap between, (n,); -1 for none."""
    n = len(slots)
    found = np.full(n, -1, np.int64)
    if horizon < n:
        whole = slots[horizon:] - slots[: n - horizon] == horizon
        found[: n - horizon][whole] = np.flatnonzero(whole) + horizon
    return found
