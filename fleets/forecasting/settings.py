"""Say what is forecast of a lake, and by which model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgefold.fleets.tables.lake import Lake
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.sensors.forecasts import BAND
from edgefold.runtime.sensors.sensors import Sensors

RESERVED = {
    *("column", "time", "value", *BAND, "log_density", "p_value", "alarm", "event"),
    *("made_at", "slots_ahead", "horizon", "begin", "alarmed", "end", "rows", "size", "n"),
}
"""Names of columns of the results, which no column of sensors' names can have."""


@dataclass(frozen=True, slots=True)
class LakeChoice:
    """Says which columns of a lake are read.

    Attributes:
        by: The columns that name the sensor of each row; none if all rows are of one sensor.
        time: The column of times; "" if rows only count.
        values: The columns of values; each is a sensor of its own.
    """

    by: tuple[str, ...]
    time: str
    values: tuple[str, ...]

    @property
    def names_columns(self) -> bool:
        """Return whether the column of the values is a part of a sensor's name."""
        return len(self.values) > 1

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that name a sensor in the results."""
        return (*self.by, "column") if self.names_columns else self.by

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that are read."""
        return (*self.by, *filter(None, [self.time]), *self.values)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Says how each process opens the model.

    Attributes:
        bundle: The bundle's folder; None for the model that is shipped.
        backend: The name of the backend.
        false_alarms: The share of sound rows that may be alarms.
        cache: The folder of compiled libraries; None for the default.
    """

    bundle: str | None = None
    backend: str = "auto"
    false_alarms: float = 1e-4
    cache: Path | None = None

    def open(self) -> Sensors:
        """Open the model; raise the errors of `Sensors.open`."""
        engine = EngineOptions(self.cache)
        return Sensors.open(self.bundle, self.backend, self.false_alarms, engine=engine)


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """Says all that decides on the results of a forecast of a lake.

    Attributes:
        lake: The lake.
        choice: Its columns.
        model: The model.
        with_ahead: Whether the forecasts of later rows are written.
        with_scores: Whether the forecasts of later rows are scored.
        n_skipped: The number of each sensor's first rows that are not scored.
    """

    lake: Lake
    choice: LakeChoice
    model: ModelChoice
    with_ahead: bool = False
    with_scores: bool = False
    n_skipped: int = 0
