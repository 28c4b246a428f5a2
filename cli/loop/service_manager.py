"""Report to systemd that a loop is ready, that it goes on, and that it stops.

systemd names a socket in NOTIFY_SOCKET; without it nothing is sent. With WatchdogSec= in the unit
it restarts a service that was silent for so long. The loop's own steps feed this watchdog, each row
and each wait for rows: a loop that hangs in a step, on a disk or in a lock feeds it no more. A
timer next to the loop would go on feeding it. While a bundle is opened nothing can feed it, so a
longer time is asked for that (`ServiceManager.opens`); the end is reported before the last
deliveries are waited for, because from then on systemd's limit for stopping counts.

The protocol is that of sd_notify(3): datagrams of lines NAME=value.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from edgefold.runtime.loop.watcher import LoopWatcher

LEAST_S = 0.1
STATUS_S = 5.0
OPENING_S = 600.0
"""Seconds that systemd is asked to wait for a bundle that is opened, on a slow machine."""


class ServiceManager(LoopWatcher):
    """Sends what systemd wants to know; use it as a context manager around the loop.

    Args:
        environment: The environment, with NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
        status: Function that returns a sentence on the loop, which `systemctl status` shows.
        clock: Function that returns a time in seconds that never goes back.

    Attributes:
        status: The function of the sentence, which may be replaced.
    """

    wants_rows = False

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        status: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ):
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.status, self._clock = status, clock
        self._socket: socket.socket | None = None
        self._feed_s = _watchdog_s(environment)
        self._next_feed_s = self._next_status_s = 0.0
        self._is_ready = self._is_stopping = False

    def __enter__(self) -> ServiceManager:
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        self.stops()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def opens(self) -> None:
        """Ask for `OPENING_S` seconds, because a bundle is opened next, which gives no sign."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(OPENING_S * 1e6)}")

    def stops(self) -> None:
        """Send, once, that the loop has ended, and what is left is on its way out."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1")

    def line(self) -> None:
        self._goes_on()

    def idle(self) -> None:
        self._goes_on()

    def saved(self) -> None:
        self._goes_on()

    def _goes_on(self) -> None:
        """Send that the loop is ready, once, and then that it lives, not more often than needed."""
        if self._socket is None:
            return
        now_s = self._clock()
        if not self._is_ready:
            self._is_ready = True
            self._send("READY=1")
        if self._feed_s and now_s >= self._next_feed_s:
            self._next_feed_s = now_s + self._feed_s
            self._send("WATCHDOG=1")
        if now_s >= self._next_status_s:
            self._next_status_s = now_s + STATUS_S
            self._send(f"STATUS={self.status()}")

    def _send(self, text: str) -> None:
        if self._socket is not None:
            # A name in the abstract namespace is written with @ for its leading NUL.
            address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
            with suppress(
                OSError
            ):  # systemd is restarted, or its queue is full: the next one comes
                self._socket.sendto(text.encode(), address)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Return the seconds between two signs of life, a quarter of WatchdogSec=; 0 without one."""
    pid, limit = environment.get("WATCHDOG_PID", ""), environment.get("WATCHDOG_USEC", "")
    if not limit.isdigit() or (pid and pid != str(os.getpid())):
        return 0.0
    return max(LEAST_S, int(limit) / 4e6)
