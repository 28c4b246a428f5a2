"""What a loop writes of a row of the general model of sensors: its forecast, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import band_names, is_scored
from edgefold.runtime.stream.stream import Stream


class SensorOutput:
    """Writes the forecast of a row as text, or empty fields, and whether the row is an alarm.

    It has the attributes of `edgefold.runtime.loop.output_columns.OutputColumns`, and counts in the
    adapter's tally.

    Args:
        stream: Runs the model.
        kind: The bundle's prediction.
        adapter: The adapter of the sensor.
    """

    has_errors = has_band = False
    n_errors = 0

    def __init__(self, stream: Stream, kind: SensorForecast, adapter: SensorRows):
        self._stream = stream
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
        if value != value:
            if self._knows_enough(counters.rows - counters.missing):
                band = (values["mean"], *quantiles)
                text = ",".join([f"{number:.9g}" for number in band]) + ",,,"
            counters.missing += 1
            return f"{text}0,"
        if is_scored(log_density, p_value):
            counters.predicted += 1
            tally.forecast(value, *(quantiles[place] for place in self._places))
            numbers = (values["mean"], *quantiles, log_density, p_value)
            text = ",".join([f"{number:.9g}" for number in numbers]) + ","
        verdict = adapter.judge(value, p_value, quantiles, log_density)
        counters.anomalies += verdict.alarm
        tally.row(value, adapter.feed.n_missing, verdict.alarm)
        return f"{text}{verdict.alarm:d},{verdict.event}"

    def _knows_enough(self, n_values: int) -> bool:
        """Whether the model has seen enough to forecast a row that has no value."""
        from edgefold.runtime.sensors.forecasts import FIRST_SLOTS, FIRST_VALUES

        return self._stream.n_points > FIRST_SLOTS and n_values >= FIRST_VALUES


def _nearest(levels: Sequence[float], level: float) -> int:
    return min(range(len(levels)), key=lambda place: abs(levels[place] - level))
