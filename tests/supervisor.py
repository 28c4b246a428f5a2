"""A small service manager for tests, which restarts a program as systemd does.

    start ──READY=1──> watched ──no WATCHDOG=1 for WATCHDOG_USEC──> SIGABRT, SIGKILL ──> start
      └ EXTEND_TIMEOUT_USEC moves either limit, and only to later    └ also after a failure

It follows service.c of systemd: a limit is judged only when all messages that have come are read,
SIGABRT is followed by SIGCONT, WATCHDOG=1 sets the limit anew, and STOPPING=1 ends the watchdog.
Its events are a list, in which tests look for an order; no test needs to measure a time.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.brokers import LIMIT_S, until

ABORT_S = 2.0
"""Seconds from SIGABRT to SIGKILL (TimeoutAbortSec=)."""
OWN_PID = 'WATCHDOG_PID=$$ exec "$@"'
"""Lets a shell put its number, which the program keeps, into the environment."""


class Event(NamedTuple):
    """Something that happened: "start", "message", "kill" or "end".

    Attributes:
        kind: The kind.
        text: The message, the signal's name, or the exit code.
        pid: The number of the process.
    """

    kind: str
    text: str
    pid: int


class Supervisor:
    """Runs a command as a service with Type=notify, WatchdogSec= and Restart=on-failure.

    Args:
        words: The command.
        folder: A folder for the socket.
        watchdog_s: Seconds of WatchdogSec=.
        start_s: Seconds of TimeoutStartSec=.
        stdin: What the command gets as its standard input.
        environment: Variables besides those of this process.

    Attributes:
        events: What happened, in order.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        watchdog_s: float,
        start_s: float = LIMIT_S,
        stdin: int = subprocess.DEVNULL,
        **environment: str,
    ):
        self._words, self._watchdog_s, self._start_s, self._stdin = (
            words,
            watchdog_s,
            start_s,
            stdin,
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._environment = {
            **os.environ,
            **environment,
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": str(round(watchdog_s * 1e6)),
        }
        self._errors = folder / "service-errors"
        self.events: list[Event] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    # For tests ------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The number of the process that was started last."""
        return [event.pid for event in self.events if event.kind == "start"][-1]

    def texts(self, kind: str, since: int = 0) -> list[str]:
        """The texts of the events of a kind, from event `since` on."""
        return [event.text for event in self.events[since:] if event.kind == kind]

    def wait(self, kind: str, text: str, n: int = 1, since: int = 0) -> None:
        """Wait for the n-th event of this kind and text from event `since` on."""
        what = f"{kind} {text} (after {self.errors()[-1000:]!r})"
        until(lambda: self.texts(kind, since).count(text) >= n, what)

    def errors(self) -> str:
        """Return the text that the program has printed in all its lives."""
        return self._errors.read_text(errors="replace") if self._errors.exists() else ""

    def stop(self) -> str:
        """Stop the program as `systemctl stop` does, and return its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def ended(self) -> str:
        """Wait for the end of the service, and return its exit code."""
        until(lambda: not self._thread.is_alive(), f"the end (after {self.errors()[-1000:]!r})")
        return self.texts("end")[-1]

    # In its thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the program, and watch it."""
        self._thread.start()
        until(lambda: bool(self.events), "the first start")

    def close(self) -> None:
        """Kill the program, if it still runs."""
        self._is_closing = True
        self._thread.join(LIMIT_S)
        self._socket.close()

    def _run(self) -> None:
        while self._live() not in (0, None) and not self._is_closing:
            pass

    def _live(self) -> int | None:
        """Run the program until it ends; return its exit code, or None if the test ended it."""
        with self._errors.open("ab") as errors:
            process = subprocess.Popen(
                ["sh", "-c", OWN_PID, "sh", *self._words],
                stdin=self._stdin,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=self._environment,
            )
        self._note("start", "", process)
        limit_s, is_watched = time.monotonic() + self._start_s, False
        while process.poll() is None:
            if self._is_closing:
                process.kill()
                process.wait()
                return None
            if text := self._message():
                self._note("message", text, process)
                name, _, value = text.partition("=")
                now_s = time.monotonic()
                if name == "EXTEND_TIMEOUT_USEC":
                    limit_s = max(limit_s, now_s + int(value) / 1e6)
                elif name == "READY":
                    limit_s, is_watched = now_s + self._watchdog_s, True
                elif name == "WATCHDOG" and is_watched:
                    limit_s = now_s + self._watchdog_s
                elif name == "STOPPING":
                    limit_s = now_s + self._start_s
            elif time.monotonic() >= limit_s:  # nothing else has come before
                self._abort(process)
        while text := self._message():
            self._note("message", text, process)
        self._note("end", str(process.returncode), process)
        return process.returncode

    def _message(self) -> str:
        """Return the next message; "" if none came for a while."""
        if not select.select([self._socket], [], [], 0.05)[0]:
            return ""
        return self._socket.recv(4096).decode()

    def _abort(self, process: subprocess.Popen[Any]) -> None:
        """End a program that gave no sign."""
        self._note("kill", "SIGABRT", process)
        process.send_signal(signal.SIGABRT)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(ABORT_S)
        except subprocess.TimeoutExpired:
            self._note("kill", "SIGKILL", process)
            process.kill()
            process.wait()

    def _note(self, kind: str, text: str, process: subprocess.Popen[Any]) -> None:
        self.events.append(Event(kind, text, process.pid))


@contextmanager
def supervised(*args: Any, **options: Any) -> Iterator[Supervisor]:
    """Yield a supervisor whose program runs, and end it."""
    it = Supervisor(*args, **options)
    it.start()
    try:
        yield it
    finally:
        it.close()
