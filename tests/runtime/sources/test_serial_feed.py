"""A serial line is opened so that no byte is changed, and waited for when it goes away."""

from __future__ import annotations

import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.input_file import InputFile
from edgefold.runtime.sources.line_rows import LONGEST, LineRows
from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.message_rows import MessageKeys
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.sources.row_source import SourceOptions, is_serial, open_row_source
from edgefold.runtime.sources.serial_feed import SPREAD_S, SerialFeed
from edgefold.runtime.sources.serial_port import open_port, speeds
from tests.brokers import LIMIT_S, until
from tests.serial_board import SerialBoard


@pytest.fixture
def board(tmp_path: Path) -> Iterator[SerialBoard]:
    board = SerialBoard(tmp_path)
    board.plug()
    yield board
    board.unplug()


class Received:
    """A feed that is open, with what it said and gave."""

    def __init__(self, board: SerialBoard, baud: int | None = None):
        self.said: list[str] = []
        rows = LineRows(MessageKeys(), True, tell=self.said.append)
        self.feed = SerialFeed(str(board.device), baud, rows, self.said.append)

    def __enter__(self) -> Received:
        self.feed.open({})
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()

    def message(self) -> Message:
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            if message := self.feed.take(0.01):
                return message
        raise AssertionError(f"no line came; it said {self.said}")

    def wait_for(self, news: str) -> None:
        def is_said() -> bool:
            assert self.feed.take(0.0) is None
            return any(sentence.endswith(news) for sentence in self.said)

        until(is_said, news)

    def lines(self, n: int) -> list[bytes]:
        return [self.message().payload for _ in range(n)]


def test_every_byte_comes_as_it_was_sent_and_the_first_half_line_is_dropped(
    board: SerialBoard,
) -> None:
    with Received(board) as received:
        board.send(b"1.5\r\n21.5\n\n\r\x03\x11\x13\x7f\x00\xff 22\r23.5\r\n")
        assert received.lines(3) == [b"21.5", b"\x03\x11\x13\x7f\x00\xff 22", b"23.5"]
        now = time.time()
        board.print("24", "25")
        first, second = received.message().received, received.message().received
        assert now - SPREAD_S <= first < second <= time.time()
    assert received.said == []


def test_a_header_right_after_the_opening_is_not_dropped(board: SerialBoard) -> None:
    with Received(board) as received:
        board.print("temp,hum", "21.5,40")
        assert received.lines(2) == [b"temp,hum", b"21.5,40"]


def test_the_line_is_raw_with_eight_bits_and_the_speed_that_is_asked(board: SerialBoard) -> None:
    with Received(board, 115200):
        iflag, oflag, cflag, lflag, in_speed, out_speed, _ = board.settings
    assert (iflag, oflag, lflag) == (termios.IGNBRK, 0, 0)
    assert isinstance(cflag, int) and cflag & termios.CSIZE == termios.CS8
    assert not cflag & (termios.PARENB | termios.CSTOPB | termios.HUPCL)
    assert in_speed == out_speed == termios.B115200


def test_a_line_is_no_controlling_terminal_and_that_one_is_refused(board: SerialBoard) -> None:
    code = """
import os, sys
from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.serial_port import open_port

os.close(open_port(sys.argv[1], None))
try:
    os.open("/dev/tty", os.O_RDWR)
except OSError:
    print("none")
os.open(sys.argv[1], os.O_RDWR)  # a session without one takes the first terminal that it opens
try:
    open_port(sys.argv[1], None)
except DataError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(board.device)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    none, refusal = done.stdout.splitlines()
    assert none == "none" and "is the terminal on which this command runs" in refusal


def test_a_line_without_an_end_is_cut_and_the_next_one_is_whole(board: SerialBoard) -> None:
    with Received(board) as received:
        board.print("")
        for _ in range(3 * LONGEST // 1024):  # a terminal's buffer holds less than the whole
            board.send(b"x" * 1024)
        board.print("x", "21.5")
        first, second = received.lines(2)
    assert (len(first), second) == (LONGEST, b"21.5")


def test_a_device_that_goes_is_waited_for_and_said_once(board: SerialBoard) -> None:
    with Received(board) as received:
        board.print("x", "1", "2.")
        assert received.lines(1) == [b"1"]
        assert received.lines(1) == [b"2."]
        board.send(b"3.1")  # half a line, which is lost with the device
        board.unplug()
        received.wait_for("was unplugged; the loop waits until it is there again")
        board.plug()
        received.wait_for("is open")
        board.print("4", "5")
        assert received.lines(1) == [b"5"]
    name = board.device
    assert received.said == [
        f"{name} was unplugged; the loop waits until it is there again",
        f"{name} is open",
    ]


def test_a_device_may_come_later(board: SerialBoard) -> None:
    board.unplug()
    with Received(board, 9600) as received:
        received.wait_for("is not there; the loop waits for it")
        board.plug()
        received.wait_for("is open")
        board.print("x", "5")
        assert received.lines(1) == [b"5"]


def test_a_line_that_another_reader_has_is_refused_at_the_start(board: SerialBoard) -> None:
    other = Received(board)
    with Received(board), pytest.raises(DataError, match="another program reads it"):
        other.__enter__()
    with other:
        assert other.said == []


def test_a_speed_that_the_system_does_not_know_is_refused_with_those_that_it_does(
    board: SerialBoard,
) -> None:
    with pytest.raises(DataError, match=r"no serial line of 9601 baud.* 9600, 19200"):
        open_row_source(str(board.device), SourceOptions(baud=9601))
    assert list(speeds()) == sorted(speeds()) and 0 not in speeds()


@pytest.mark.parametrize("name", ["-", "mqtt://localhost/a"])
def test_a_speed_belongs_to_a_device(name: str) -> None:
    with pytest.raises(DataError, match="--baud is of a serial line"):
        open_row_source(name, SourceOptions(baud=9600))


def test_a_file_has_no_speed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1\n")
    with pytest.raises(DataError, match="is not a serial line"):
        open_port(str(tmp_path / "rows.csv"), 9600)


def test_a_device_shows_that_it_is_a_serial_line(board: SerialBoard, tmp_path: Path) -> None:
    def kind(name: str) -> type[Any]:
        source = open_row_source(name)
        source.close()
        return type(source)

    (tmp_path / "rows.csv").write_text("1\n")
    assert kind(str(board.device)) is MessageSource
    assert kind(str(tmp_path / "rows.csv")) is kind("/dev/null") is InputFile
    assert not is_serial(str(tmp_path / "missing"), None)
