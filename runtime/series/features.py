"""Turn a stream of (time, value) rows into model points, in fixed memory.

    row (time, value) ──> features(time) ──> x, known before the value arrives
                          target(value)  ──> y = value - last value
                          last value + mean of y ──> predicted value
                          push(time, value): the row becomes history

`edgefold.runtime.series.admission` decides which rows become history.

Training and the board use the same code. Neither x nor y grows with the trend. Numbers stay in
the series' own units: the bundle holds the scaling (`scaling` computes it) and the Stream applies
it. `edgefold.runtime.rows.csv_reader` reads files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.series.admission import MAX_GAP_STEPS, Admission
from edgefold.runtime.series.spec import SeriesSpec, without_outliers

PREFIX = "series_"
"""The prefix that a snapshot puts before the names of the arrays of a series."""


CENTRAL_TO_WHOLE = 1.06998
"""The standard deviation of a normal distribution divided by that of its central 98 %: 1 / sqrt(1 -
2 z phi(z) / 0.98) with z = 2.3263."""


class SeriesFeatures:
    """Keeps the last rows of a series in a ring buffer and makes model points (x, y) of them.

    All buffers are allocated here and keep their size. A gap in time is bridged: until the next
    value arrives, missing rows have the last value; afterwards they are interpolated.

    Args:
        spec: The features that are computed.
        max_change: The largest change from one value to the next; a larger one is refused as a
            jump.
        pace_is_known: Whether the rows are known to come at the step of the series, for example
            because they come from a file that was checked as a whole.
    """

    def __init__(self, spec: SeriesSpec, max_change: float = math.inf, pace_is_known: bool = False):
        self.spec = spec
        self._rows = Admission(spec, max_change)
        if pace_is_known:
            self._rows.pace.assume_right()
        self._x = np.zeros((1, spec.n_inputs))
        self._y = np.zeros((1, 1))

    @property
    def ready(self) -> bool:
        """Return whether the history is long enough for `features`."""
        return self._rows.history.is_full

    @property
    def pace_is_known(self) -> bool:
        """Return whether the first rows came about as often as the rows of the training."""
        return self._rows.pace.is_known

    @property
    def last_time(self) -> float:
        """Return the time of the newest row; NaN before the first."""
        return self._rows.history.last_time

    @property
    def last_value(self) -> float:
        """Return the value of the newest row, which persistence predicts; 0 before the first."""
        return self._rows.history.last_value

    def n_missing(self, time: float) -> int:
        """Return how many rows are missing between the newest row and `time`: 0 without a gap.

        Raises:
            DataError: The time is not finite, less than half a step after the newest row's, or too
                far ahead.
        """
        if not math.isfinite(time):
            raise DataError(f"the time {time} is not finite; drop the row.")
        objection = self._rows.objection(time)
        if objection:
            raise DataError(objection)
        return self._rows.n_missing(time)

    def admit(self, time: float, value: float) -> None:
        """Refuse a row that follows neither the newest row nor the history before the last gap.

        If a row follows the history from before a long gap, that history becomes the present one
        again: the rows after the gap had wrong times. Rows that are refused in sequence and belong
        together are accepted at last: history starts over with two rows that jumped ahead or in
        value, and with three rows that went back in time, because a clock was set. `ready` is then
        False until the history is long enough again. If only the clock was set back, and values go
        on as before, the history stays.

        Raises:
            DataError: The row is not finite, out of order, learned before, a jump, or of another
                pace.
            PaceError: The first rows come at another pace than the step of the series; this is
                clear after 7 to 17 rows.
        """
        self._rows.admit(time, value)

    def features(self, time: float) -> FloatArray:
        """Compute the model's inputs x for the row that will come at `time`.

        Returns:
            The features, (1, X), in raw units; a buffer that the next call overwrites.

        Raises:
            DataError: The history is not `ready`, or the time is not after the newest row's, or is
                too far ahead.
        """
        if not self.ready:
            raise DataError(
                f"features() needs {self.spec.n_rows} rows of history and has "
                f"{self._rows.history.count}; push more rows first."
            )
        spec, n_held, history = self.spec, self.n_missing(time), self._rows.history
        limit = math.inf if spec.limit is None else spec.limit
        rows, column = spec.season_rows, 0

        def value(k: int) -> float:  # k = 1 is one row before `time`; missing rows hold the last
            return history.back(max(0, k - 1 - n_held))

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
            put(value(1) - (value(rows + 1) if rows else history.mean))
        if spec.season is not None:
            phase = 2 * math.pi * ((time % spec.season) / spec.season)
            for h in range(1, spec.harmonics + 1):
                self._x[0, column] = math.sin(h * phase)
                self._x[0, column + 1] = math.cos(h * phase)
                column += 2
        return self._x

    def target(self, value: float) -> FloatArray:
        """Return the target y (1, 1) of a row in raw units; the next call overwrites it.

        y is the change from the last value to the row's value.
        """
        self._y[0, 0] = value - self.last_value
        return self._y

    def push(self, time: float, value: float) -> None:
        """Call `admit` for a row and add it to the history.

        Raises:
            DataError, PaceError: `admit` refuses the row.
        """
        self._rows.push(time, value)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        return as_part(self._rows.arrays(), PREFIX)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing, damaged, or of another specification.
        """
        self._rows.load(part_of(arrays, PREFIX))


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """Holds all model points (x, y) of a series, in raw units.

    Attributes:
        time: The times of the points, (n,), in units of the clock.
        value: The values that came, (n,).
        last: The values before them, (n,); a value's prediction is `last` plus the mean of y.
        x: The features, (n, X).
        y: The changes from the last value to the value, (n, 1).
        season: The changes over the same time one season ago, (n,); 0 without a season.
        n_passed_over: The number of rows that a running stream would refuse, because they come at
            another pace: they are neither points nor history.
    """

    time: FloatArray
    value: FloatArray
    last: FloatArray
    x: FloatArray
    y: FloatArray
    season: FloatArray
    n_passed_over: int


