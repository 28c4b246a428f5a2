"""A service manager restarts a loop that hangs, without a loss, and leaves a quiet one alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.loop.service_manager import OPENING_S
from edgefold.runtime.loop.record import RECORD
from tests.brokers import LIMIT_S, free_port, until
from tests.supervisor import supervised

COMMAND = [sys.executable, "-m", "edgefold.cli.main", "run", "sensors"]
SIGNS_IN_A_LIMIT = 4
WATCHDOG_S = 5.0
"""A quarter of it is far longer than any machine keeps a process from running."""
HEADER = "time,value\n"


def rows(start: int, stop: int) -> str:
    return "".join(
        f"{1_700_000_000 + k},{20 + k % 7 + k % 3 / 10:.1f}\n" for k in range(start, stop)
    )


def n_kept(snapshot: Path) -> int:
    """Return how many rows a snapshot knows."""
    with suppress(FileNotFoundError), np.load(snapshot) as archive:
        return int(json.loads(archive[f"extra.{RECORD}"].tobytes())["counters"]["rows"])
    return 0


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[int]:
    """A named pipe that stays open, as a socket unit holds it."""
    os.mkfifo(tmp_path / "in")
    handle = os.open(tmp_path / "in", os.O_RDWR)
    yield handle
    os.close(handle)


@pytest.mark.long
def test_a_loop_that_stands_still_is_restarted_and_goes_on_with_every_row(
    tmp_path: Path, pipe: int
) -> None:
    output, snapshot = tmp_path / "out.csv", tmp_path / "state.npz"
    files = ["--output", str(output), "--snapshot", str(snapshot), "--every", "1"]
    with supervised(
        [*COMMAND, "--input", "-", *files], tmp_path, WATCHDOG_S, stdin=pipe
    ) as service:
        os.write(pipe, (HEADER + rows(0, 100)).encode())
        until(lambda: n_kept(snapshot) == 100, f"100 rows in {snapshot}")
        stuck = service.pid
        os.kill(stuck, signal.SIGSTOP)
        os.write(pipe, rows(100, 200).encode())  # they wait in the pipe
        until(lambda: service.pid != stuck, "the restart")
        until(lambda: n_kept(snapshot) == 200, f"200 rows in {snapshot}")
        assert service.stop() == "0"
        events = service.events
    kills = [event.pid for event in events if event.kind == "kill"]
    assert kills and set(kills) == {stuck}
    ends = [event.text for event in events if event.kind == "end"]
    assert ends == [str(-signal.SIGABRT), "0"]
    whole = subprocess.run(
        [*COMMAND, "--input", "-", "--output", "-"],
        input=HEADER + rows(0, 200),
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    assert output.read_text() == whole.stdout


@pytest.mark.long
def test_a_loop_whose_output_takes_nothing_is_restarted_and_loses_no_row(tmp_path: Path) -> None:
    """A named pipe that nobody reads stands for a disk that hangs."""
    source, output, whole = tmp_path / "rows.csv", tmp_path / "out", tmp_path / "whole.csv"
    source.write_text(HEADER + rows(0, 2000))
    os.mkfifo(output)
    words = [*COMMAND, "--input", str(source), "--every", "50"]
    subprocess.run([*words, "--output", str(whole)], check=True, timeout=LIMIT_S)
    reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    files = ["--output", str(output), "--snapshot", str(tmp_path / "state.npz")]
    try:
        with supervised([*words, *files], tmp_path, WATCHDOG_S) as service:
            service.wait("end", str(-signal.SIGABRT))
            received = bytearray()

            def is_over() -> bool:
                with suppress(BlockingIOError):
                    received.extend(os.read(reader, 1 << 16))
                return bool(service.texts("end").count("0"))

            until(is_over, "the end of the restarted loop")
            assert is_over()
            while block := os.read(reader, 1 << 16):
                received.extend(block)
    finally:
        os.close(reader)
    # The row in work at the kill may be cut; it comes again behind that, like those since the
    # last snapshot.
    assert all(line in received for line in whole.read_bytes().splitlines(keepends=True)[1:])


@pytest.mark.long
@pytest.mark.parametrize("source", ["pipe", "broker"])
def test_a_loop_without_rows_is_left_alone(tmp_path: Path, pipe: int, source: str) -> None:
    if source == "broker":
        pytest.importorskip("paho.mqtt")
    away = f"mqtt://127.0.0.1:{free_port()}/home/#"
    words = [*COMMAND, "--input", "-" if source == "pipe" else away]
    with supervised(words, tmp_path, WATCHDOG_S, stdin=pipe) as service:
        # A loop gives at most four signs in a limit: these take two limits by its own clock.
        service.wait("message", "WATCHDOG=1", 2 * SIGNS_IN_A_LIMIT + 1)
        assert service.texts("message")[0].startswith(("READY", "EXTEND"))
        assert service.stop() == "0"
        assert not service.texts("kill") and len(service.texts("start")) == 1


@pytest.mark.long
def test_a_bundle_that_opens_slowly_is_no_hang(tmp_path: Path, pipe: int) -> None:
    """It opens for two limits, after the loop had waited for rows and so was ready."""
    slow = (
        "import sys, time; from edgefold.cli.commands import run;"
        "from edgefold.cli.main import main;"
        "opens = run.open_stream;"
        f"run.open_stream = lambda *words: time.sleep({2 * WATCHDOG_S}) or opens(*words);"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", slow, *COMMAND[3:], "--input", "-"]
    with supervised(words, tmp_path, WATCHDOG_S, stdin=pipe) as service:
        service.wait("message", "WATCHDOG=1")
        os.write(pipe, (HEADER + rows(0, 50)).encode())
        extended = f"EXTEND_TIMEOUT_USEC={round(OPENING_S * 1e6)}"
        service.wait("message", extended)
        service.wait("message", "WATCHDOG=1", since=len(service.events))
        assert service.stop() == "0"
        assert not service.texts("kill") and len(service.texts("start")) == 1
