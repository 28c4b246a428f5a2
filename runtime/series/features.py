"""Turn a stream of (time, value) rows into model points, in fixed memory.

    row (time, value) ──> features(time) ──> x, known before the value arrives
                          target(value)  ──> y = value - last value
                          last value + mean of y ──> predicted value
                          push(time, value): the row becomes history

A row that jumps very far in time or value is refused, because it would spoil all rows after it.
If the next row follows it, the jump was real: history starts over with these two.

Training and the board use the same code. Neither x nor y grows with the trend. Numbers stay in
the series' own units: the bundle holds the scaling (`scaling` computes it) and the Stream applies
it. Reading files is `edgefold.runtime.rows.csv_reader`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.rows.csv_fields import MAX_NUMBER
from edgefold.runtime.series.spec import SeriesSpec

MAX_GAP_STEPS = 1000
"""Steps that a row may come after the newest one; one season if that is longer."""


CENTRAL_TO_WHOLE = 1.06998
"""Std of a Gaussian over that of its central 98 %: 1 / sqrt(1 - 2 z phi(z) / 0.98), z = 2.3263."""


class SeriesFeatures:
    """Keeps the last rows of a series in a ring and makes model points of them.

    All buffers are allocated here and keep their size. A gap in time is bridged: before the value
    arrives the last one is held, afterwards the missing rows are interpolated.

    Args:
        spec: Which features.
        max_change: A value further than this from the last one is refused as a jump.

    Attributes:
        last_time: Time of the newest row; NaN before the first.
    """

    def __init__(self, spec: SeriesSpec, max_change: float = math.inf):
        self.spec = spec
        self._max_change = max_change
        self._max_steps = max(MAX_GAP_STEPS, spec.season_rows)
        self._ring = np.zeros(spec.n_rows)
        self._head = 0  # where the next value goes
        self._count = 0
        self.last_time = math.nan
        self._jump = np.full(2, math.nan)  # time and value of a refused row, which may be real
        self._x = np.zeros((1, spec.n_inputs))
        self._y = np.zeros((1, 1))

    @property
    def ready(self) -> bool:
        """Whether history is long enough for `features`."""
        return self._count == len(self._ring)

    @property
    def last_value(self) -> float:
        """Value of the newest row: what persistence predicts. 0 before the first."""
        return float(self._ring[self._head - 1])

    def n_missing(self, time: float) -> int:
        """Count the rows missing between the newest one and `time`: 0 in a regular series.

        Raises:
            DataError: The time is not finite, not after the newest row's, or too far ahead.
        """
        objection = self._objection((self.last_time, 0.0), time, 0.0) if self._count else ""
        if objection or not math.isfinite(time):
            raise DataError(objection or f"the time {time} is not finite; drop the row.")
        if self._count == 0:
            return 0
        return max(0, round((time - self.last_time) / self.spec.step) - 1)

    def _objection(self, newest: tuple[float, float], time: float, value: float) -> str:
        """Say why a row cannot follow another one; empty if it can."""
        elapsed, change = time - newest[0], value - newest[1]
        if elapsed <= 0:
            return (
                f"the time {time} is not after the newest row's {newest[0]}; rows must come in "
                "order and once: drop the row."
            )
        if not elapsed <= (self._max_steps + 0.5) * self.spec.step:
            return (
                f"the time {time} is more than {self._max_steps} steps of {self.spec.step:g} after "
                f"the newest row's {newest[0]}; if the next row follows it, history starts over."
            )
        if abs(change) > self._max_change:
            return (
                f"the value {value} is more than {self._max_change:g} from the last one, "
                f"{newest[1]}; if the next row follows it, history starts over."
            )
        return ""

    def admit(self, time: float, value: float) -> None:
        """Refuse a row that cannot follow the newest one.

        A refused jump is remembered. If this row follows it, history starts over with the jump, and
        `ready` is false until it is long enough again. The first row of all counts as a jump until
        a second one follows it.

        Raises:
            DataError: Not finite, not after the newest row's time, or a jump.
        """
        for name, number in (("time", time), ("value", value)):
            if not math.isfinite(number):
                raise DataError(f"the {name} {number} is not finite; drop the row.")
        if abs(value) > MAX_NUMBER:
            raise DataError(f"the value {value} is beyond {MAX_NUMBER:g}; drop the row.")
        if self._count == 0:
            return
        objection = self._objection((self.last_time, self.last_value), time, value)
        if objection:
            far, jumped = self._jump.tolist()
            if math.isnan(far) or self._objection((far, jumped), time, value):
                if self._count == 1 or time > self.last_time:
                    self._jump[:] = time, value
                raise DataError(objection)
            self._head = self._count = 0
            self._append(jumped)
            self.last_time = far
        self._jump[:] = math.nan

    def _back(self, k: int) -> float:
        """The value k rows before the newest."""
        return float(self._ring[(self._head - 1 - k) % len(self._ring)])

    def features(self, time: float) -> FloatArray:
        """Compute x of the row that will come at `time`.

        Returns:
            (1, X), raw units; a buffer that the next call overwrites.

        Raises:
            DataError: Not ready, or the time is not after the newest row's or too far ahead.
        """
        if not self.ready:
            raise DataError(
                f"features() needs {len(self._ring)} rows of history and has {self._count}; push "
                "more rows first."
            )
        spec, n_held = self.spec, self.n_missing(time)
        limit = math.inf if spec.limit is None else spec.limit
        rows, column = spec.season_rows, 0

        def value(k: int) -> float:  # k = 1 is one row before `time`; missing rows hold the last
            return self._back(max(0, k - 1 - n_held))

        def put(number: float) -> None:
            nonlocal column
            self._x[0, column] = min(max(number, -limit), limit)
            column += 1

        for k in range(1, spec.lags + 1):
            put(value(k) - value(k + 1))
        if spec.season is not None:
            for j in range(spec.season_lags):
                put(value(rows - j) - value(rows - j + 1))
        if spec.level:
            put(value(1) - (value(rows + 1) if rows else float(self._ring.mean())))
        if spec.season is not None:
            phase = 2 * math.pi * ((time % spec.season) / spec.season)
            for h in range(1, spec.harmonics + 1):
                self._x[0, column] = math.sin(h * phase)
                self._x[0, column + 1] = math.cos(h * phase)
                column += 2
        return self._x

    def target(self, value: float) -> FloatArray:
        """Compute y of a row: (1, 1), raw units; a buffer that the next call overwrites."""
        self._y[0, 0] = value - self.last_value
        return self._y

    def push(self, time: float, value: float) -> None:
        """Make the row history; see `admit`, which it calls.

        Raises:
            DataError: Not finite, not after the newest row's time, or a jump.
        """
        self.admit(time, value)
        missing = self.n_missing(time)
        last = self.last_value
        for k in range(max(0, missing - len(self._ring)), missing):
            self._append(last + (value - last) * (k + 1) / (missing + 1))
        self._append(value)
        self.last_time = time

    def _append(self, value: float) -> None:
        self._ring[self._head] = value
        self._head = (self._head + 1) % len(self._ring)
        self._count = min(self._count + 1, len(self._ring))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copy everything that a snapshot must keep for `load`."""
        return {
            "series_ring": self._ring.copy(),
            "series_position": np.array([self._head, self._count], dtype=np.int64),
            "series_last_time": np.array(self.last_time),
            "series_jump": self._jump.copy(),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned. Nothing changes if it is refused.

        Raises:
            SnapshotError: Arrays are missing, or are of another specification.
        """
        mine = self.arrays()
        for name, array in mine.items():
            found = arrays.get(name)
            if found is None or found.shape != array.shape:
                shape = "nothing" if found is None else f"shape {found.shape}"
                raise SnapshotError(
                    f"the snapshot's {name} is {shape}, this series needs {array.shape}; it is of "
                    "another bundle: start without it."
                )
        head, count = (int(n) for n in arrays["series_position"])
        size = len(self._ring)
        if not (
            0 <= head < size and 0 <= count <= size and np.isfinite(arrays["series_ring"]).all()
        ):
            raise SnapshotError("the snapshot's series rows are damaged; start without it.")
        self._ring[:] = arrays["series_ring"]
        self._head, self._count = head, count
        self.last_time = float(arrays["series_last_time"])
        self._jump[:] = arrays["series_jump"]


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """All model points of a stretch of series, in raw units.

    Attributes:
        time: (n,), in units of the clock.
        value: (n,), what came.
        last: (n,), the value before: the prediction is last + mean of y.
        x: (n, X).
        y: (n, 1).
        season: (n,), the change over the same time one season ago; 0 without a season.
    """

    time: FloatArray
    value: FloatArray
    last: FloatArray
    x: FloatArray
    y: FloatArray
    season: FloatArray


def series_points(spec: SeriesSpec, times: FloatArray, values: FloatArray) -> SeriesPoints:
    """Compute the points along the rows; the first `spec.n_rows` give none.

    A gap is bridged as on the board: the row behind it is a point, the missing rows are none. After
    a gap that is too long for that, history starts over.

    Args:
        spec: Which features.
        times: (n,).
        values: (n,).

    Raises:
        DataError: Rows out of order, not finite, or too few for one point.
    """
    longest = (max(MAX_GAP_STEPS, spec.season_rows) + 0.5) * spec.step
    pauses = np.flatnonzero(np.diff(times) > longest) + 1
    kept: list[tuple[float, float, float, float]] = []
    x: list[FloatArray] = []
    for part in np.split(np.arange(len(times)), pauses):
        features = SeriesFeatures(spec)
        ago = _season_changes(spec, times[part], values[part])
        rows = zip(times[part].tolist(), values[part].tolist(), ago.tolist(), strict=True)
        for time, value, change in rows:
            if features.ready:
                x.append(features.features(time)[0].copy())
                kept.append((time, value, features.last_value, change))
            features.push(time, value)
    if not kept:
        raise DataError(
            f"the series has {len(times)} rows; its features need {spec.n_rows} before the first "
            "point. Give a longer series or a shorter season."
        )
    time_, value_, last, season = np.array(kept).T
    return SeriesPoints(time_, value_, last, np.array(x), (value_ - last)[:, None], season)


def _season_changes(spec: SeriesSpec, times: FloatArray, values: FloatArray) -> FloatArray:
    """Compute the change from the row before to each row, one season ago; 0 without a season.

    Over a gap of that time the values are interpolated, and after it ends the last one is held.
    """
    if not spec.season or not len(times):
        return np.zeros(len(times))
    steps = np.maximum(np.rint(np.diff(times) / spec.step), 1)
    place = np.concatenate([[0.0], np.cumsum(steps)])  # among all rows, missing ones included
    before = place[:-1]
    then = np.interp(np.minimum(place[1:] - spec.season_rows, before), place, values)
    return np.concatenate([[0.0], then - np.interp(before - spec.season_rows, place, values)])


def scaling(x: FloatArray, y: FloatArray) -> dict[str, list[float]]:
    """Compute shift and scale of x (n, X) and y (n, Y); a constant column has scale 1."""
    return {
        "x_shift": x.mean(axis=0).tolist(),
        "x_scale": [float(std) if std > 0 else 1.0 for std in x.std(axis=0)],
        "y_shift": y.mean(axis=0).tolist(),
        "y_scale": [central_std(column) or 1.0 for column in y.T],
    }


def central_std(values: FloatArray) -> float:
    """The standard deviation of values (n,) that a few of them far outside do not widen.

    It is that of the central 98 %, times what makes it the whole one of a Gaussian; at least 1/20
    of the whole one, for values of which almost all are the same.
    """
    low, high = np.quantile(values, [0.01, 0.99])
    central = values[(values >= low) & (values <= high)]
    return float(max(central.std() * CENTRAL_TO_WHOLE, values.std() / 20))
