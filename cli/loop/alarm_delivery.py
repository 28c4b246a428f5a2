"""Deliver each alarm in the background, by a command or a webhook; the loop never waits for it.

loop ──give──> at most 16 alarms wait ──> one delivery at a time, in a thread
               (more drop the oldest)
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from edgefold.cli.terminal import StatusLine, say

if TYPE_CHECKING:
    from edgefold.runtime.loop.alarm import Alarm

MOST_WAITING = 16
"""Number of alarms that wait during a delivery; the oldest are dropped if there are more."""
GRACE_S = 5.0
"""Seconds for which the end of the loop waits for the deliveries of the last alarms."""
END_S = 4.0
"""Seconds for which a delivery that was asked to end is waited for."""


class AlarmAction(Protocol):
    """Delivers one alarm.

    Attributes:
        name: The command or the address, for messages.
        noun: The word for one delivery, for the summary.
    """

    name: str
    noun: str

    def deliver(self, alarm: Alarm, stops: threading.Event) -> str:
        """Deliver an alarm; return why it failed, or "".

        Args:
            alarm: The alarm.
            stops: Event after which the delivery must end soon.
        """


class AlarmDelivery:
    """Delivers alarms one at a time; use it as a context manager.

    The end of the block waits some seconds for alarms that wait, then ends the delivery.

    Args:
        action: Delivers one alarm.
        grace_s: Seconds for which the end of the block waits.

    Attributes:
        n_begun: Number of deliveries that were begun.
        n_failed: Number of deliveries that failed.
        n_dropped: Number of alarms for which no delivery was begun.
    """

    def __init__(self, action: AlarmAction, grace_s: float = GRACE_S):
        self._action, self._grace_s = action, grace_s
        self._waiting: deque[Alarm] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._work, name="on-alarm", daemon=True)
        self.n_begun = self.n_failed = self.n_dropped = 0

    def __enter__(self) -> AlarmDelivery:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        try:
            self._thread.join(self._grace_s)
        finally:  # also if Ctrl-C ends the wait
            with self._changed:
                self.n_dropped += len(self._waiting)
                self._waiting.clear()
            self._stops.set()
            self._thread.join(END_S)

    def give(self, alarm: Alarm) -> None:
        """Let an alarm be delivered once those before it are; return at once."""
        with self._changed:
            if len(self._waiting) == MOST_WAITING:
                self._waiting.popleft()
                self.n_dropped += 1
            self._waiting.append(alarm)
            self._changed.notify()

    @property
    def summary(self) -> str:
        """Return in words how many deliveries were begun and failed, and how many dropped."""
        noun = self._action.noun
        text = f"{self.n_begun:,} {noun if self.n_begun == 1 else noun + 's'} started"
        if self.n_failed:
            text += f", {self.n_failed:,} failed"
        if self.n_dropped:
            alarms = "alarm" if self.n_dropped == 1 else "alarms"
            text += f"; {self.n_dropped:,} {alarms} without a {noun}, since earlier ones ran"
        return text

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._is_closing):
                    self._changed.wait()
                if not self._waiting:
                    return
                alarm = self._waiting.popleft()
            self.n_begun += 1
            if reason := self._action.deliver(alarm, self._stops):
                self._report(reason)

    def _report(self, reason: str) -> None:
        """Count a failure, and print it if it is the first, 10th, 100th and so on."""
        self.n_failed += 1
        n = self.n_failed
        if str(n).strip("0") == "1":
            StatusLine().clear()
            so_far = f" ({n:,} have failed so far)" if n > 1 else ""
            say(f"edgefold: --on-alarm: {self._action.name} {reason}{so_far}")
