"""Child of `flash`: run a loop once, and print what it wrote.

Usage: python -m benchmarks.usage.flash_child file FOLDER ROWS EVERY OUTPUT
       python -m benchmarks.usage.flash_child journal FOLDER ROWS EVERY OUTPUT

It prints JSON. `file` is `edgefold run` with a file of rows; `journal` is the same loop with
messages that a feed in this process gives as fast as they are taken, and a journal. OUTPUT is 1 for
a loop that writes its predictions, else 0.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

from edgefold.cli.loop.disk_writes import written_bytes
from edgefold.cli.main import main as edgefold
from edgefold.runtime import Stream
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.rows.sensor_columns import LongColumns
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.journal import Journal
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_rows import COLUMNS, MessageKeys, MessageRows
from edgefold.runtime.sources.message_source import MessageSource

N_SENSORS, WINDOW = 4, 20
SYNC_S = 60.0
"""Longer than ten messages ever take, so that groups do not depend on the machine's load."""
START = datetime(2024, 1, 1)


def values(n: int) -> Iterator[tuple[str, str]]:
    """Times and values of a sensor with a season of a day, a row a minute."""
    for row in range(n):
        noise = math.sin(row * 12.9898) * 43758.5453 % 1 - 0.5
        value = 20 + 5 * math.sin(row / 1440 * 2 * math.pi) + noise
        yield (START + timedelta(minutes=row)).isoformat(sep=" "), f"{value:.2f}"


def message_of(row: int, time: str, value: str) -> Message:
    """One message of one of the sensors; its topic has 24 bytes."""
    payload = f'{{"time": "{time}", "value": {value}}}'.encode()
    return Message(f"plant/line/{row % N_SENSORS}/temperature", payload, 0.0)


class MemoryFeed(MessageFeed):
    """A broker in this process, which holds all messages and waits for none."""

    name, is_numbered = "memory", False

    def __init__(self, n: int):
        self._rows, self._left, self.n_acknowledged = values(n), n, 0

    def open(self, place: dict[str, Any]) -> None:
        """Begin at the first message."""

    def take(self, wait_s: float) -> Message | None:
        """Return the next message."""
        row = next(self._rows, None)
        self._left -= row is not None
        return None if row is None else message_of(self._left, *row)

    @property
    def holds_message(self) -> bool:
        """Return whether a message is left."""
        return self._left > 0

    def acknowledge(self, n: int) -> None:
        """Count the messages that the journal keeps."""
        self.n_acknowledged += n

    def place(self) -> dict[str, Any]:
        """Return nothing: the journal knows the place."""
        return {}

    def notes(self) -> list[tuple[str, str]]:
        """Return no notes."""
        return []

    def close(self) -> None:
        """Do nothing."""


def from_file(folder: Path, n: int, every: int, output: Path | None) -> dict[str, Any]:
    """Run the command with a file of rows."""
    rows = folder / "rows.csv"
    rows.write_text("time,value\n" + "".join(f"{time},{value}\n" for time, value in values(n)))
    words = ["run", "sensors", "--input", str(rows), "--snapshot", str(folder / "state.npz")]
    words += ["--every", str(every)] + (["--output", str(output)] if output else [])
    before = written_bytes()
    with redirect_stderr(StringIO()):
        code = edgefold(words)
    assert code == 0, code
    return {"written_bytes": count(before), "journal_bytes": None}


def with_journal(folder: Path, n: int, every: int, output: Path | None) -> dict[str, Any]:
    """Run the loop with messages."""
    bundle, snapshot = shipped_bundle("sensors"), folder / "state.npz"
    manifest, feed = load_manifest(bundle), MemoryFeed(n)
    adapters = [adapter_for(manifest, *COLUMNS[1:2]) for _ in range(N_SENSORS)]
    for adapter in adapters:
        assert isinstance(adapter, SensorRows)
        adapter.share_columns(adapters[0])  # type: ignore[arg-type]
    columns = LongColumns(adapters[0].columns, COLUMNS[0])
    before = written_bytes()
    journal = Journal(Path(f"{snapshot}.journal"))
    rows = MessageRows(MessageKeys(), True)

    def stop() -> bool:
        return not feed.holds_message

    with Stream.open(bundle, "auto", slots=N_SENSORS) as stream:
        source = MessageSource(feed, rows, journal, WINDOW // 2, SYNC_S, stop)
        to = OutputFile(str(output) if output else None, stop)
        PredictionLoop(
            stream, adapters, source, to, snapshot, LoopOptions(every=every), columns
        ).run(stop)
        source.close()
    return {"written_bytes": count(before), "journal_bytes": journal.n_bytes_written}


def count(before: int | None) -> int | None:
    """Return the bytes since then; None where they are not counted."""
    after = written_bytes()
    return None if before is None or after is None else after - before


def main() -> None:
    """Run one loop, and print what it wrote as JSON."""
    kind, folder, n, every, has_output = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])
    output = folder / "predictions.csv" if has_output else None
    start_s = time.perf_counter()
    run = {"file": from_file, "journal": with_journal}[kind]
    found = run(folder, n, every, output)
    found["taken_s"] = time.perf_counter() - start_s
    found["snapshot_bytes"] = (folder / "state.npz").stat().st_size
    found["output_bytes"] = output.stat().st_size if output else 0
    print(json.dumps(found))


if __name__ == "__main__":
    main()
