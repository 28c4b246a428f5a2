"""Run a user's command for each alarm in the background; the loop never waits for it.

    loop ──give──> at most 16 alarms wait ──> one command at a time ──> its end, after 60 s at most
                   (more drop the oldest)     (a thread starts it)

A command gets the alarm as one JSON object on its standard input, and in environment variables. Its
own output goes to standard error. It runs in a session of its own, so that Ctrl-C does not end it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from edgefold.cli.terminal import StatusLine, say

if TYPE_CHECKING:
    from edgefold.runtime.loop.alarm import Alarm

MOST_WAITING = 16
"""Number of alarms that wait while a command runs; the oldest are dropped if there are more."""
LIMIT_S = 60.0
"""A command that runs for so many seconds is ended."""
GRACE_S = 5.0
"""Seconds for which the end of the loop waits for the commands of the last alarms."""
ENDING_S = 2.0
"""Seconds from SIGTERM to SIGKILL for a command that is ended."""
WAKE_S = 0.2


def command_words(text: str) -> list[str]:
    """Split a command into words as a shell does, and check that its program exists, for argparse.

    There is no shell: a pipe, `$HOME` or `*` mean something only in `sh -c '...'`.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a command: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    if shutil.which(words[0]) is None:
        raise argparse.ArgumentTypeError(
            f"{words[0]!r} is no program that can be run; give its path, or sh -c '...' for what "
            "only a shell understands"
        )
    return words


class AlarmCommand:
    """Runs a command for each alarm, one at a time; use it as a context manager.

    The end of the block waits some seconds for alarms that wait, then ends the running command.

    Args:
        words: The program and its arguments.
        limit_s: Seconds after which a command is ended.
        grace_s: Seconds for which the end of the block waits.

    Attributes:
        n_run: Number of commands that were started.
        n_failed: Number of commands that did not start, had to be ended, or ended with a code that
            is not 0.
        n_dropped: Number of alarms for which no command was started.
    """

    def __init__(self, words: Sequence[str], limit_s: float = LIMIT_S, grace_s: float = GRACE_S):
        self._words, self._limit_s, self._grace_s = [*words], limit_s, grace_s
        self._waiting: deque[Alarm] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._work, name="on-alarm", daemon=True)
        self.n_run = self.n_failed = self.n_dropped = 0

    def __enter__(self) -> AlarmCommand:
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
            self._thread.join(2 * ENDING_S)

    def give(self, alarm: Alarm) -> None:
        """Let the command run for an alarm once those before it have ended; return at once."""
        with self._changed:
            if len(self._waiting) == MOST_WAITING:
                self._waiting.popleft()
                self.n_dropped += 1
            self._waiting.append(alarm)
            self._changed.notify()

    @property
    def summary(self) -> str:
        """Return in words how many commands ran and failed, and how many alarms were dropped."""
        text = f"{self.n_run:,} {'command' if self.n_run == 1 else 'commands'} started"
        if self.n_failed:
            text += f", {self.n_failed:,} failed"
        if self.n_dropped:
            alarms = "alarm" if self.n_dropped == 1 else "alarms"
            text += f"; {self.n_dropped:,} {alarms} without a command, since earlier ones ran"
        return text

    # In the thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._is_closing):
                    self._changed.wait()
                if not self._waiting:
                    return
                alarm = self._waiting.popleft()
            if reason := self._run(alarm):
                self._report(reason)

    def _run(self, alarm: Alarm) -> str:
        """Run the command for one alarm until it ends; return why it failed, or ""."""
        try:
            # A file instead of a pipe: a command that does not read it keeps nobody waiting.
            with tempfile.TemporaryFile() as content:
                content.write(json.dumps(alarm.to_json()).encode() + b"\n")
                content.seek(0)
                process = subprocess.Popen(
                    self._words,
                    stdin=content,
                    stdout=2,
                    env={**os.environ, **_environment(alarm)},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            return f"did not start: {error}"
        self.n_run += 1
        if not self._has_ended(process):
            why = "the run ended" if self._stops.is_set() else f"it took {self._limit_s:g} s"
            _end(process)
            return f"was ended, because {why}"
        code = process.returncode
        return (f"ended with code {code}" if code > 0 else f"ended by signal {-code}") * bool(code)

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until a process has ended; return False if it must be ended."""
        start_s = time.monotonic()
        while not self._stops.is_set() and time.monotonic() - start_s < self._limit_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(WAKE_S)
                return True
        return process.poll() is not None

    def _report(self, reason: str) -> None:
        """Count a failure, and print it if it is the first, 10th, 100th and so on."""
        self.n_failed += 1
        n = self.n_failed
        if str(n).strip("0") == "1":
            StatusLine().clear()
            so_far = f" ({n:,} have failed so far)" if n > 1 else ""
            say(f"edgefold: --on-alarm: {self._words[0]} {reason}{so_far}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started, and wait until it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_S)
            return


def _environment(alarm: Alarm) -> dict[str, str]:
    """Return an alarm as environment variables, which can hold no NUL character."""
    texts = {"EVENT": alarm.event, "TIME": alarm.time, "VALUE": alarm.text, "SERIES": alarm.series}
    return {f"EDGEFOLD_{name}": text.replace("\0", "") for name, text in texts.items()}
