"""Rows for the page of a loop, pages without a loop, and a client that reads their events."""

from __future__ import annotations

import http.client
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edgefold.cli.page.access import PageAddress
from edgefold.cli.page.loop_page import LoopPage
from edgefold.runtime.loop.alarm import Alarm
from edgefold.runtime.loop.watcher import RowView, WatchedRow
from tests.brokers import LIMIT_S

START = 1_700_000_000.0
HOSTILE = "<img src=x onerror=\"document.body.dataset.hit='yes'\">'\"&</script>"
ABOUT = {"input": "a.csv", "bundle": "sensors", "has_snapshot": True, "version": "1"}


def watched(
    series: str, n: int, event: str = "", value: float | None = None, missing: int = 0
) -> WatchedRow:
    """The n-th row of a sensor, a minute after the one before, with its bands."""
    time, value = START + 60.0 * (n + missing), value if value is not None else math.sin(n / 9)
    alarm = Alarm(series, event, f"t{n}", f"{value}", value, 4, 1.5) if event else None
    view = RowView(value, value + 0.1, value - 1, value + 1, -0.5, value - 0.4, value + 0.4)
    return WatchedRow(series, n + 2, time, f"t{n}", view, alarm, event)


@contextmanager
def served(token: str = "", port: int = 0, host: str = "127.0.0.1") -> Iterator[LoopPage]:
    """A page of a loop that does not run; tests give rows to its watcher."""
    with LoopPage(PageAddress(host, port), token, ABOUT) as page:
        yield page


class Events:
    """A browser's connection to the events of a page.

    Args:
        port: The page's port.
        last: The number of the last event that the browser has seen; "" for none.
        browser: The name that the browser chose for itself.
        headers: Further fields of the request.
    """

    def __init__(
        self, port: int, last: str = "", browser: str = "b", headers: dict[str, str] | None = None
    ):
        self._port, self._browser = port, browser
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        fields = {"Last-Event-ID": last} if last else {}
        self._connection.request(
            "GET", f"/events?browser={browser}", headers={**fields, **(headers or {})}
        )
        self.answer = self._connection.getresponse()
        self.last, self.run = last, ""

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def next(self) -> tuple[str, dict[str, Any]]:
        """Return the name and the data of the next event."""
        name, data = "", None
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            assert line or name or data is None, "the connection ended"
            field, _, value = line.partition(": ")
            if field == "id":
                self.last = value
            elif field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif not line and data is not None:
                self.run = data["run"] if name == "hello" else self.run
                return name, data

    def until(self, kind: str, key: str = "") -> dict[str, Any]:
        """Read events until one of a kind comes that has a key; return its data."""
        while True:
            name, data = self.next()
            if name == kind and (not key or key in data):
                return data

    def look(self, chosen: int | None, visible: list[int], seen: int = 0) -> int:
        """Say what the browser looks at; return the code of the answer."""
        body = {"browser": self._browser, "run": self.run, "chosen": chosen, "seen": seen}
        return request(self._port, "POST", "/view", json.dumps({**body, "visible": visible}))[0]


def request(
    port: int, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """Send one request; return the code, the header and the body of its answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)) as connection:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, fields)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


class RunningLoop:
    """An `edgefold run sensors` whose rows come through a pipe.

    Args:
        folder: Folder for its files; a later loop of the same folder goes on from the snapshot.
        port: Port of its page.
        words: Further options.
    """

    def __init__(self, folder: Path, port: int, *words: str):
        command = [sys.executable, "-m", "edgefold.cli.main", "run", "sensors", "--input", "-"]
        command += ["--stream", "sensor", "--time", "time", "--value", "value", "--streams", "20"]
        files = ["--output", str(folder / "out.csv"), "--snapshot", str(folder / "state.npz")]
        self._log = (folder / "log.txt").open("ab")
        self.process = subprocess.Popen(
            [*command, *files, "--page", str(port), *words],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "EDGEFOLD_CACHE": str(folder)},
        )
        self.write("sensor,time,value\n")

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0
        self.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._log.close()


def line_of(name: str, n: int, value: float) -> str:
    """A line of the n-th row of a sensor."""
    quoted = name.replace('"', '""')
    return f'"{quoted}",{int(START) + 60 * n},{value:.3f}\n'
