"""`edgefold run` with a board on a serial line: unplugged, reset, silent, and at a wrong speed."""

from __future__ import annotations

import csv
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from edgefold.cli.main import main
from tests.brokers import until
from tests.loop_process import LoopProcess
from tests.serial_board import SerialBoard

pytestmark = pytest.mark.usefixtures("compiled_sensors")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[SerialBoard]:
    board = SerialBoard(tmp_path)
    yield board
    board.unplug()


@pytest.fixture
def loops() -> Iterator[list[LoopProcess]]:
    """Loops that a test starts, which end with it."""
    started: list[LoopProcess] = []
    yield started
    for loop in started:
        loop.kill()


def begin(board: SerialBoard, loop: LoopProcess) -> None:
    """Wait until the loop reads: what is printed before it has opened the device is lost."""
    n_rows = loop.output.read_text().count("\n") if loop.output.exists() else 0

    def has_come() -> bool:
        assert loop.process.poll() is None, loop.errors.read_text()
        board.print("ready:1")
        return loop.output.exists() and loop.output.read_text().count("\n") > n_rows

    until(has_come, "a first row")


def at(second: int) -> str:
    """A time that a board with a clock prints."""
    return f"2026-01-01T00:00:{second:02}Z"


def rows(output: Path, series: str) -> list[dict[str, str]]:
    with output.open() as file:
        return [row for row in csv.DictReader(file) if row["series"] == series]


def test_a_board_is_learned_across_a_reset_and_an_unplugged_adapter(
    board: SerialBoard, tmp_path: Path, loops: list[LoopProcess]
) -> None:
    loops.append(loop := LoopProcess(tmp_path, str(board.device), "--baud", "115200"))
    loop.wait_for_words("is not there; the loop waits for it")
    board.plug()
    begin(board, loop)
    header = "time,temp,hum"
    board.print(header, f"{at(1)},21.5,40", f"{at(2)},21.6,41", b"21.\xf8\x00")
    board.print("Booting", header, f"{at(3)},21.7,42")
    until(lambda: len(rows(loop.output, "hum")) == 3, "three rows of hum")
    board.unplug()
    loop.wait_for_words("was unplugged; the loop waits until it is there again")
    board.plug()
    begin(board, loop)
    board.print(f"{at(4)},21.8,43")
    until(lambda: len(rows(loop.output, "hum")) == 4, "four rows of hum")
    assert loop.end() == 0
    assert [row["value"] for row in rows(loop.output, "temp")] == ["21.5", "21.6", "21.7", "21.8"]
    assert [row["time"] for row in rows(loop.output, "hum")] == [at(1), at(2), at(3), at(4)]
    received = datetime.fromisoformat(
        rows(loop.output, "ready")[0]["time"].replace("Z", "+00:00")  # as Python 3.10 reads it
    )
    assert abs(received.timestamp() - time.time()) < 3600
    said = loop.errors.read_text()
    assert said.count("was unplugged") == 1
    assert "2 of 5 characters are no text" in said
    assert "the line holds no number: 'Booting'" in said


def test_a_later_run_goes_on_with_the_state_and_the_names(
    board: SerialBoard, tmp_path: Path, loops: list[LoopProcess]
) -> None:
    board.plug()
    loops.append(first := LoopProcess(tmp_path, str(board.device), "--every", "1"))
    begin(board, first)
    board.print("time,temp,hum", *[f"{at(i)},{20 + i % 3},{40 + i % 2}" for i in range(20)])
    until(lambda: len(rows(first.output, "hum")) == 20, "the rows")
    first.end(signal.SIGKILL)
    loops.append(second := LoopProcess(tmp_path, str(board.device), "--every", "1"))
    begin(board, second)
    board.print(f"{at(20)},21,40")
    until(lambda: rows(second.output, "hum")[-1]["time"] == at(20), "the row of the second run")
    assert second.end() == 0
    assert rows(second.output, "hum")[-1]["mean"] != ""  # a forecast from the first run's rows
    assert "resumed from the snapshot" in second.errors.read_text()


def test_a_wrong_speed_is_said_at_once(
    board: SerialBoard, tmp_path: Path, loops: list[LoopProcess]
) -> None:
    board.plug()
    loops.append(loop := LoopProcess(tmp_path, str(board.device)))
    loop_reads = "3 lines in a row are no text; is the baud rate right?"

    def is_said() -> bool:
        board.print(b"\xf8\x9a\xe0\x86")
        return loop_reads in loop.errors.read_text()

    until(is_said, "the sentence on the baud rate")
    assert loop.end() == 0


def test_while_it_waits_systemd_hears_of_the_loop_and_a_stop_ends_it(
    board: SerialBoard, tmp_path: Path, loops: list[LoopProcess]
) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        listener.bind(str(tmp_path / "n"))
        watched = {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "400000"}
        words = [str(board.device), "--baud", "9600"]
        loops.append(loop := LoopProcess(tmp_path, *words, environment=watched))
        listener.settimeout(60)
        news = ""
        while news.count("WATCHDOG=1") < 3 or "READY=1" not in news:
            news += listener.recv(4096).decode() + "\n"
        assert loop.end() == 0
    assert "the loop waits for it" in loop.errors.read_text()


def test_a_speed_for_a_file_and_an_unknown_speed_end_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("time,value\n2026-01-01,1\n")
    words = ["run", "sensors", "--output", os.devnull]
    assert main([*words, "--input", str(tmp_path / "rows.csv"), "--baud", "9600"]) == 1
    assert "is not a serial line" in capsys.readouterr().err
    assert main([*words, "--input", "/dev/ttyUSB77", "--baud", "9601"]) == 1
    assert "give --baud one of" in capsys.readouterr().err
    assert main([*words, "--input", "-", "--baud", "9600"]) == 1
    assert "--baud is of a serial line" in capsys.readouterr().err


def test_another_bundle_takes_the_fields_that_columns_name(
    tiny_bundle: Path, board: SerialBoard, tmp_path: Path, loops: list[LoopProcess]
) -> None:
    board.plug()
    words = ["--baud", "57600", "--columns", "x1,x2,y1"]
    loops.append(loop := LoopProcess(tmp_path, str(board.device), *words, bundle=tiny_bundle))

    def has_come() -> bool:
        assert loop.process.poll() is None, loop.errors.read_text()
        board.print("0.25,-0.5,1.5")
        return loop.output.exists() and loop.output.read_text().count("\n") > 1

    until(has_come, "a row")
    assert loop.end() == 0
    with loop.output.open() as file:
        row = next(csv.DictReader(file))
    assert (row["x1"], row["x2"], row["y1"]) == ("0.25", "-0.5", "1.5")
