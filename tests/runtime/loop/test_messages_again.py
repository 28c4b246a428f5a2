"""Messages that come again are learned once, also where a loop is killed among them."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.arrays import Array
from edgefold.runtime.loop import loop_snapshot
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.predictions import Gaussian, Prediction
from edgefold.runtime.rows.csv_columns import PointColumns, Row
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.journal import LEAST_BYTES, Journal
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_rows import MessageKeys, MessageRows
from edgefold.runtime.sources.message_source import MessageSource


class TimedRows(RowAdapter):
    """Reads rows (x1, y1) whose x is the time."""

    def __init__(self) -> None:
        super().__init__(PointColumns(1, 1), 1)
        self._newest = np.array([np.nan])

    @property
    def newest_time(self) -> float:
        return float(self._newest[0])

    def take(self, row: Row) -> Any:
        self._newest = np.array(row.numbers[:1])
        return super().take(row)

    def arrays(self) -> dict[str, Array]:
        return {"newest": self._newest}

    def load(self, arrays: Any) -> None:
        self._newest = arrays["newest"]


class Learner:
    """Keeps the times that it was given."""

    def __init__(self) -> None:
        self.manifest = SimpleNamespace(
            prediction=Gaussian(),
            prediction_tensors=Gaussian().tensors(1),
            n_outputs=1,
            is_filter=False,
        )
        self.times: list[float] = []
        self.room = None

    def query(self, x: Array) -> Prediction:
        tensors = self.manifest.prediction_tensors
        return Prediction({t.name: np.ones((1, *t.shape)) for t in tensors})

    def update(self, x: Array, y: Array) -> None:
        self.times.append(float(x[0, 0]))

    def save(self, path: Path, extra: Any) -> None:
        np.savez(path, allow_pickle=False, times=self.times, **extra)

    def restore(self, path: Path) -> dict[str, Array]:
        with np.load(path) as archive:
            extra = {name: archive[name] for name in archive.files}
        self.times = extra.pop("times").tolist()
        return extra


class ListedFeed(MessageFeed):
    """Gives the messages of a list, the first of which begins a connection; then it stops."""

    name, is_numbered = "mqtt://broker/#", False

    def __init__(self, times: list[int], n_before_kill: int | None = None):
        self._messages = deque(
            Message("a", json.dumps({"x1": time, "y1": 0}).encode(), 0.0, number == 0)
            for number, time in enumerate(times)
        )
        self._n_before_kill = n_before_kill
        self.is_empty = False

    def open(self, place: dict[str, Any]) -> None:
        return

    @property
    def holds_message(self) -> bool:
        return bool(self._messages)

    def take(self, wait_s: float) -> Message | None:
        if self._n_before_kill == 0:
            raise KeyboardInterrupt
        if self._n_before_kill:
            self._n_before_kill -= 1
        self.is_empty = not self._messages
        return self._messages.popleft() if self._messages else None

    def acknowledge(self, n: int) -> None:
        return

    def place(self) -> dict[str, Any]:
        return {}

    def notes(self) -> list[tuple[str, str]]:
        return []

    def close(self) -> None:
        return


def learned(folder: Path, feed: ListedFeed) -> list[float]:
    """Run a loop over the messages of a feed, and return the times that it has learned by then."""
    learner: Any = Learner()
    rows = MessageRows(MessageKeys(), of_sensors=False)
    journal = Journal(folder / "s.npz.journal", LEAST_BYTES)
    source = MessageSource(feed, rows, journal, group=2, stop=lambda: feed.is_empty)
    output, options = OutputFile(str(folder / "out.csv")), LoopOptions(every=4)
    loop = PredictionLoop(learner, [TimedRows()], source, output, folder / "s.npz", options)
    try:
        loop.run(stop=lambda: feed.is_empty)
    except KeyboardInterrupt:
        pass
    finally:
        source.close()
    return list(learner.times)


def test_a_loop_that_is_killed_among_messages_that_come_again_learns_each_once(
    tmp_path: Path,
) -> None:
    times = [1, 2, 3, 4, 5, 6]
    assert learned(tmp_path, ListedFeed(times)) == times
    # All come again. At the kill a snapshot knows four of them, and only the journal the others.
    learned(tmp_path, ListedFeed(times, n_before_kill=6))
    assert learned(tmp_path, ListedFeed([7])) == [*times, 7]


def test_the_name_of_a_snapshot_is_on_the_disk_before_a_run_relies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was killed may have renamed it, and not have forced the name to the disk."""
    learned(tmp_path, ListedFeed([1, 2]))
    synced: list[str] = []
    monkeypatch.setattr(loop_snapshot, "sync_name", lambda path: synced.append(Path(path).name))
    learned(tmp_path, ListedFeed([3]))
    assert synced == ["s.npz"]
