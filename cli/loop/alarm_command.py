"""Run a user's command for an alarm.

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
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.runtime.loop.alarm import Alarm

LIMIT_S = 60.0
"""A command that runs for so many seconds is ended."""
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
    """Runs a command for an alarm.

    Args:
        words: The program and its arguments.
        limit_s: Seconds after which a command is ended.

    Attributes:
        name: The program.
        noun: The word for one run, for the summary.
    """

    noun = "command"

    def __init__(self, words: Sequence[str], limit_s: float = LIMIT_S):
        self._words, self._limit_s = [*words], limit_s
        self.name = words[0]

    def deliver(self, alarm: Alarm, stops: threading.Event) -> str:
        """Run the command for one alarm until it ends.

        Args:
            alarm: The alarm.
            stops: Event after which the command is ended.

        Returns:
            Why it did not start, had to be ended, or ended with a code that is not 0; else "".
        """
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
        if not self._has_ended(process, stops):
            why = "the run ended" if stops.is_set() else f"it took {self._limit_s:g} s"
            _end(process)
            return f"was ended, because {why}"
        code = process.returncode
        return (f"ended with code {code}" if code > 0 else f"ended by signal {-code}") * bool(code)

    def _has_ended(self, process: subprocess.Popen[bytes], stops: threading.Event) -> bool:
        """Wait until a process has ended; return False if it must be ended."""
        start_s = time.monotonic()
        while not stops.is_set() and time.monotonic() - start_s < self._limit_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(WAKE_S)
                return True
        return process.poll() is not None


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
