"""A source shows that the loop goes on, also by what comes and gives no row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.rows.csv_columns import SeriesColumns
from edgefold.runtime.sources.input_file import InputFile
from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.message_rows import MessageKeys, MessageRows
from edgefold.runtime.sources.message_source import MessageSource

N = 5


@pytest.mark.parametrize("piece", [b"\n", b"1,2,3", b"  \r\n"])
def test_a_pipe_that_never_gives_a_row_is_no_hang(tmp_path: Path, piece: bytes) -> None:
    """Blank lines, or bytes without a line's end, may come so often that it is never silent."""
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    n_asked = n_signs = 0

    def stop() -> bool:
        nonlocal n_asked
        n_asked += 1
        os.write(writer, piece)
        return n_asked > N

    def sign() -> None:
        nonlocal n_signs
        n_signs += 1

    os.write(writer, b"time,value\n1,2\n")
    source = InputFile(str(tmp_path / "pipe"), stop, idle=sign)
    assert [row.line for row in source.rows(SeriesColumns("time", "value"))] == [2]
    assert n_signs == N
    source.close()
    os.close(writer)


class Feed:
    """Gives messages without an end, none of which has a row that is new."""

    name, unit, is_numbered, holds_message = "feed", "message", False, False

    def __init__(self, payload: bytes):
        self._payload = payload

    def open(self, place: dict[str, Any]) -> None:
        """Begin."""

    def take(self, wait_s: float) -> Message:
        return Message("a", self._payload, 0.0)

    def acknowledge(self, n: int) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("payload", "keys"),
    [
        (b'{"state": "ON"}', MessageKeys()),
        (b'{"n": 1, "value": 1}', MessageKeys(values=("value",), sequence=("n",))),
    ],
)
def test_messages_that_give_no_row_are_no_hang(payload: bytes, keys: MessageKeys) -> None:
    n_signs = 0

    def sign() -> None:
        nonlocal n_signs
        n_signs += 1

    feed, rows = Feed(payload), MessageRows(keys, of_sensors=True)
    source = MessageSource(feed, rows, None, stop=lambda: n_signs >= N, idle=sign)  # type: ignore[arg-type]
    source._open()
    n_lines = 0
    while n_lines < N and source.readline(65536):  # the first message of a number is new
        source.keep()
        n_lines += 1
    assert n_signs == N and n_lines == len(keys.sequence)
