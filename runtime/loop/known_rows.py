"""Find rows that come again though they were learned: a message broker or a second copy sends them.

    a file after a pipe     it may repeat the pipe's rows
    a new connection        a broker sends again what it does not know to be received

A row is known if its time is not later than that of its sensor's newest row. This holds from such
an event on, and ends for a sensor with its first later row, since rows of one sensor come in
order. It also ends after an hour, because the sensor's clock may have been set back meanwhile. The
snapshot keeps for which sensors it holds (`pending`): a run that is killed among such rows goes on
among them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

LIMIT_S = 3600.0


class KnownRows:
    """Decides whether a row was learned before.

    Args:
        clock: Function that returns a time in seconds that never goes back.

    Attributes:
        n_skipped: Number of rows that were known.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._newest: dict[str, float] = {}
        self._until_s = math.inf
        self.n_skipped = 0

    def expect(self, newest: Mapping[str, float], limit_s: float = LIMIT_S) -> None:
        """Take rows up to these times as known, from now on.

        Args:
            newest: The time of each sensor's newest row, by the sensor's name; NaN for rows without
                times, which are never known.
            limit_s: Seconds after which no row is known any more.
        """
        self._newest = dict(newest)
        self._until_s = self._clock() + limit_s

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the names of the sensors whose next row may be known."""
        return tuple(self._newest) if self._clock() < self._until_s else ()

    def skips(self, name: str, time: float) -> bool:
        """Return whether a row was learned before; such a row is counted.

        Args:
            name: The name of the row's sensor.
            time: The row's time.
        """
        if not self._newest:
            return False
        newest = self._newest.get(name, math.nan)
        if time <= newest and self._clock() < self._until_s:
            self.n_skipped += 1
            return True
        self._newest.pop(name, None)
        return False
