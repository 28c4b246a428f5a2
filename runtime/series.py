"""A stream of (time, value) rows as model points, in fixed memory.

    row (time, value) ──> features(time) ──> x, known before the value arrives
                          target(value)  ──> y = value - last value
                          to_value(mean) ──> last value + mean
                          push(time, value): the row becomes history

The same code serves training and the board. Neither x nor y grows with the trend. Numbers stay in
the series' own units: the bundle holds the scaling (`scaling` computes it) and the Stream applies
it. Reading files is `edgefold.runtime.csv_source`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.csv_fields import Clock
from edgefold.runtime.errors import DataError, SnapshotError

FloatArray = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]

DAY_S = 86400.0
YEAR_S = 365.2425 * DAY_S
SEASONS_S = {"day": DAY_S, "week": 7 * DAY_S, "year": YEAR_S}
LEVEL_ROWS = 32
"""Rows whose mean is the level of a series without a season."""


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """Which features a series has.

    Attributes:
        clock: `date`: times are seconds since 1970-01-01; `number`: the user's own unit.
        step: Usual time between two rows, in units of the clock.
        season: Period of the season in units of the clock; None for a series without one.
        lags: How many of the last changes are features.
        season_lags: How many changes of one season ago are features, counted from the one over the
            step that is predicted.
        harmonics: Pairs of sine and cosine of the season's phase.
        level: Whether the last value's distance from its level is a feature: from its value one
            season ago, or without a season from the mean of the last 32 rows.
        limit: Changes and levels are clipped to +-limit, so that x is bounded whatever comes.
    """

    clock: Clock
    step: float
    season: float | None = None
    lags: int = 6
    season_lags: int = 1
    harmonics: int = 3
    level: bool = False
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.clock not in ("date", "number"):
            raise DataError(f"the clock is {self.clock!r}; it must be 'date' or 'number'.")
        if not (math.isfinite(self.step) and self.step > 0):
            raise DataError(f"the step is {self.step}; it must be a positive time.")
        if self.lags < 1 or self.season_lags < 0 or self.harmonics < 0:
            raise DataError(
                f"lags is {self.lags}, season_lags {self.season_lags}, harmonics "
                f"{self.harmonics}; lags must be at least 1, the others at least 0."
            )
        if self.limit is not None and not self.limit > 0:
            raise DataError(f"the limit is {self.limit}; it must be positive, or None for none.")
        if self.season is None:
            return
        if not (math.isfinite(self.season) and self.season >= 2 * self.step):
            raise DataError(
                f"the season is {self.season} at a step of {self.step}; it must be at least two "
                "steps long. Choose a longer season or none."
            )
        if self.season_lags >= self.season_rows or 2 * self.harmonics > self.season_rows:
            raise DataError(
                f"a season of {self.season_rows} rows carries fewer than {self.season_rows} "
                f"season lags and at most {self.season_rows // 2} harmonics; asked were "
                f"{self.season_lags} and {self.harmonics}."
            )

    @property
    def season_rows(self) -> int:
        """Rows in one season, rounded; 0 without a season."""
        return 0 if self.season is None else round(self.season / self.step)

    @property
    def n_rows(self) -> int:
        """Rows of history that the features read: the size of the ring."""
        level_rows = LEVEL_ROWS if self.level and self.season is None else 0
        return max(self.lags + 1, self.season_rows + 1, level_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns of x are."""
        names = [f"change_{k + 1}_rows_ago" for k in range(self.lags)]
        if self.season is not None:
            names += [f"season_change_{j}" for j in range(self.season_lags)]
        if self.level:
            names.append("level")
        if self.season is not None:
            for h in range(1, self.harmonics + 1):
                names += [f"season_sin_{h}", f"season_cos_{h}"]
        return tuple(names)

    @property
    def n_inputs(self) -> int:
        """Columns of x."""
        return len(self.names)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and strings, for a task's description."""
        return asdict(self)

    @classmethod
    def from_json(cls, spec: Mapping[str, Any]) -> SeriesSpec:
        """The specification that `to_json` wrote.

        Raises:
            DataError: A setting is unknown, missing or impossible.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(spec) - known)
        missing = sorted({"clock", "step"} - set(spec))
        if unknown or missing:
            raise DataError(
                f"the series specification has unknown settings {unknown} and lacks {missing}; "
                "it comes from another version: train and export again."
            )
        try:
            return cls(**spec)
        except TypeError as error:
            raise DataError(f"the series specification is damaged ({error}).") from error

    @classmethod
    def of_series(
        cls,
        times: Numbers,
        values: Numbers,
        clock: Clock,
        season: float | str | None = "auto",
        lags: int = 6,
        harmonics: int = 3,
        level: bool | None = None,
    ) -> SeriesSpec:
        """A specification for a series: its step and limit are read off the part given.

        Args:
            times: (n,), increasing, in units of the clock.
            values: (n,), of the training part.
            clock: What the times are.
            season: `auto`, `none`, `day`, `week`, `year` or a period in units of the clock. `auto`
                is a year for dated rows 1 to 120 days apart, a day for dated rows up to 6 hours
                apart, none for the rest and where the part given has fewer than 3 seasons.
            lags: See the class.
            harmonics: See the class; fewer if the season has too few rows for them.
            level: See the class; by default only without a season.
        """
        if len(times) < 3:
            raise DataError(f"the series has {len(times)} rows; a step needs at least 3.")
        step = float(np.median(np.diff(times)))
        period = _season(season, clock, step, float(times[-1] - times[0]))
        level = period is None if level is None else level
        rows = 0 if period is None else round(period / step)
        moved = [np.diff(values)]
        if level:
            moved.append(values[rows:] - values[:-rows] if rows else values - values.mean())
        limit = 8 * max(float(np.std(m)) if len(m) else 0.0 for m in moved)
        return cls(
            clock=clock,
            step=step,
            season=period,
            lags=lags,
            harmonics=min(harmonics, rows // 2),
            level=level,
            limit=limit or None,
        )


def _season(season: float | str | None, clock: Clock, step: float, span: float) -> float | None:
    if season is None or season == "none":
        return None
    if isinstance(season, (int, float)):
        return float(season)
    if season == "auto":
        if clock == "number":
            return None
        period = YEAR_S if DAY_S <= step <= 120 * DAY_S else DAY_S
        if period == DAY_S and step > 6 * 3600:
            return None
        return period if span >= 3 * period else None
    if season not in SEASONS_S:
        raise DataError(
            f"the season {season!r} is unknown; take auto, none, {', '.join(SEASONS_S)} or a "
            "number."
        )
    if clock == "number":
        raise DataError(
            f"the season {season!r} needs dates, and this series' times are numbers; give the "
            "season as a number in their unit."
        )
    return SEASONS_S[season]


class SeriesFeatures:
    """The last rows of a series in a ring, and the model points made of them.

    All buffers are allocated here and keep their size. A gap in time is bridged: before the value
    arrives the last one is held, afterwards the missing rows are interpolated.
    """

    def __init__(self, spec: SeriesSpec):
        self.spec = spec
        self._ring = np.zeros(spec.n_rows)
        self._head = 0  # where the next value goes
        self._count = 0
        self._last_time = math.nan
        self._x = np.zeros((1, spec.n_inputs))
        self._y = np.zeros((1, 1))

    @property
    def ready(self) -> bool:
        """Whether history is long enough for `features`."""
        return self._count == len(self._ring)

    @property
    def last_time(self) -> float:
        """Time of the newest row; NaN before the first."""
        return self._last_time

    @property
    def last_value(self) -> float:
        """Value of the newest row: what persistence predicts. 0 before the first."""
        return float(self._ring[self._head - 1])

    def n_missing(self, time: float) -> int:
        """Rows missing between the newest one and `time`: 0 for the next row of a regular series.

        Raises:
            DataError: The time is not finite or not after the newest row's.
        """
        if not math.isfinite(time):
            raise DataError(f"the time {time} is not finite; drop the row.")
        if self._count == 0:
            return 0
        elapsed = time - self._last_time
        if elapsed <= 0:
            raise DataError(
                f"the time {time} is not after the newest row's {self._last_time}; rows must come "
                "in order and once: drop the row."
            )
        return max(0, round(min(elapsed / self.spec.step, 1e9)) - 1)

    def _back(self, k: int) -> float:
        """The value k rows before the newest."""
        return float(self._ring[(self._head - 1 - k) % len(self._ring)])

    def features(self, time: float) -> FloatArray:
        """x of the row that will come at `time`.

        Returns:
            (1, X), raw units; a buffer that the next call overwrites.

        Raises:
            DataError: Not ready, or the time is not after the newest row's.
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
        """y of a row with this value: (1, 1), raw units; a buffer that the next call overwrites."""
        self._y[0, 0] = value - self.last_value
        return self._y

    def to_value(self, mean: float) -> float:
        """The predicted value for a predicted mean of y."""
        return self.last_value + float(mean)

    def push(self, time: float, value: float) -> None:
        """Make the row history. Nothing changes if it is refused.

        Raises:
            DataError: Not finite, or the time is not after the newest row's.
        """
        if not math.isfinite(value):
            raise DataError(f"the value {value} is not finite; drop the row.")
        missing = self.n_missing(time)
        last = self.last_value
        for k in range(max(0, missing - len(self._ring)), missing):
            self._append(last + (value - last) * (k + 1) / (missing + 1))
        self._append(value)
        self._last_time = time

    def _append(self, value: float) -> None:
        self._ring[self._head] = value
        self._head = (self._head + 1) % len(self._ring)
        self._count = min(self._count + 1, len(self._ring))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that `load` needs, as copies: to be kept in a snapshot."""
        return {
            "series_ring": self._ring.copy(),
            "series_position": np.array([self._head, self._count], dtype=np.int64),
            "series_last_time": np.array(self._last_time),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `arrays` gave. Nothing changes if it is refused.

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
        self._last_time = float(arrays["series_last_time"])


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """All model points of a stretch of series, in raw units.

    Attributes:
        time: (n,), in units of the clock.
        value: (n,), what came.
        last: (n,), the value before: the prediction is last + mean of y.
        x: (n, X).
        y: (n, 1).
    """

    time: FloatArray
    value: FloatArray
    last: FloatArray
    x: FloatArray
    y: FloatArray


def series_points(spec: SeriesSpec, times: Numbers, values: Numbers) -> SeriesPoints:
    """The points that a SeriesFeatures gives along the rows; the first `spec.n_rows` give none.

    Args:
        spec: Which features.
        times: (n,).
        values: (n,).

    Raises:
        DataError: Rows out of order, not finite, or too few for one point.
    """
    if len(times) <= spec.n_rows:
        raise DataError(
            f"the series has {len(times)} rows; its features need {spec.n_rows} before the first "
            "point. Give a longer series or a shorter season."
        )
    features = SeriesFeatures(spec)
    kept: list[tuple[float, float, float]] = []
    x: list[FloatArray] = []
    for time, value in zip(times.tolist(), values.tolist(), strict=True):
        if features.ready:
            x.append(features.features(time)[0].copy())
            kept.append((time, value, features.last_value))
        features.push(time, value)
    time_, value_, last = np.array(kept).T
    return SeriesPoints(time_, value_, last, np.array(x), (value_ - last)[:, None])


def scaling(x: Numbers, y: Numbers) -> dict[str, list[float]]:
    """Shift and scale of x (n, X) and y (n, Y) for a task's description: (raw - shift) / scale.

    A constant column has scale 1.
    """

    def scale(columns: Numbers) -> list[float]:
        std = columns.std(axis=0)
        return [float(s) if s > 0 else 1.0 for s in std]

    return {
        "x_shift": x.mean(axis=0).tolist(),
        "x_scale": scale(x),
        "y_shift": y.mean(axis=0).tolist(),
        "y_scale": scale(y),
    }
