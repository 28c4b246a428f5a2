"""Write the snapshot of a loop, and restore the loop from it.

    snapshot = the stream's state + the sensors' histories + a record (module `record`)

The record holds the places (marks) in the input and the output that belong to the state, so that
one file, which is replaced as a whole, says how far everything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.files import sync_name
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.record import DAMAGE, RECORD, LoopRecord, read_record
from edgefold.runtime.loop.streams import LoopStreams
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Columns, Layout
from edgefold.runtime.stream.snapshot import EXTRA_BYTES
from edgefold.runtime.stream.stream import Stream
from edgefold.runtime.trial.successor import refuse_old_bundle


class LoopSnapshot:
    """Writes and reads the snapshot of one loop.

    Args:
        path: The file; None keeps nothing.
        stream: The open stream, whose state is kept.
        sensors: The sensors, whose histories and counts are kept.
        columns: The columns of the input.
        settings: Settings that must stay the same when a later run continues, by name.
    """

    def __init__(
        self,
        path: Path | None,
        stream: Stream,
        sensors: LoopStreams,
        columns: Columns,
        settings: Mapping[str, Any],
    ):
        self.path = path
        self._stream, self._sensors, self._columns = stream, sensors, columns
        self._own_settings = dict(settings)
        self._successor: str | None = None
        self._began_with_state = False

    @property
    def exists(self) -> bool:
        """Return whether a snapshot of an earlier run is there."""
        return self.path is not None and self.path.exists()

    def require_room(self) -> None:
        """Raise SnapshotError if a snapshot could not hold all sensors that may come."""
        most = self._sensors.most_bytes
        if self.path is not None and most > EXTRA_BYTES:
            n = EXTRA_BYTES * len(self._sensors.all) // most
            fewer = f"allow at most {n:,} sensors in a run with --streams, or " if n else ""
            raise SnapshotError(
                f"a snapshot of this run may need {most:,} bytes and can hold {EXTRA_BYTES:,}; "
                f"{fewer}leave out --snapshot."
            )

    def write(
        self,
        layout: Layout,
        unassigned: Counters,
        source: dict[str, Any],
        output: dict[str, Any],
        alarms: dict[str, Any] | None,
        known: tuple[str, ...] = (),
        trial: dict[str, Any] | None = None,
        rows: dict[str, Any] | None = None,
    ) -> None:
        """Replace the snapshot by one of the present state; do nothing without a file.

        Args:
            layout: The places of the columns in a line of the input.
            unassigned: The counts of lines that belong to no sensor.
            source: The mark (place as JSON) in the input.
            output: The mark in the output.
            alarms: The mark in the file of alarms; None without one.
            known: Names of the sensors whose next rows may come again.
            trial: The state of a candidate's trial; None without one.
            rows: The place of the kept rows; None without them.

        Raises:
            SnapshotError: The file system refused; the snapshot before is intact.
        """
        if self.path is None:
            return
        sensors = self._sensors
        named = sensors.named
        record = LoopRecord(
            self._settings(layout.names),
            source,
            layout if unassigned.lines else None,
            output,
            unassigned if sensors.are_named else unassigned.plus([sensors.first.counters]),
            tuple(sensor.name for sensor in named),
            tuple(sensor.counters for sensor in named),
            self._columns.form,
            alarms,
            known,
            trial,
            rows,
            self._successor,
            sensors.state_rows(unassigned.lines),
        )
        self._stream.save(self.path, {RECORD: record.to_array(), **sensors.arrays()})

    def _settings(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the settings that must stay the same when a later run continues, by name.

        Args:
            names: Names of the input's columns.
        """
        return {"input": list(names), "columns": self._sensors.header, **self._own_settings}

    def restore(self, name: str) -> LoopRecord | None:
        """Restore the stream and the sensors, and return the record that was kept with them.

        For the snapshot of a program, of compiled C or of PostgreSQL, which has no record, this is
        None: only the stream's state is restored.

        Args:
            name: The input's name, for messages.

        Raises:
            SnapshotError: The snapshot is damaged, or was made with other settings.
        """
        path, columns, sensors = self.path, self._columns, self._sensors
        assert path is not None
        try:
            extra = self._stream.restore(path)
        except SnapshotError:
            refuse_old_bundle(path, self._stream.manifest)
            raise
        try:
            sync_name(path)
        except OSError as error:
            raise SnapshotError(
                f"the name of snapshot {path} cannot be forced to the disk: {error.strerror}. "
                "Choose another place for the snapshot."
            ) from error
        if RECORD not in extra:
            if sensors.are_named or isinstance(self._stream.manifest.prediction, SensorForecast):
                raise SnapshotError(
                    f"snapshot {path} holds the state of one stream, which `edgefold run` did not "
                    "write, and no history of this input's sensors; choose another file."
                )
            self._began_with_state = True
            return None
        try:
            record = read_record(extra[RECORD], columns, sensors.first.columns.n_errors)
        except SnapshotError as error:
            raise SnapshotError(f"snapshot {path}: {error} choose another file.") from None
        self._successor = record.successor
        layout, settings = record.layout, record.settings
        names = columns.names_in(layout, name) if layout else settings["input"]
        asked = self._settings(tuple(names))
        if settings != asked:
            raise SnapshotError(
                f"snapshot {path} was made with {settings}, asked now is {asked}; "
                "give the same options, or start over with --force."
            )
        if layout:
            own = record.sensors if sensors.are_named else [replace(record.counters)]
            try:
                sensors.load(extra, record.names, own)
            except DAMAGE as error:
                raise SnapshotError(
                    f"snapshot {path} holds other rows than a series' ({error}); use an older "
                    "copy, or start over with --force."
                ) from None
        return record

    def take_over(self) -> None:
        """Keep from now on that the bundle was a candidate and took over."""
        path = str(self._stream.manifest.path)
        self._successor = path.encode(errors="replace").decode()  # JSON must hold it

    def remove(self) -> None:
        """Remove the snapshot, if there is one, of a loop that has learned nothing.

        A state with which the loop began is kept.
        """
        if self.path is None:
            return
        if self._began_with_state:
            self._stream.save(self.path)
        else:
            self.path.unlink(missing_ok=True)
