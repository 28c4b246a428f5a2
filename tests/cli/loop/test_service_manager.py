"""systemd hears that a loop is ready, lives and stops, and nothing while it hangs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefold.cli.loop.alarm_delivery import AlarmDelivery
from edgefold.cli.loop.service_manager import OPENING_S, ServiceManager
from edgefold.cli.main import main
from tests.brokers import LIMIT_S


def received(listener: socket.socket) -> list[str]:
    """All datagrams that have come."""
    listener.setblocking(False)
    found = []
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        yield listener


def manager(tmp_path: Path, now: list[float], **more: str) -> ServiceManager:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "n"), **more}
    return ServiceManager(environment, lambda: "3 rows", lambda: now[0])


def test_ready_is_sent_once_and_signs_of_life_four_times_in_a_limit(
    tmp_path: Path, listener: socket.socket
) -> None:
    now = [0.0]
    with manager(tmp_path, now, WATCHDOG_USEC="20000000", WATCHDOG_PID=str(os.getpid())) as it:
        for _ in range(100):
            it.line()
        assert received(listener) == ["READY=1", "WATCHDOG=1", "STATUS=3 rows"]
        now[0] = 4.9
        it.idle()
        assert received(listener) == []
        now[0] = 5.0
        it.idle()
        assert received(listener) == ["WATCHDOG=1", "STATUS=3 rows"]
    assert received(listener) == ["STOPPING=1"]


def test_a_loop_that_hangs_sends_nothing(tmp_path: Path, listener: socket.socket) -> None:
    now = [0.0]
    with manager(tmp_path, now, WATCHDOG_USEC="1000000") as it:
        it.line()
        received(listener)
        now[0] = 100.0  # no call comes
        assert received(listener) == []


def test_an_opening_asks_for_time_and_a_stop_is_sent_once(
    tmp_path: Path, listener: socket.socket
) -> None:
    with manager(tmp_path, [0.0]) as it:
        it.opens()
        it.stops()
    assert received(listener) == [f"EXTEND_TIMEOUT_USEC={round(OPENING_S * 1e6)}", "STOPPING=1"]


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}])
def test_without_a_watchdog_of_this_process_no_sign_of_life_is_sent(
    tmp_path: Path, listener: socket.socket, more: dict[str, str]
) -> None:
    with manager(tmp_path, [0.0], **more) as it:
        it.line()
        assert received(listener) == ["READY=1", "STATUS=3 rows"]


def test_without_systemd_and_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        with ServiceManager(environment) as it:
            it.line()


def test_a_name_in_the_abstract_namespace_is_reached() -> None:
    name = f"edgefold-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        with ServiceManager({"NOTIFY_SOCKET": f"@{name}"}) as it:
            it.idle()
        assert received(listener)[0] == "READY=1"


def test_a_run_reports_to_systemd(
    tmp_path: Path, listener: socket.socket, series_bundle: Path, series_csv: Path
) -> None:
    words = [sys.executable, "-m", "edgefold.cli.main", "run", str(series_bundle)]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "9000000"}
    subprocess.run(
        [*words, "--input", str(series_csv)], env=environment, check=True, timeout=LIMIT_S
    )
    found = received(listener)
    opening = f"EXTEND_TIMEOUT_USEC={round(OPENING_S * 1e6)}"
    assert found[:3] == [opening, "READY=1", "WATCHDOG=1"] and found[-1] == "STOPPING=1"
    assert any(text.startswith("STATUS=1 rows") for text in found)


@pytest.mark.parametrize("sent", ["", "time,value\n"])
def test_a_stop_before_the_first_rows_is_no_failure(
    tmp_path: Path, listener: socket.socket, sent: str
) -> None:
    words = [sys.executable, "-m", "edgefold.cli.main", "run", "sensors", "--input", "-"]
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "n")}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as run:
        assert run.stdin is not None
        listener.settimeout(LIMIT_S)
        assert listener.recv(4096) == b"READY=1"  # it waits for rows
        run.stdin.write(sent.encode())
        run.stdin.flush()
        run.terminate()
        assert run.wait(LIMIT_S) == 0


def test_the_end_is_reported_before_alarms_are_waited_for(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command for an alarm may take seconds, in which nothing feeds the watchdog."""
    ends: list[list[str]] = []
    monkeypatch.setattr(AlarmDelivery, "__exit__", lambda *_: ends.append(received(listener)))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
    source = tmp_path / "rows.csv"
    source.write_text("time,value\n" + "".join(f"{k},{k % 7}\n" for k in range(40)))
    assert main(["run", "sensors", "--input", str(source), "--on-alarm", "true"]) == 0
    assert ends[0][-1] == "STOPPING=1" and not received(listener)
