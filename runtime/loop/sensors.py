"""What a loop keeps for each of its sensors: history, state, counts.

    one sensor      its state is the stream's
    several         each has a slot for its state; a row makes its sensor's state the present one
                    (`edgefold.runtime.stream.state_slots`)

Sensors get a name with their first row. A fault of one leaves the others as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError, EdgefoldError, SnapshotError
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.output_columns import OutputColumns
from edgefold.runtime.loop.row_adapter import RowAdapter
from edgefold.runtime.loop.sensor_output import SensorOutput
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import plain, quoted
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream

PREFIX = "streams."
"""Before the names of arrays in the snapshot of a loop of several sensors."""
MOST_NOTES = 100
"""That wait to be read; older ones are dropped."""
RECORD_BYTES = 2048
"""Of a sensor's name, of up to 100 characters, and its counts as JSON."""


class Sensor:
    """One sensor: what its rows mean, and what was counted of them.

    Args:
        stream: Runs its model.
        adapter: Its own.
        anomaly_z: See `OutputColumns`.

    Attributes:
        name: As the input calls it; empty before its first row, and where there is one alone.
        columns: What is written of a prediction.
        counters: Counts over every restart.
    """

    def __init__(self, stream: Stream, adapter: RowAdapter, anomaly_z: float):
        self._stream, self.adapter = stream, adapter
        self.name = ""
        self.columns = _output_columns(stream, adapter, anomaly_z)
        self.counters = Counters(squared_error=[0.0] * self.columns.n_errors)

    def process(self, row: Row) -> list[str]:
        """Predict a row, then update with it; the sensor's state is the stream's present one.

        Returns:
            The output's fields of the row and its prediction.

        Raises:
            DataError, ValueRefusedError, StepRefusedError: The row is refused; nothing changed, but
                that a filter may have passed slots which are missing before it.
        """
        fields = self._predict_and_update(row)
        self.counters.rows += 1
        self.counters.refused_in_a_row = 0
        return [*quoted(row.texts), fields]

    def _predict_and_update(self, row: Row) -> str:
        adapter, stream = self.adapter, self._stream
        x = adapter.inputs(row)
        if x is None:  # too little history
            adapter.commit(row)
            return self.columns.empty
        if stream.manifest.is_filter:
            prediction = self._step(x)
        else:
            prediction = stream.query(x)
            y = adapter.outputs(row)
            if stream.room == 0:
                self.counters.not_learned += 1
            else:
                stream.update(x, y)
        values = self.columns.values(prediction)
        adapter.commit(row)
        return self.columns.fields(values, adapter.values(row), self.counters)

    def _step(self, x: FloatArray) -> Prediction:
        """Take a filter's steps of one row: of what is missing before it, then its own."""
        for n in range(len(x)):
            try:
                prediction = self._stream.step(x[n : n + 1])
            except EdgefoldError:
                self.adapter.keep_missing(n)  # the state has passed them
                raise
        return prediction


def _output_columns(
    stream: Stream, adapter: RowAdapter, anomaly_z: float
) -> OutputColumns | SensorOutput:
    kind = stream.manifest.prediction
    if isinstance(kind, SensorForecast) and isinstance(adapter, SensorRows):
        return SensorOutput(stream, kind, adapter)
    return OutputColumns(stream.manifest, adapter, anomaly_z)


