"""`edgefold run` with messages of a broker that a test plays, and with kills between any two."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.main import main
from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.journal import Journal
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_rows import MessageRows
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.sources.row_source import SOURCES, SourceOptions

pytestmark = pytest.mark.usefixtures("compiled_sensors")

START = 1_764_300_000
Run = Callable[..., int]
SCRIPT: deque[Message | None] = deque()
"""The messages that come in a run; None is a kill. Behind the last one comes SIGTERM."""


class PlayedFeed(MessageFeed):
    """Gives the messages of the script."""

    name, is_numbered = "messages://test", False

    def open(self, place: dict[str, Any]) -> None:
        pass

    @property
    def holds_message(self) -> bool:
        return bool(SCRIPT)

    def take(self, wait_s: float) -> Message | None:
        if not SCRIPT:
            os.kill(os.getpid(), signal.SIGTERM)
            return None
        if (message := SCRIPT.popleft()) is None:
            raise DataError("killed")  # nothing is saved then
        return message

    def acknowledge(self, n: int) -> None:
        pass

    def place(self) -> dict[str, Any]:
        return {}

    def notes(self) -> list[tuple[str, str]]:
        return []

    def close(self) -> None:
        pass


def open_played(path: str, options: SourceOptions) -> MessageSource:
    assert options.snapshot is not None
    rows = MessageRows(options.keys, options.of_sensors)
    journal = Journal(Path(f"{options.snapshot}.journal"), options.journal_bytes)
    return MessageSource(PlayedFeed(), rows, journal, 1, stop=options.stop)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with the messages of one connection or several; ends by SIGTERM or a kill."""
    monkeypatch.setitem(SOURCES, "messages://", f"{__name__}:{open_played.__name__}")

    def run(*connections: Iterable[int | None], every: int = 1000) -> int:
        for times in connections:
            begins = True
            for time in times:
                content = b"" if time is None else b'{"ts": %d, "value": 1}' % (START + time)
                SCRIPT.append(None if time is None else Message("a", content, 0.0, begins))
                begins = False
        words = ["run", "sensors", "--input", "messages://test", "--every", str(every)]
        words += ["--output", str(tmp_path / "out.csv"), "--snapshot", str(tmp_path / "s.npz")]
        return main([*words, "--backend", "onnxruntime"])

    return run


def test_a_refused_row_is_named_by_its_topic_and_not_by_a_line(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    SCRIPT.append(Message("house/a", b"hello", 0.0, True))
    SCRIPT.append(Message("house/b", b'{"ts": "soon", "value": 1}', 0.0))
    assert run(range(3)) == 0
    error = capsys.readouterr().err
    assert "edgefold: message 1: house/a: its value is 'hello', not a number; skipped" in error
    assert "edgefold: message 2: house/b: its time is 'soon'" in error
    assert "no sensor     2 rows belong to none" in error
    assert "line" not in error.replace("lines/s", "").replace("5 lines in", "")


def test_a_message_with_two_values_has_one_number(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (*range(40), *range(72, 76)):
        content = b'{"ts": %d, "warm": %d, "wet": 40}' % (START + 60 * n, n % 3)
        SCRIPT.append(Message("hall", content, 0.0, begins=n == 0))
    assert run() == 0
    error = capsys.readouterr().err
    assert "edgefold: message 41, stream hall/warm: 32 rows are missing" in error
    assert "edgefold: message 41, stream hall/wet: 32 rows are missing" in error


def n_written(folder: Path) -> int:
    """The number of rows in the output; fails if one is missing, or stands twice."""
    times = [line.split(",")[1] for line in (folder / "out.csv").read_text().splitlines()[1:]]
    assert len(set(times)) == len(times) and times == sorted(times)
    return len(times)


def test_rows_that_come_again_are_known_after_a_kill_among_them_too(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The snapshot is of the second repeated row, and the others are read from the journal."""
    assert run(range(30), [*range(25), None], every=32) == 1
    assert run(range(20, 35)) == 0
    assert n_written(tmp_path) == 35
    assert "0 malformed" in capsys.readouterr().err


def test_a_stop_before_the_first_message_after_a_kill_changes_nothing(
    run: Run, tmp_path: Path
) -> None:
    assert run([0, None]) == 1  # the first snapshot is of the moment before the first row
    for _ in range(2):
        (tmp_path / "s.npz.journal.0").write_bytes(b"")  # the message was not on the disk yet
        assert run() == 0
    assert run(range(5)) == 0
    assert n_written(tmp_path) == 5
