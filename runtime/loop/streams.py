"""Keep each sensor of a loop: its history, its state and its counts.

    one sensor      its state is the state of the stream
    several         each has its own state in memory (a slot); before a row is processed, the
                    stream gets the state of the row's sensor
                    (`edgefold.runtime.stream.named_states`)

A sensor gets its name with its first row. A fault of one sensor leaves the others as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from edgefold.runtime.arrays import Array
from edgefold.runtime.loop.alarm import Alarm
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.output_columns import OutputColumns
from edgefold.runtime.loop.sensor_rows import SensorColumns, SensorRows
from edgefold.runtime.loop.watcher import ANOMALY, RowView
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.sensors.engine import ScoredRow
from edgefold.runtime.sensors.warm.kept_starts import restored_starts, warm_arrays
from edgefold.runtime.stream.named_states import NamedStates
from edgefold.runtime.stream.provenance import MOST_ROWS, Piece
from edgefold.runtime.stream.stream import Stream

LIMIT = "the loop has {n} sensors already ({names}); fix the name, or allow more with --streams"
MOST_NOTES = 100
"""At most this many notes wait to be read; older ones are dropped."""
RECORD_BYTES = 3072
"""A sensor's name of up to 100 characters, which may stand in two lists, and its counts take at
most so many bytes as JSON."""


class LoopStream(ABC):
    """Predicts and learns the rows of one sensor of a loop.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter, which converts its rows.
        columns: The columns in which the output shows a prediction.

    Attributes:
        name: The sensor's name in the input; "" before its first row, and for a single sensor.
        alarm: The alarm of the last row, or None.
        event: The name of what happened to the sensor at the last row; "" for nothing.
        counters: The sensor's counts since the loop's first start.
    """

    def __init__(
        self, states: NamedStates, adapter: RowAdapter, columns: OutputColumns | SensorColumns
    ):
        self._states, self.adapter, self.columns = states, adapter, columns
        self.name = ""
        self.alarm: Alarm | None = None
        self.event = ""
        self.counters = Counters(squared_error=[0.0] * columns.n_errors)

    def process(self, row: Row) -> list[str]:
        """Predict a row, then update the model with it.

        The stream must hold this sensor's state; see `LoopStreams.turn_to`.

        Returns:
            The fields that the output shows for the row and its prediction.

        Raises:
            DataError, ValueRefusedError, StepRefusedError: The row is refused; nothing changed.
        """
        fields = self._answer(row)
        self.counters.rows += 1
        self.counters.refused_in_a_row = 0
        return [*quoted(row.texts), fields]

    @abstractmethod
    def _answer(self, row: Row) -> str:
        """Predict a row and learn it; return the prediction's fields with commas between them."""

    @abstractmethod
    def view(self) -> RowView:
        """Return the last processed row with its forecast, for those who watch the loop."""


class PointStream(LoopStream):
    """Serves one sensor with any model but the general one, for which there is `SensorStream`.

    A learning model is queried, then updated with the same row; a filter makes one step.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter, which converts its rows.
        anomaly_z: The limit of anomalies in standard deviations; see `OutputColumns`.
    """

    def __init__(self, states: NamedStates, adapter: RowAdapter, anomaly_z: float):
        self._output = OutputColumns(states.stream.manifest, adapter, anomaly_z)
        super().__init__(states, adapter, self._output)
        self._seen: tuple[Mapping[str, Any], Sequence[float]] = ({}, ())  # prediction, values

    def _answer(self, row: Row) -> str:
        self._seen, self.event = ({}, ()), ""
        arrival, stream, columns = self.adapter.take(row), self._states.stream, self._output
        if arrival.x is None:  # too little history
            arrival.commit()
            return columns.empty
        if stream.manifest.is_filter:
            prediction = stream.step(arrival.x)
        else:
            prediction = stream.query(arrival.x)
            if stream.room == 0:
                self.counters.not_learned += 1
            else:
                stream.update(arrival.x, arrival.y)
        values = columns.values(prediction)
        arrival.commit()
        score = columns.score(values, arrival.values)
        self.counters.add(score)
        self._seen, self.event = (values, arrival.values), ANOMALY * score.is_anomaly
        return columns.text(values, score)

    def view(self) -> RowView:
        return self._output.view(*self._seen)


