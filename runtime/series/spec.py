"""Describe the features of a series, and choose them for a new series.

The features themselves are computed by `edgefold.runtime.series.features`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import Clock

DAY_S = 86400.0
YEAR_S = 365.2425 * DAY_S
SEASONS_S = {"day": DAY_S, "week": 7 * DAY_S, "year": YEAR_S}
LEVEL_ROWS = 32
"""The number of last rows whose mean is the level of a series without a season."""
MOST_ROWS = 4_000_000
"""The features must read fewer rows of history than this: 64 MB in two histories, and more than a
week of seconds or seven years of minutes."""


FAR = 50.0
"""The distance from the median beyond which a few values count as outliers, in multiples of the
distance within which 98 % of all values lie."""


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """Describes which features are computed of a series; they are the columns of a model's x.

    Attributes:
        clock: The kind of times: `date` for seconds since 1970-01-01, `number` for the user's unit.
        step: The usual time between two rows, in units of the clock.
        season: The period of the season in units of the clock; None for a series without one.
        lags: The number of last changes, from one value to the next, that are features.
        season_lags: The number of changes of one season ago that are features: the one that ends
            one season before the forecast row, then those of the steps after it.
        harmonics: The number of pairs of sine and cosine of the season's phase.
        level: Whether the distance of the last value from its level is a feature. The level is the
            value one season ago, or without a season the mean of the last 32 rows.
        limit: The largest size of a change or a level; larger ones are clipped, so that x is
            bounded whatever comes. None clips nothing.
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
        self._require_types()
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
        if max(self.lags, (self.season or 0) / self.step) >= MOST_ROWS:
            raise DataError(
                f"lags is {self.lags}, and the season {self.season} at a step of {self.step}; "
                f"features read fewer than {MOST_ROWS:,} rows of history. Choose a shorter season "
                "or fewer lags."
            )
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

    def _require_types(self) -> None:
        """Raise TypeError for settings of a wrong type, since a manifest may hold anything."""
        counts = (self.lags, self.season_lags, self.harmonics)
        times = (self.step, self.season or 0.0, self.limit or 0.0)
        if not all(type(n) is int for n in counts) or not isinstance(self.level, bool):
            raise TypeError(f"lags and harmonics are {counts} and level is {self.level!r}")
        if not all(isinstance(time, (int, float)) for time in times):
            raise TypeError(f"step, season and limit are {times}")

    @property
    def season_rows(self) -> int:
        """Return the number of rows in one season, rounded; 0 without a season."""
        return 0 if self.season is None else round(self.season / self.step)

    @property
    def n_rows(self) -> int:
        """Return how many of the last rows the features read; so many are kept."""
        level_rows = LEVEL_ROWS if self.level and self.season is None else 0
        return max(self.lags + 1, self.season_rows + 1, level_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns of x, in their order."""
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
        """Return the number of columns of x."""
        seasonal = 0 if self.season is None else self.season_lags + 2 * self.harmonics
        return self.lags + seasonal + self.level

    def to_json(self) -> dict[str, Any]:
        """Return the settings by name as JSON values, for the description of a trained task."""
        return asdict(self)

    @classmethod
    def from_json(cls, spec: Mapping[str, Any]) -> SeriesSpec:
        """Rebuild the specification from what `to_json` returned.

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
        except (TypeError, OverflowError) as error:
            raise DataError(f"the series specification is damaged ({error}).") from error

    @classmethod
    def of_series(
        cls,
        times: FloatArray,
        values: FloatArray,
        clock: Clock,
        season: float | str | None = "auto",
        lags: int = 6,
        harmonics: int = 3,
        level: bool | None = None,
    ) -> SeriesSpec:
        """Choose the features for a series; its training part gives the step and the limit.

        Args:
            times: The times of the training part, (n,), increasing, in units of the clock.
            values: The values of the training part, (n,).
            clock: Whether the times are dates or numbers.
            season: `auto`, `none`, `day`, `week`, `year` or a period in units of the clock. `auto`
                is a year for dated rows 1 to 120 days apart, a day for dated rows up to 6 hours
                apart, and none for all others and for fewer than 3 seasons of rows.
            lags: The number of last changes, from one value to the next, that are features.
            harmonics: The number of pairs of sine and cosine of the season's phase; fewer are taken
                if the season has too few rows for them.
            level: Whether the distance of the last value from its level (the value one season ago,
                or the mean of the last 32 rows) is a feature. None: only without a season.

        Raises:
            DataError: There are fewer than 3 rows, or a setting is impossible.
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
        limit = 8 * max(float(np.std(without_outliers(m))) if len(m) else 0.0 for m in moved)
        return cls(
            clock=clock,
            step=step,
            season=period,
            lags=lags,
            harmonics=min(harmonics, rows // 2),
            level=level,
            limit=limit or None,
        )


def without_outliers(values: FloatArray) -> FloatArray:
    """Return values (n,) with the few that are absurdly far from the others clipped.

    A value is clipped if it lies further from the median than 99.5 % of all values, and further
    than 50 times (`FAR`) the distance from the median within which 98 % of them lie. All other
    values stay as they are.
    """
    middle = np.median(values)
    away = np.abs(values - middle)
    usual, rare = np.quantile(away, [0.98, 0.995])
    bound = max(FAR * usual, rare)
    if not usual > 0 or not away.max() > bound:
        return values
    return np.clip(values, middle - bound, middle + bound)


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
