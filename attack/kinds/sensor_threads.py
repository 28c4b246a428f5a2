"""Threads that share one `Sensors`, each with a sensor of its own.

A call while another one runs must be refused with BusyError and change nothing: afterwards each
sensor is, bit for bit, one that was given alone the rows that were accepted.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

from attack.kinds.sensor_calls import FreshSensors, state_of
from attack.outcomes import Outcome, cause_of, random_of
from edgefold.runtime import BusyError, Sensors

SWITCH_S = 1e-5
"""The interval after which the interpreter lets another thread run: short, so that calls meet."""


class Cases:
    """Cases of several threads; the subjects are not used, since the model is the shipped one."""

    def __init__(self, subjects: Path, scratch: Path):
        self._scratch = scratch
        self._fresh, self._other = FreshSensors(), FreshSensors()

    def _draw(self, number: int) -> tuple[int, int, np.random.Generator]:
        random = random_of("sensor_threads", number)
        return int(random.integers(2, 6)), int(random.integers(5, 40)), random

    def describe(self, number: int) -> str:
        """Say how many threads there are, and how many rows each gives."""
        n_threads, n_rows, _ = self._draw(number)
        return f"{n_threads} threads of {n_rows} rows"

    def play(self, number: int) -> Outcome:
        """Run the threads, then give the accepted rows to fresh Sensors, and compare."""
        n_threads, n_rows, random = self._draw(number)
        sensors = self._fresh()
        values = random.normal(size=(n_threads, n_rows))
        others = random.random((n_threads, n_rows))
        taken: list[list[int]] = [[] for _ in range(n_threads)]
        faults: list[str] = []
        n_busy = [0] * n_threads

        def feed(thread: int) -> None:
            name = f"sensor {thread}"
            for row in range(n_rows):
                try:
                    sensors.step(float(row), values[thread, row], name)
                    taken[thread].append(row)
                    self._read(sensors, name, others[thread, row], thread)
                except BusyError:
                    n_busy[thread] += 1
                except Exception as error:
                    faults.append(cause_of(error))

        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            threads = [threading.Thread(target=feed, args=(n,)) for n in range(n_threads)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        finally:
            sys.setswitchinterval(before)
        if faults:
            return Outcome("traceback", faults[0])
        other = self._other()
        for thread, rows in enumerate(taken):
            for row in rows:
                other.step(float(row), values[thread, row], f"sensor {thread}")
        if state_of(sensors) != state_of(other):
            return Outcome("wrong", "a sensor is not one of the rows that were accepted")
        return Outcome("refused" if any(n_busy) else "accepted")

    def _read(self, sensors: Sensors, name: str, kind: float, thread: int) -> None:
        """Make one more call now and then, which must not change anything."""
        if kind < 0.1:
            sensors.path(3, name)
        elif kind < 0.3:
            sensors.ahead("season", name)
        elif kind < 0.33:
            sensors.save(self._scratch / f"{thread}.npz")