class SensorStream(LoopStream):
    """Serves one sensor with the general model, which needs no training.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter, whose engine predicts and learns the rows.
        kind: The bundle's kind of prediction.
    """

    def __init__(self, states: NamedStates, adapter: SensorRows, kind: SensorForecast):
        self._rows, self._output = adapter, SensorColumns(kind)
        super().__init__(states, adapter, self._output)
        self._scored: ScoredRow | None = None

    def _answer(self, row: Row) -> str:
        counters = self.counters
        scored = self._rows.score(self._states, self.name, row, counters.rows - counters.missing)
        counters.missing += scored.value != scored.value
        counters.predicted += scored.is_scored
        counters.anomalies += scored.alarm
        self.alarm, self.event = None, scored.event
        if scored.alarm:
            time, text = row.texts
            self.alarm = Alarm(
                self.name, scored.event, time, text, scored.value, scored.n_since, scored.size
            )
        self._scored = scored
        return self._output.text(scored)

    def view(self) -> RowView:
        assert self._scored is not None
        return self._output.view(self._scored)


def _stream_of(states: NamedStates, adapter: RowAdapter, anomaly_z: float) -> LoopStream:
    kind = states.stream.manifest.prediction
    if isinstance(kind, SensorForecast) and isinstance(adapter, SensorRows):
        return SensorStream(states, adapter, kind)
    return PointStream(states, adapter, anomaly_z)


@dataclass(slots=True)
class _StatedRows:
    """Holds up to where the rows of the input are stated.

    Attributes:
        n_sensors: The number of sensors that may come.
        source: The name of their source; "" before the first statement.
        row: The number of the next row that is not stated.
        n_lines: The number of lines of the input before that row.
        column: The name of the column by which the rows of the sensors are told apart.
        n_points: The number of points that the state of each sensor had then.
    """

    n_sensors: InitVar[int]
    source: str = ""
    row: int = 0
    n_lines: int = 0
    column: str = ""
    n_points: list[int] = field(init=False)

    def __post_init__(self, n_sensors: int) -> None:
        self.n_points = [0] * n_sensors


