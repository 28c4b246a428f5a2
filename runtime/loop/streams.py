"""The sensors of a loop: the history, the state and the counts of each.

    one sensor      its state is the stream's
    several         each has a slot for its state; a row makes its sensor's state the present one
                    (`edgefold.runtime.stream.named_states`)

Sensors get a name with their first row. A fault of one leaves the others as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence

from edgefold.runtime.arrays import Array
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.output_columns import OutputColumns
from edgefold.runtime.loop.sensor_rows import SensorColumns, SensorRows
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.stream.named_states import NamedStates
from edgefold.runtime.stream.stream import Stream

LIMIT = "the loop has {n} streams already ({names}); fix the name, or allow more with --streams"
MOST_NOTES = 100
"""Notes that wait to be read; older ones are dropped."""
RECORD_BYTES = 2048
"""Bytes of a sensor's name, of up to 100 characters, and its counts as JSON."""


class LoopStream(ABC):
    """One sensor of a loop.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter.
        columns: The output's columns of a prediction.

    Attributes:
        name: The name in the input; empty before the first row, and for a single sensor.
        counters: Counts over every restart.
    """

    def __init__(
        self, states: NamedStates, adapter: RowAdapter, columns: OutputColumns | SensorColumns
    ):
        self._states, self.adapter, self.columns = states, adapter, columns
        self.name = ""
        self.counters = Counters(squared_error=[0.0] * columns.n_errors)

    def process(self, row: Row) -> list[str]:
        """Predict a row, then update with it; the sensor's state is the stream's present one.

        Returns:
            The output's fields of the row and its prediction.

        Raises:
            DataError, ValueRefusedError, StepRefusedError: The row is refused; nothing changed.
        """
        fields = self._answer(row)
        self.counters.rows += 1
        self.counters.refused_in_a_row = 0
        return [*quoted(row.texts), fields]

    @abstractmethod
    def _answer(self, row: Row) -> str:
        """Predict a row and learn it; returns the fields of the prediction."""


class PointStream(LoopStream):
    """One sensor of a loop with any model but the general one: it is queried, then updated.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter.
        anomaly_z: See `OutputColumns`.
    """

    def __init__(self, states: NamedStates, adapter: RowAdapter, anomaly_z: float):
        self._output = OutputColumns(states.stream.manifest, adapter, anomaly_z)
        super().__init__(states, adapter, self._output)

    def _answer(self, row: Row) -> str:
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
        return columns.text(values, score)


class SensorStream(LoopStream):
    """One sensor of a loop with the general model, whose rows go through the engine.

    Args:
        states: The states of all sensors.
        adapter: The sensor's own adapter.
        kind: The bundle's prediction.
    """

    def __init__(self, states: NamedStates, adapter: SensorRows, kind: SensorForecast):
        self._rows, self._output = adapter, SensorColumns(kind)
        super().__init__(states, adapter, self._output)

    def _answer(self, row: Row) -> str:
        counters = self.counters
        scored = self._rows.score(self._states, self.name, row, counters.rows - counters.missing)
        counters.missing += scored.value != scored.value
        counters.predicted += scored.is_scored
        counters.anomalies += scored.alarm
        return self._output.text(scored)


def _stream_of(states: NamedStates, adapter: RowAdapter, anomaly_z: float) -> LoopStream:
    kind = states.stream.manifest.prediction
    if isinstance(kind, SensorForecast) and isinstance(adapter, SensorRows):
        return SensorStream(states, adapter, kind)
    return PointStream(states, adapter, anomaly_z)


class LoopStreams:
    """The sensors of a loop, by name.

    Args:
        stream: Opened, and empty.
        adapters: One for each sensor that may come.
        anomaly_z: See `OutputColumns`.
        are_named: Whether rows name their sensor, of which there may be several.

    Attributes:
        are_named: Whether there may be several.
        all: The sensors that have come, and those that may.
        notes: Changes of the sensors by rows: line, sensor's name, sentence. Whoever reads them
            removes them.
    """

    def __init__(
        self, stream: Stream, adapters: Sequence[RowAdapter], anomaly_z: float, are_named: bool
    ):
        self.are_named = are_named
        self._states = NamedStates(stream, len(adapters), LIMIT, are_reserved=are_named)
        self.all = [_stream_of(self._states, adapter, anomaly_z) for adapter in adapters]
        self.notes: deque[tuple[int, str, str]] = deque(maxlen=MOST_NOTES)

    @property
    def header(self) -> str:
        """The first line of the output, which bundle and options decide."""
        adapter, columns = self.first.adapter, self.first.columns
        head = [*["line"] * adapter.has_line, *[adapter.stream] * self.are_named]
        return f"{','.join([*head, *adapter.header, *columns.names])}\n"

    def written(self, row: Row, sensor: LoopStream, fields: Sequence[str]) -> str:
        """Return the output's line of a row of a sensor, and keep the notes on it."""
        for note in sensor.adapter.notes:
            self.notes.append((row.line, sensor.name, note))
        head = [*[str(row.line)] * sensor.adapter.has_line]
        if self.are_named:
            head += quoted([sensor.name])
        return ",".join([*head, *fields]) + "\n"

    @property
    def first(self) -> LoopStream:
        """The first sensor, or the only one."""
        return self.all[0]

    @property
    def named(self) -> list[LoopStream]:
        """The sensors that have come, in the order of their first rows; none without names."""
        return self.all[: self._states.n] if self.are_named else []

    def find(self, name: str) -> LoopStream | None:
        """Return a sensor that has come before; the only one needs no name."""
        if not self.are_named:
            return self.first
        number = self._states.number_of(name)
        return None if number is None else self.all[number]

    def turn_to(self, name: str) -> LoopStream:
        """Make a sensor's state the stream's present one, a new sensor's too.

        Raises:
            DataError: There are as many sensors already as there are slots.
            BackendError: The states could not be exchanged; the present one is kept.
        """
        sensor = self.all[self._states.turn_to(name)]
        sensor.name = name
        return sensor

    @property
    def most_bytes(self) -> int:
        """Bytes that a snapshot needs besides the stream's state once every sensor has come."""
        own = sum(array.nbytes for array in self.first.adapter.arrays().values())
        return self._states.n_bytes + len(self.all) * (own + RECORD_BYTES)

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep besides the stream's state."""
        if not self.are_named:
            return self.first.adapter.arrays()
        return self._states.arrays([sensor.adapter for sensor in self.all])

    def load(
        self, arrays: Mapping[str, Array], names: Sequence[str], counters: Sequence[Counters]
    ) -> None:
        """Restore what `arrays` returned for sensors of these names.

        Raises:
            SnapshotError: There are more of them than slots, or the arrays are not theirs.
        """
        if self.are_named:
            self._states.load(arrays, names, [sensor.adapter for sensor in self.all])
        else:
            self.first.adapter.load(arrays)
        for sensor, name, counts in zip(self.all, names or [""], counters, strict=False):
            sensor.name, sensor.counters = name, counts