def series_points(spec: SeriesSpec, times: FloatArray, values: FloatArray) -> SeriesPoints:
    """Compute a model point for each row of a series; the first `spec.n_rows` rows give none.

    A gap is bridged as in a running stream: the row after it is a point, the missing rows are not.
    After a gap of more than 1000 steps (or a season, if it is longer), history starts over. A row
    that a running stream would refuse, because many rows come at another pace, is left out.

    Args:
        spec: The features that are computed.
        times: The times of the rows, (n,).
        values: The values of the rows, (n,).

    Raises:
        DataError: The rows are out of order or not finite, or too few for one point.
    """
    longest = (max(MAX_GAP_STEPS, spec.season_rows) + 0.5) * spec.step
    pauses = np.flatnonzero(np.diff(times) > longest) + 1
    kept: list[tuple[float, float, float, float]] = []
    x: list[FloatArray] = []
    n_passed_over = 0
    for part in np.split(np.arange(len(times)), pauses):
        features = SeriesFeatures(spec, pace_is_known=True)
        ago = _season_changes(spec, times[part], values[part])
        rows = zip(times[part].tolist(), values[part].tolist(), ago.tolist(), strict=True)
        for time, value, change in rows:
            try:
                features.admit(time, value)
            except DataError:
                if not time > features.last_time:
                    raise
                n_passed_over += 1
                continue
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
    y = (value_ - last)[:, None]
    return SeriesPoints(time_, value_, last, np.array(x), y, season, n_passed_over)


def _season_changes(spec: SeriesSpec, times: FloatArray, values: FloatArray) -> FloatArray:
    """Return, for each row, how much the value changed in the same step one season ago, (n,).

    Missing values are interpolated. Where one season before a row is later than the row before
    (after a gap longer than a season), the value of the row before is taken, so that no forecast
    uses later values. Without a season all changes are 0.
    """
    if not spec.season or not len(times):
        return np.zeros(len(times))
    steps = np.maximum(np.rint(np.diff(times) / spec.step), 1)
    place = np.concatenate([[0.0], np.cumsum(steps)])  # among all rows, missing ones included
    before = place[:-1]
    then = np.interp(np.minimum(place[1:] - spec.season_rows, before), place, values)
    return np.concatenate([[0.0], then - np.interp(before - spec.season_rows, place, values)])


def scaling(x: FloatArray, y: FloatArray) -> dict[str, list[float]]:
    """Compute shift and scale of each column of x (n, X) and y (n, Y); a constant one has scale 1.

    The lists are called x_shift, x_scale, y_shift and y_scale. A few absurd values, which one wrong
    row gives, change them little.
    """
    x, y = (np.apply_along_axis(without_outliers, 0, columns) for columns in (x, y))
    return {
        "x_shift": x.mean(axis=0).tolist(),
        "x_scale": [float(std) if std > 0 else 1.0 for std in x.std(axis=0)],
        "y_shift": y.mean(axis=0).tolist(),
        "y_scale": [central_std(column) or 1.0 for column in y.T],
    }


def central_std(values: FloatArray) -> float:
    """Return a standard deviation of values (n,) that a few values far outside do not widen.

    The standard deviation of the central 98 % of the values is multiplied by the factor that makes
    it right for a normal distribution. The result is at least 1/20 of the deviation of all values,
    which matters if almost all are the same.
    """
    low, high = np.quantile(values, [0.01, 0.99])
    central = values[(values >= low) & (values <= high)]
    return float(max(central.std() * CENTRAL_TO_WHOLE, values.std() / 20))
