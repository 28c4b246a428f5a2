"""What a loop writes of a row of the general model of sensors: its forecast, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import band_names, is_scored


class SensorOutput:
    """Writes the forecast of a row as text, or empty fields, and whether the row is an alarm.

    It has the attributes of `edgefold.runtime.loop.output_columns.OutputColumns`, and counts in the
    adapter's tally.

    Args:
        kind: The bundle's prediction.
        adapter: Of the sensor.
    """

    has_errors = has_band = False
    n_errors = 0

    def __init__(self, kind: SensorForecast, adapter: SensorRows):
        self.names = [*band_names(kind.levels), "log_density", "p_value", "alarm", "event"]
        self._adapter = adapter
        self._places = [_nearest(kind.levels, level) for level in (0.05, 0.5, 0.95)]
        self._no_forecast = "," * (len(self.names) - 2)

    @property
    def empty(self) -> str:
        """The fields of a row that the model did not see."""
        return "," * (len(self.names) - 1)

    def values(self, prediction: Prediction) -> Mapping[str, Any]:
        """Copy what is written, before the next step overwrites it."""
        tensors = prediction.tensors
        return {
            "mean": tensors["mean"].item(),
            "quantiles": tensors["quantiles"].ravel().tolist(),
            "log_density": tensors["log_density"].item(),
            "p_value": tensors["p_value"].item(),
        }

    def fields(self, values: Mapping[str, Any], y: Sequence[float], counters: Counters) -> str:
        """Write the fields of a row, judge and count it; y is its value."""
        adapter, (value,) = self._adapter, y
        quantiles, p_value, log_density = (
            values[name] for name in ("quantiles", "p_value", "log_density")
        )
        tally = adapter.tally
        text = self._no_forecast
        if is_scored(log_density, p_value):
            counters.predicted += 1
            tally.forecast(value, *(quantiles[place] for place in self._places))
            numbers = (values["mean"], *quantiles, log_density, p_value)
            text = ",".join([f"{number:.9g}" for number in numbers]) + ","
        verdict = adapter.judge(value, p_value, quantiles, log_density)
        counters.anomalies += verdict.alarm
        tally.row(value, adapter.feed.n_missing, verdict.alarm)
        return f"{text}{verdict.alarm:d},{verdict.event}"


def _nearest(levels: Sequence[float], level: float) -> int:
    return min(range(len(levels)), key=lambda place: abs(levels[place] - level))
