"""Keep the last rows of one sensor for the page, in memory of a fixed size."""

from __future__ import annotations

import math

import numpy as np

from edgefold.runtime.loop.watcher import WatchedRow

WIDTH = 10
"""Numbers of a row: number, time, value, mean, four bounds of bands, log density, alarm."""
ALL_ROWS = 40_000
"""Rows of all sensors together, which take 3.2 MB."""
MOST_ROWS, LEAST_ROWS = 300, 40


def rows_of_each(n_sensors: int) -> int:
    """Return how many last rows are kept of each sensor, so that all take a fixed memory."""
    return max(LEAST_ROWS, min(MOST_ROWS, ALL_ROWS // max(n_sensors, 1)))


class RowHistory:
    """Keeps the last rows of one sensor.

    Args:
        most: The number of rows that are kept.
    """

    def __init__(self, most: int):
        self._rows = np.empty((most, WIDTH))
        self._n = 0

    def add(self, number: int, row: WatchedRow) -> None:
        """Keep a row under a number that rises from row to row."""
        view = row.view
        self._rows[self._n % len(self._rows)] = (
            *(number, row.time, view.value, view.mean),
            *(view.low, view.lower_quartile, view.upper_quartile, view.high),
            *(view.log_density, row.alarm is not None),
        )
        self._n += 1

    def after(self, number: int, most: int) -> list[list[float | None]]:
        """Return the rows after a number, the newest `most` of them, the oldest first.

        NaN and infinite numbers become None, as JSON has neither.
        """
        size = len(self._rows)
        begin = max(self._n - min(size, most), 0)
        places = np.arange(begin, self._n) % size
        rows = self._rows[places]
        return [[_short(n) for n in row] for row in rows[rows[:, 0] > number].tolist()]

    def values(self, number: int, most: int) -> list[float | None]:
        """Return the values of the rows after a number, the newest `most` of them."""
        size = len(self._rows)
        places = np.arange(max(self._n - min(size, most), 0), self._n) % size
        rows = self._rows[places]
        return [_short(n) for n in rows[rows[:, 0] > number, 2].tolist()]


def _short(number: float) -> float | None:
    """Return a number with at most 12 digits, which makes it short as text; None for NaN."""
    return float(f"{number:.12g}") if math.isfinite(number) else None
