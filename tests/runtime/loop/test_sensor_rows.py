"""Rows of sensors in a loop, whose model is counted steps: gaps, refused steps, notes, tallies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, SnapshotError, StepRefusedError
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.loop.streams import SensorStream
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.sensors.score_counts import ScoreCounts
from edgefold.runtime.stream.named_states import NamedStates

KIND = SensorForecast(longest_season=48)


class CountingStream:
    """Forecasts each slot as 10, between 5 and 15; refuses steps whose value is 666."""

    def __init__(self) -> None:
        self.manifest = SimpleNamespace(
            prediction=KIND, is_filter=True, state=(), bundle_hash="", takes_seed=False
        )
        self.rows: list[list[float]] = []
        self.slots: dict[int, list[list[float]]] = {}

    @property
    def n_points(self) -> int:
        return len(self.rows)

    def step_with(self, x: Array, prepare: Callable[[Prediction], None]) -> None:
        assert x.shape == (1, 4)
        if x[0, 0] == 666:
            raise StepRefusedError("666")
        tensors = {t.name: np.full((1, *t.shape), 10.0) for t in KIND.tensors(1)}
        tensors["quantiles"] = np.array([[5.0, 6, 8, 10, 12, 14, 15]])
        seen = len(self.rows) > 4 and x[0, 1] > 0
        tensors["log_density"][:], tensors["p_value"][:] = (-2.5, 0.25) if seen else (0.0, 1.0)
        prepare(Prediction(tensors))
        self.rows.append(x[0].tolist())

    def take(self, slots: Any, index: int) -> None:
        self.slots[index] = [*self.rows]

    def put(self, slots: Any, index: int) -> None:
        self.rows = [*self.slots[index]]


def sensor_of(stream: Any) -> tuple[SensorStream, SensorRows]:
    adapter = SensorRows(SeriesColumns(), KIND)
    return SensorStream(NamedStates(stream, 1, ""), adapter, KIND), adapter


def row(time: float, value: float) -> Row:
    return Row(int(time) + 2, (time, value), (str(time), str(value)))


def test_a_gap_is_stepped_through_and_the_row_is_scored_once() -> None:
    stream = CountingStream()
    sensor, adapter = sensor_of(stream)
    for n in [0, 1, 2, 3, 4, 5, 9]:
        fields = sensor.process(row(n, 12.0))
    assert [x[1] for x in stream.rows] == [1] * 6 + [0, 0, 0, 1]
    assert ",".join(fields).startswith("9,12.0,10,5,6,8,10,12,14,15,-2.5,0.25,0")
    assert sensor.counters.rows == 7 and sensor.counters.predicted == 2
    tally = adapter.engine.scores
    assert (tally.n_gaps, tally.n_missing, tally.n_forecast) == (1, 3, 2)
    assert (tally.coverage_90, tally.mean_error, tally.mean_change) == (1.0, 2.0, 0.0)


def test_where_the_model_refuses_a_row_the_slots_before_it_are_not_stepped_twice() -> None:
    stream = CountingStream()
    sensor, _ = sensor_of(stream)
    for n in range(6):
        sensor.process(row(n, 1.0))
    with pytest.raises(StepRefusedError):
        sensor.process(row(9, 666.0))
    sensor.process(row(9, 1.0))
    assert [x[1] for x in stream.rows] == [1] * 6 + [0, 0, 0, 1]


def test_a_row_that_is_refused_takes_no_step() -> None:
    stream = CountingStream()
    sensor, adapter = sensor_of(stream)
    for n in range(6):
        sensor.process(row(n, 1.0))
    before = {name: array.tobytes() for name, array in adapter.arrays().items()}
    with pytest.raises(DataError):
        sensor.process(row(5, 1.0))
    assert len(stream.rows) == 6
    assert {name: array.tobytes() for name, array in adapter.arrays().items()} == before


def test_a_row_without_forecast_leaves_its_fields_empty() -> None:
    fields = sensor_of(CountingStream())[0].process(row(0, 1.5))
    assert ",".join(fields) == "0,1.5" + "," * 11 + "0,"


def test_a_restored_adapter_has_the_same_arrays() -> None:
    sensor, adapter = sensor_of(CountingStream())
    for n in [*range(20), 25, 27]:
        sensor.process(row(n, float(n % 5)))
    _, other = sensor_of(CountingStream())
    other.load(adapter.arrays())
    kept: Mapping[str, Array] = adapter.arrays()
    assert {n: a.tobytes() for n, a in other.arrays().items()} == {
        n: a.tobytes() for n, a in kept.items()
    }
    with pytest.raises(SnapshotError):
        other.load({name: array for name, array in kept.items() if name != "tally"})


def test_a_damaged_tally_is_refused() -> None:
    array = ScoreCounts().to_array()
    array[0] = -1
    with pytest.raises(SnapshotError):
        ScoreCounts.from_array(array)


def test_sensors_of_one_input_read_it_alike(tmp_path: Path) -> None:
    first, other = sensor_of(CountingStream())[1], sensor_of(CountingStream())[1]
    other.share_columns(first)
    first.require_dates()
    assert other.is_dated and other.columns is first.columns
