"""Messages are acknowledged only when they are on the disk, and each row is given once."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.brokers.client_name import client_name
from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.broker_source import open_jetstream, open_mqtt
from edgefold.runtime.sources.journal import LEAST_BYTES, Journal
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_rows import MessageKeys, MessageRows
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.sources.row_source import SourceOptions


class Feed(MessageFeed):
    """Gives messages from a list, and notes how many are on the disk when one is acknowledged."""

    name, is_numbered = "feed", False

    def __init__(self, messages: list[Message], journal: Journal | None = None):
        self.waiting, self.journal = deque(messages), journal
        self.n_acknowledged = self.n_taken = 0

    def open(self, place: dict[str, Any]) -> None:
        self.opened = place

    def take(self, wait_s: float) -> Message | None:
        if not self.waiting:
            return None
        self.n_taken += 1
        return self.waiting.popleft()

    @property
    def holds_message(self) -> bool:
        return bool(self.waiting)

    def acknowledge(self, n: int) -> None:
        self.n_acknowledged += n
        if self.journal is not None:
            assert self.journal.n_unsynced == 0
        assert self.n_acknowledged <= self.n_taken

    def place(self) -> dict[str, Any]:
        return {}

    def notes(self) -> list[tuple[str, str]]:
        return []

    def close(self) -> None:
        """Do nothing."""


def message(n: int, **row: Any) -> Message:
    return Message("a", json.dumps({"n": n, "value": n, **row}).encode(), float(n))


def source_of(
    path: Path | None, messages: list[Message], keys: MessageKeys | None = None, **more: Any
) -> tuple[MessageSource, Feed]:
    journal = Journal(path, LEAST_BYTES) if path else None
    feed = Feed(messages, journal)
    rows = MessageRows(keys or MessageKeys(values=("value",)), of_sensors=True)
    stop = lambda: not feed.waiting  # noqa: E731
    return MessageSource(feed, rows, journal, stop=stop, **more), feed


def values_of(source: MessageSource) -> list[Any]:
    """Open the source, read all lines, and process each."""
    source._open()
    values = []
    while line := source.readline(65536):
        values.append(json.loads(line)["value"])
        source.keep()
    return values


def test_messages_are_acknowledged_in_groups_once_they_are_on_the_disk(tmp_path: Path) -> None:
    source, feed = source_of(tmp_path / "j", [message(n) for n in range(1, 26)], group=10)
    assert values_of(source) == [*range(1, 26)]
    assert feed.n_acknowledged == 20
    mark = source.mark()
    assert feed.n_acknowledged == 25 and (mark["position"], mark["lines"]) == (25, 0)
    source.close()


def test_a_small_group_is_acknowledged_after_a_time(tmp_path: Path) -> None:
    times = iter(0.3 * n for n in range(1000))
    source, feed = source_of(
        tmp_path / "j", [message(n) for n in range(1, 9)], group=100, clock=lambda: next(times)
    )
    values_of(source)
    assert 0 < feed.n_acknowledged < 9


def test_a_message_in_work_leaves_no_mark_where_nothing_comes_again() -> None:
    keys = MessageKeys(values=("n", "value"))
    source, _ = source_of(None, [message(1)], keys)
    source._open()
    source.readline(65536)
    source.keep()
    later, _ = source_of(None, [message(2)], keys)
    later.resume(source.mark())
    assert values_of(later) == [2, 2]


def test_what_a_snapshot_does_not_know_comes_again_from_the_journal(tmp_path: Path) -> None:
    source, _ = source_of(tmp_path / "j", [message(n) for n in range(1, 31)], group=10)
    source._open()
    for _ in range(17):
        source.readline(65536)
        source.keep()
    mark = source.mark()
    for _ in range(13):
        source.readline(65536)
    source._commit()
    source.close()
    again, _ = source_of(tmp_path / "j", [message(31)])
    again.resume(mark)
    assert values_of(again) == [*range(18, 32)]


def test_a_snapshot_between_the_rows_of_a_message_goes_on_at_the_next_one(tmp_path: Path) -> None:
    keys = MessageKeys(values=("x", "y", "z"))
    several = [Message("a", b'{"x": 1, "y": 2, "z": 3}', 0.0)] * 2
    source, _ = source_of(tmp_path / "j", several, keys)
    source._open()
    source.readline(65536)
    source.readline(65536)
    source.keep()
    mark = source.mark()
    assert (mark["position"], mark["lines"]) == (1, 2)
    source.kept()
    source.close()
    again, _ = source_of(tmp_path / "j", [], keys)
    again.resume(mark)
    assert values_of(again) == [3]


def test_numbers_that_are_known_are_dropped_also_after_a_restart(tmp_path: Path) -> None:
    keys = MessageKeys(values=("value",), sequence=("n",))
    source, feed = source_of(tmp_path / "j", [message(n) for n in (1, 2, 2, 1, 3)], keys)
    assert values_of(source) == [1, 2, 3] and source.n_repeated == 2
    mark = json.loads(json.dumps(source.mark()))
    assert feed.n_acknowledged == 5
    source.close()
    again, _ = source_of(tmp_path / "j", [message(n) for n in (2, 3, 4)], keys)
    again.resume(mark)
    assert values_of(again) == [4]


def test_a_message_without_a_row_is_acknowledged_and_not_kept(tmp_path: Path) -> None:
    empty = Message("a", b'{"state": "ON"}', 0.0, begins=True)
    keys = MessageKeys()
    source, feed = source_of(tmp_path / "j", [empty, message(1), message(2)], keys)
    source._open()
    source.readline(65536)
    assert source.n_connections == 1  # the mark of a new connection is not lost with it
    source.keep()
    source.mark()
    assert feed.n_acknowledged == 2 and source.notes()[0][0] == "no number"


def test_without_a_snapshot_each_message_is_acknowledged_at_once() -> None:
    source, feed = source_of(None, [message(n) for n in range(1, 4)])
    source._open()
    source.readline(65536)
    assert feed.n_acknowledged == 1


def test_a_line_is_given_in_pieces_if_it_is_longer_than_asked(tmp_path: Path) -> None:
    source, _ = source_of(None, [message(1)])
    source._open()
    pieces = [source.readline(7) for _ in range(30)]
    assert json.loads(b"".join(pieces))["value"] == 1


@pytest.mark.parametrize("mark", [{"lines": "x", "position": 1}, {"lines": 0, "newest": 3}])
def test_a_damaged_mark_is_refused(mark: dict[str, Any]) -> None:
    source, _ = source_of(None, [])
    with pytest.raises(DataError, match="is damaged"):
        source.resume(mark)


def test_the_mark_of_a_file_lets_messages_begin_now() -> None:
    source, feed = source_of(None, [message(1)])
    source.resume({"position": 100, "head": "x"})
    assert values_of(source) == [1] and feed.opened["position"] == 0


def test_a_client_has_the_name_of_its_snapshot_and_another_one_without(tmp_path: Path) -> None:
    assert client_name(tmp_path / "a") == client_name(tmp_path / "x" / ".." / "a")
    assert client_name(tmp_path / "a") != client_name(tmp_path / "b")
    assert client_name(None) != client_name(None)


def test_addresses_are_opened_without_a_connection(tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    pytest.importorskip("nats", reason="nats-py is not installed")
    options = SourceOptions(snapshot=tmp_path / "s")
    for source in (
        open_mqtt("mqtt://127.0.0.1:1/a", options),
        open_jetstream("nats://127.0.0.1:1/a", options),
    ):
        assert source.is_live and not source.holds_row
        source.close()