class LoopStreams:
    """Holds all sensors of a loop, and finds them by name.

    Args:
        stream: The open stream, which has received no points.
        adapters: One adapter for each sensor that may come.
        anomaly_z: The limit of anomalies in standard deviations; see `OutputColumns`.
        are_named: Whether each row names its sensor, so that there may be several.

    Attributes:
        are_named: Whether each row names its sensor, so that there may be several.
        all: The sensors that have come, in the order of their first rows, then those that may still
            come.
        alarms: Alarms of the last rows; as with notes, whoever reads one removes it.
        notes: Remarks of adapters on rows, such as a new season, as (line number, sensor's name,
            sentence). Whoever reads a remark removes it.
    """

    def __init__(
        self, stream: Stream, adapters: Sequence[RowAdapter], anomaly_z: float, are_named: bool
    ):
        self.are_named = are_named
        self._states = NamedStates(stream, len(adapters), LIMIT, are_reserved=are_named)
        self.all = [_stream_of(self._states, adapter, anomaly_z) for adapter in adapters]
        self._rows = _StatedRows(len(adapters))
        self.notes: deque[tuple[int, str, str]] = deque(maxlen=MOST_NOTES)
        self.alarms: deque[Alarm] = deque(maxlen=MOST_NOTES)

    @property
    def stream(self) -> Stream:
        """Return the stream whose bundle predicts all sensors."""
        return self._states.stream

    @property
    def header(self) -> str:
        """Return the first line of the output, with the names of all columns."""
        adapter, columns = self.first.adapter, self.first.columns
        head = [*["line"] * adapter.has_line, *[adapter.stream] * self.are_named]
        return f"{','.join([*head, *adapter.header, *columns.names])}\n"

    def written(self, row: Row, sensor: LoopStream, fields: Sequence[str]) -> str:
        """Return the line of the output for a row, and add the adapter's notes on it to `notes`.

        Args:
            row: The row.
            sensor: The row's sensor.
            fields: The fields that `LoopStream.process` returned for the row.
        """
        for note in sensor.adapter.notes:
            self.notes.append((row.line, sensor.name, note))
        if sensor.alarm:
            self.alarms.append(sensor.alarm)
        head = [*[str(row.line)] * sensor.adapter.has_line]
        if self.are_named:
            head += quoted([sensor.name])
        return ",".join([*head, *fields]) + "\n"

    @property
    def first(self) -> LoopStream:
        """Return the first sensor, or the only one."""
        return self.all[0]

    @property
    def named(self) -> list[LoopStream]:
        """Return the sensors that have come, in the order of their first rows.

        The list is empty where rows do not name their sensor.
        """
        return self.all[: self._states.n] if self.are_named else []

    @property
    def newest_times(self) -> dict[str, float]:
        """Return the time of each sensor's newest row; NaN for rows without times."""
        return {s.name: s.adapter.newest_time for s in (self.named or [self.first])}

    def find(self, name: str) -> LoopStream | None:
        """Return the sensor of this name, or None if it has not come yet.

        Where rows do not name their sensor, the only sensor is returned for every name.
        """
        if not self.are_named:
            return self.first
        number = self._states.number_of(name)
        return None if number is None else self.all[number]

    def turn_to(self, name: str) -> LoopStream:
        """Give the stream the state of the sensor `name`; a new sensor gets free memory, a slot.

        Returns:
            The sensor.

        Raises:
            DataError: The sensor is new, and no slot is free.
            BackendError: The states could not be exchanged; the stream keeps the one that it has.
        """
        sensor = self.all[self._states.turn_to(name)]
        sensor.name = name
        return sensor

    def begin_rows(self, source: str, row: int, n_lines: int, column: str) -> None:
        """State from now on which rows of the input the states learn.

        Args:
            source: The name of the source of the rows.
            row: The number of the next row of the source, from 0 on.
            n_lines: The number of lines of the input before that row.
            column: The name of the column by which the rows of the sensors are told apart.

        Raises:
            OverlapError: A sensor's state has learned that row, or a later one.
        """
        rows = self._rows
        rows.source, rows.row, rows.n_lines, rows.column = source, row, n_lines, column
        for number in range(self._n_states):
            rows.n_points[number] = self._states.n_points_of(number)
            self._states.provenance_of(number).add(self._piece(number, MOST_ROWS - 1, 0))

    def state_rows(self, n_lines: int) -> int | None:
        """State the rows that came since the last call; return the number of the next row.

        None is returned without `begin_rows`.

        Args:
            n_lines: The number of lines of the input up to now.
        """
        rows = self._rows
        if not rows.source:
            return None
        learned = [self._states.n_points_of(i) - rows.n_points[i] for i in range(self._n_states)]
        # Several rows of a message have one number, and a snapshot may stand between them.
        stop = rows.row + max(n_lines - rows.n_lines, *learned, 0)
        for number, n_points in enumerate(learned):
            self._states.learned(number, self._piece(number, stop, n_points))
            rows.n_points[number] += n_points
        rows.row, rows.n_lines = stop, max(n_lines, rows.n_lines)  # a header may come first
        return stop

    def _piece(self, number: int, stop: int, n_points: int) -> Piece:
        """Return the rows of a sensor from the last stated one to before `stop`."""
        rows = self._rows
        where = ((rows.column, self.all[number].name),) if self.are_named else ()
        return Piece(rows.source, rows.row, stop, n_points, where)

    @property
    def _n_states(self) -> int:
        return self._states.n if self.are_named else 1

    @property
    def most_bytes(self) -> int:
        """Return how many bytes a snapshot needs at most, in addition to the stream's own state.

        It needs them once every sensor has come.
        """
        adapter = self.first.adapter
        own = sum(array.nbytes for array in adapter.arrays().values())
        if isinstance(adapter, SensorRows) and adapter.fleet is not None:
            own += adapter.fleet.n_bytes
        return self._states.n_bytes + len(self.all) * (own + RECORD_BYTES)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays, by name, that a snapshot must keep next to the stream's own state.

        They are the sensors' histories and, where rows name their sensor, the sensors' states.
        """
        warm = warm_arrays([rows.engine.warm for rows in self._sensor_rows()])
        if not self.are_named:
            return {**self.first.adapter.arrays(), **warm}
        return {**self._states.arrays([sensor.adapter for sensor in self.all]), **warm}

    def _sensor_rows(self, n: int | None = None) -> list[SensorRows]:
        """Return the adapters of sensors of the general model; none for other models.

        Args:
            n: The number of first sensors; None for those that have come.
        """
        n = len(self.named or [self.first]) if n is None else n
        adapters = (sensor.adapter for sensor in self.all[:n])
        return [adapter for adapter in adapters if isinstance(adapter, SensorRows)]

    def load(
        self, arrays: Mapping[str, Array], names: Sequence[str], counters: Sequence[Counters]
    ) -> None:
        """Restore all sensors from a snapshot.

        Args:
            arrays: The arrays that `arrays` returned.
            names: Names of the sensors in the order of their first rows; empty where rows do not
                name their sensor.
            counters: The counts of these sensors, in the same order.

        Raises:
            SnapshotError: There are more sensors than this run has memory for, or the arrays do not
                fit.
        """
        if self.are_named:
            self._states.load(arrays, names, [sensor.adapter for sensor in self.all])
        else:
            self.first.adapter.load(arrays)
        rows = self._sensor_rows(len(names or [""]))
        if rows:
            fleet, rate = rows[0].fleet, rows[0].engine.rate
            for one, warm in zip(
                rows, restored_starts(arrays, len(rows), fleet, rate), strict=True
            ):
                one.engine.warm = warm
        for sensor, name, counts in zip(self.all, names or [""], counters, strict=False):
            sensor.name, sensor.counters = name, counts