class Sensors:
    """The sensors of a loop, and which one's state is the stream's.

    Args:
        stream: Opened, and empty.
        adapters: One for each sensor that may come; one alone needs no name and no slot.
        anomaly_z: See `OutputColumns`.
        are_named: Whether rows name their sensor, of which there may be several.

    Attributes:
        notes: What rows changed of their sensors: line, sensor's name, sentence. Whoever reads them
            takes them away.
    """

    def __init__(
        self, stream: Stream, adapters: Sequence[RowAdapter], anomaly_z: float, are_named: bool
    ):
        self._stream = stream
        self._all = [Sensor(stream, adapter, anomaly_z) for adapter in adapters]
        self._slots = StateSlots(stream.manifest, len(adapters)) if are_named else None
        if self._slots is not None and stream.manifest.takes_seed:
            for number in range(len(adapters)):  # each begins with the stream's seed
                stream.take(self._slots, number)
        self._numbers: dict[str, int] = {}
        self._present: int | None = None
        self.notes: deque[tuple[int, str, str]] = deque(maxlen=MOST_NOTES)

    @property
    def header(self) -> str:
        """The first line of the output, which bundle and options decide."""
        adapter, columns = self.first.adapter, self.first.columns
        head = [*["line"] * adapter.has_line, *[adapter.stream] * self.are_named]
        return f"{','.join([*head, *adapter.header, *columns.names])}\n"

    def written(self, row: Row, sensor: Sensor, fields: Sequence[str]) -> str:
        """The output's line of a row of a sensor, and remember what it changed."""
        for note in sensor.adapter.notes:
            self.notes.append((row.line, sensor.name, note))
        head = [*[str(row.line)] * sensor.adapter.has_line]
        if self.are_named:
            head += quoted([sensor.name])
        return ",".join([*head, *fields]) + "\n"

    @property
    def are_named(self) -> bool:
        """Whether there may be several."""
        return self._slots is not None

    @property
    def first(self) -> Sensor:
        """The first one, or the only one."""
        return self._all[0]

    @property
    def all(self) -> Sequence[Sensor]:
        """Those that have come, and those that may."""
        return self._all

    @property
    def named(self) -> list[Sensor]:
        """Those that have come, in the order of their first rows."""
        return self._all[: len(self._numbers)]

    def find(self, name: str) -> Sensor | None:
        """Return a sensor that has come before; the only one needs no name."""
        if self._slots is None:
            return self.first
        number = self._numbers.get(name)
        return None if number is None else self._all[number]

    def turn_to(self, name: str) -> Sensor:
        """Make a sensor's state the stream's present one, a new sensor's too.

        Raises:
            DataError: There are as many sensors already as there are slots.
            BackendError: The states could not be exchanged; the present one is kept.
        """
        if self._slots is None:
            return self.first
        number = self._numbers.get(name, len(self._numbers))
        if number == len(self._all):
            raise DataError(
                f"the loop has {number} streams already ({_listed(self._numbers)}); fix the name, "
                "or allow more with --streams"
            )
        if number != self._present:
            self.store()
            self._stream.put(self._slots, number)
            self._present = number
        sensor = self._all[number]
        sensor.name = name
        self._numbers[name] = number
        return sensor

    @property
    def most_bytes(self) -> int:
        """What a snapshot needs beside the stream's state once every sensor has come."""
        n = len(self._all)
        slots = self._slots.arrays(n) if self._slots else {}
        own = sum(array.nbytes for array in self.first.adapter.arrays().values())
        return sum(array.nbytes for array in slots.values()) + n * (own + RECORD_BYTES)

    def store(self) -> None:
        """Copy the present state into its slot."""
        if self._slots is not None and self._present is not None:
            self._stream.take(self._slots, self._present)

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep beside the stream's state."""
        if self._slots is None:
            return self.first.adapter.arrays()
        self.store()
        n = len(self.named)
        found = self._slots.arrays(n)
        for number, sensor in enumerate(self.named):  # one by one: all copies at once are large
            for name, array in sensor.adapter.arrays().items():
                if number == 0:
                    found[name] = np.empty((n, *array.shape), array.dtype)
                found[name][number] = array
        return {f"{PREFIX}{name}": array for name, array in found.items()}

    def load(
        self, arrays: Mapping[str, Array], names: Sequence[str], counters: Sequence[Counters]
    ) -> None:
        """Restore what `arrays` returned for sensors of these names.

        Raises:
            SnapshotError: There are more of them than slots, or the arrays are not theirs.
        """
        if self._slots is None:
            self.first.adapter.load(arrays)
            self.first.counters = counters[0]
            return
        if len(names) > len(self._all):
            raise SnapshotError(
                f"the snapshot holds {len(names)} streams ({_listed(names)}), asked now are "
                f"{len(self._all)}; give --streams {len(names)} or more."
            )
        own = {n.removeprefix(PREFIX): a for n, a in arrays.items() if n.startswith(PREFIX)}
        self._slots.load(own, len(names))
        for number, name in enumerate(names):
            sensor = self._all[number]
            history = sensor.adapter.arrays()
            sensor.adapter.load({n: own[n][number] for n in history if len(own.get(n, ()))})
            sensor.name, sensor.counters = name, counters[number]
            self._numbers[name] = number


def _listed(names: Sequence[str] | Mapping[str, int]) -> str:
    shown = ", ".join(plain(name) for name in list(names)[:8])
    return shown + (", ..." if len(names) > 8 else "")
