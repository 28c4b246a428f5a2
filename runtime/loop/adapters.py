"""Convert rows of a file to model points, as the bundle's task needs them.

Lines are read in `edgefold.runtime.rows.csv_reader`; `edgefold.runtime.loop.loop` runs the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.arrival import NO_OUTPUTS, Arrival, RowAdapter
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.predictions import Categorical, NextEvent, SensorForecast
from edgefold.runtime.rows.csv_columns import PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.event_columns import EventColumns
from edgefold.runtime.rows.row_format import RowFormat, kept_columns, kept_format
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import SeriesSpec

if TYPE_CHECKING:
    from edgefold.runtime.rows.detect.columns import TableColumns

MAX_CHANGE = 1e6
"""A value of a series that differs by more than this from the last one, in scaled units, is a jump.

A jump is refused until a second row agrees with it.
"""
LONGEST = 1e6
"""A longer time between two events, in scaled units, counts as a time of this length."""


class SeriesRows(RowAdapter):
    """Converts rows (time, value) of a series to points.

    The inputs of a point are features, such as the last change, computed from the rows before it.

    Args:
        features: Computes the features, and holds the last rows.
        columns: The columns of times and values.
    """

    def __init__(self, features: SeriesFeatures, columns: SeriesColumns):
        super().__init__(columns, 1)
        self._features = features

    @property
    def is_dated(self) -> bool:
        return self._features.spec.clock == "date"

    @property
    def newest_time(self) -> float:
        return self._features.last_time

    @property
    def pace_is_known(self) -> bool:
        return self._features.pace_is_known

    def take(self, row: Row) -> Arrival:
        features, (time, value) = self._features, row.numbers
        features.admit(time, value)
        commit = partial(features.push, time, value)
        if not (features.ready and features.pace_is_known):
            return Arrival(None, NO_OUTPUTS, commit=commit)
        return Arrival(features.features(time), features.target(value), (value,), commit)

    def to_values(self, y: FloatArray) -> FloatArray:
        return self._features.last_value + y

    def arrays(self) -> dict[str, Array]:
        return self._features.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        self._features.load(arrays)


class EventRows(RowAdapter):
    """Converts rows (time, mark) to events (gap, mark).

    A mark is the kind of an event, a gap the time since the event before; so the first row gives no
    event.

    Args:
        columns: The columns of times and marks.
        marks: Names of all marks.
        longest: The longest gap that the model gets, in the unit of the times; a longer one is cut.
    """

    def __init__(self, columns: EventColumns, marks: Sequence[str], longest: float):
        super().__init__(columns, 2)
        self.words = {"next_mark": marks}
        self._is_dated, self._longest = columns.clock == "date", longest
        self._last = math.nan

    @property
    def is_dated(self) -> bool:
        return self._is_dated

    def take(self, row: Row) -> Arrival:
        time, mark = row.numbers
        commit = partial(self._keep_time, time)
        if math.isnan(self._last):
            return Arrival(None, NO_OUTPUTS, commit=commit)
        if time < self._last:
            raise DataError(
                f"the time {row.texts[0]} lies {self._last - time:g}{' s' * self._is_dated} before "
                "that of the event before; events must come in order"
            )
        gap = min(time - self._last, self._longest)
        return Arrival(np.array([[gap, mark]]), NO_OUTPUTS, commit=commit)

    def _keep_time(self, time: float) -> None:
        self._last = time

    def arrays(self) -> dict[str, Array]:
        return {"last_time": np.array([self._last])}

    def load(self, arrays: Mapping[str, Array]) -> None:
        self._last = float(arrays["last_time"].item())


def adapter_for(
    manifest: Manifest,
    time: str | None = None,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    format: Mapping[str, Any] | None = None,
    mark: str | None = None,
    table: TableColumns | None = None,
) -> RowAdapter:
    """Make the adapter that converts rows to points of this bundle.

    A column without a name here has its name in training, if the bundle's task keeps the names and
    the input has them, else its default name.

    Args:
        manifest: The bundle's manifest.
        time: Name of the column of times, for series, sensors and events; None means "time".
        value: Name of the column of values, for series and sensors; None means "value".
        columns: Names of the X + Y columns of points; None means x1..xX,y1..yY.
        format: Settings of `RowFormat` by name, which replace those that the task keeps.
        mark: Name of the column of marks, for events; None means "mark".
        table: The columns of sensors' rows that were found in the input's first lines; they replace
            `time`, `value` and `format`.

    Raises:
        DataError: The bundle has several streams, or columns are named that its rows do not have,
            or a form of dates is given for a bundle whose times are numbers.
    """
    if manifest.n_streams != 1:
        raise DataError(
            f"{manifest.path} was exported with --streams {manifest.n_streams}: it takes one row "
            "of each sensor at the same moment, which only Python can give. Export it again with "
            "--streams 1; `edgefold run --streams N` then serves N sensors with it."
        )
    written = kept_format(manifest.task, format or {})
    if manifest.task.get("rows") == "events":
        if columns or value:
            raise DataError(
                f"the rows of {manifest.path} are events, time,mark; name them with --time and "
                f"--mark instead of --{'columns' if columns else 'value'}."
            )
        return _event_rows(manifest, time, mark, written)
    if mark:
        raise DataError(f"the rows of {manifest.path} are no events; leave --mark out.")
    if isinstance(manifest.prediction, SensorForecast):
        if columns:
            raise DataError(
                f"the rows of {manifest.path} are of sensors, time,value; name them with --time "
                "and --value instead of --columns."
            )
        wanted = SeriesColumns(time, value, format=written) if table is None else table
        return SensorRows(wanted, manifest.prediction)
    if manifest.task.get("name") == "series":
        spec = manifest.task.get("features")
        if not isinstance(spec, dict):
            raise DataError(
                f"the task of {manifest.path} names no features; train and export it again."
            )
        if columns:
            raise DataError(
                f"{manifest.path} is a series: its rows are time,value; name them with --time and "
                "--value instead of --columns."
            )
        features = SeriesFeatures(
            SeriesSpec.from_json(spec), MAX_CHANGE * manifest.scaling_y.scale[0]
        )
        clock = features.spec.clock
        if clock == "number" and written.time_format:
            raise DataError(
                f"{manifest.path} was trained with times that are numbers; leave --time-format out."
            )
        names = kept_columns(manifest.task)
        return SeriesRows(features, SeriesColumns(time, value, clock, written, names))
    n_outputs = 0 if manifest.is_filter else manifest.n_outputs
    points = PointColumns(manifest.n_inputs, n_outputs, columns, written)
    if time or value:
        raise DataError(
            f"{manifest.path} is not a series bundle: its rows are {points.wish}; give --columns "
            "instead of --time and --value."
        )
    adapter = RowAdapter(points, manifest.n_inputs)
    kind, classes = manifest.prediction, manifest.task.get("classes")
    listed = [str(name) for name in classes] if isinstance(classes, list) else []
    if isinstance(kind, Categorical) and len(listed) == kind.n_classes:
        adapter.words = {"class": listed}
    return adapter


def _event_rows(
    manifest: Manifest, time: str | None, mark: str | None, format: RowFormat
) -> EventRows:
    marks, clock = manifest.task.get("marks"), manifest.task.get("clock", "number")
    if (
        not isinstance(marks, list)
        or not all(isinstance(name, str) for name in marks)
        or clock not in ("date", "number")
        or not isinstance(manifest.prediction, NextEvent)
        or manifest.prediction.n_marks != len(marks)
    ):
        raise DataError(
            f"the task of {manifest.path} does not name the marks of its events; train and export "
            "it again."
        )
    if clock == "number" and format.time_format:
        raise DataError(
            f"{manifest.path} was trained with times that are numbers; leave --time-format out."
        )
    columns = EventColumns(time, mark, clock, format, kept_columns(manifest.task), marks)
    return EventRows(columns, marks, LONGEST * manifest.scaling_x.scale[0])
