"""Exceptions raised before any line that runs inside a call of `Sensors`: Ctrl-C, or no memory.

Afterwards the states of all sensors, their clocks, alarms, counts and names are, bit for bit, those
before the call or those after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from attack.kinds.exceptions import RAISED, interrupted
from attack.kinds.sensor_calls import FreshSensors, State, state_of
from attack.outcomes import Outcome, random_of
from edgefold.runtime import Sensors
from edgefold.runtime.errors import EdgefoldError

N_ROOF, N_CELLAR, HOUR = 47, 14, 3600.0
"""Rows before the interrupted call: the roof's next row looks for a season, the cellar has
forecasts."""


def give(sensors: Sensors, name: str, row: int) -> None:
    """Give a sensor the row of this number; each hour has one."""
    sensors.step(1.7e9 + row * HOUR, float(row * row % 17), name)


ACTIONS: dict[str, Callable[[Sensors, Path], object]] = {
    "a row": lambda sensors, _: give(sensors, "cellar", N_CELLAR),
    "a row with a look for a season": lambda sensors, _: give(sensors, "roof", N_ROOF),
    "a row after a gap": lambda sensors, _: give(sensors, "cellar", N_CELLAR + 4),
    "a new sensor": lambda sensors, _: give(sensors, "wall", 0),
    "path": lambda sensors, _: sensors.path(3, "cellar"),
    "ahead": lambda sensors, _: sensors.ahead(4, "cellar"),
    "save": lambda sensors, path: sensors.save(path.with_name("other.npz")),
    "restore": lambda sensors, path: sensors.restore(path),
}


class Cases:
    """Cases of exceptions at one line each; the subjects are not used."""

    def __init__(self, subjects: Path, scratch: Path):
        self._path, self._fresh = scratch / "two.npz", FreshSensors()
        self._ends = functools.cache(self._record)
        self._sensors: Sensors | None = None

    def _draw(self, number: int) -> tuple[str, int, type[BaseException]]:
        random = random_of("sensor_exceptions", number)
        action = [*ACTIONS][random.integers(len(ACTIONS))]
        line = int(random.integers(1, self._ends(action)[0] + 1))
        return action, line, RAISED[random.integers(len(RAISED))]

    def describe(self, number: int) -> str:
        """Say which call is interrupted, by what, and where."""
        action, line, error = self._draw(number)
        return f"{error.__name__} in {action} before line {line}"

    def _begin(self) -> Sensors:
        """Return Sensors of a roof, whose state is the present one, and a cellar."""
        if self._sensors is None:
            self._sensors = sensors = self._fresh()
            for name, n in (("roof", N_ROOF), ("cellar", N_CELLAR)):
                for row in range(n):
                    give(sensors, name, row)
            sensors.save(self._path)
        self._sensors.restore(self._path)
        self._sensors.ahead(1, "roof")
        return self._sensors

    def _record(self, action: str) -> tuple[int, State, State]:
        """Return a call's number of lines, and the states before it and after it."""
        sensors = self._begin()
        before = state_of(sensors)
        self._begin()
        with interrupted(0, RuntimeError) as count:
            ACTIONS[action](sensors, self._path)
            n_lines = count()
        return n_lines, before, state_of(sensors)

    def play(self, number: int) -> Outcome:
        """Interrupt one call at one line, and look at what the sensors hold."""
        action, line, error = self._draw(number)
        _, before, after = self._ends(action)
        sensors = self._begin()
        try:
            with interrupted(line, error):
                ACTIONS[action](sensors, self._path)
            ended = "accepted"
        except (error, EdgefoldError):
            ended = "resumed"
        if state_of(sensors) not in (before, after):
            self._sensors = None
            return Outcome(
                "wrong", f"{action}: neither the state before the call nor that after it"
            )
        return Outcome(ended, action)
