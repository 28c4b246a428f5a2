"""Keep the course of a series of any length as a fixed number of pieces, each with its range."""

from __future__ import annotations

import math

import numpy as np

from edgefold.runtime.arrays import FloatArray

N_PIECES = 1024


class Overview:
    """Splits a series into pieces of equally many rows, and keeps each piece's range of values.

    When `N_PIECES` pieces are full, each two become one, so that pieces hold twice as many rows.
    """

    def __init__(self) -> None:
        self._time, self._low, self._high = np.empty((3, N_PIECES))
        self._n = 0
        self._width, self._filled = 1, 0  # rows of a piece; rows in the last one

    def add(self, time: float, value: float) -> None:
        """Add a row to the last piece or begin one; NaN as its value leaves the range as it is."""
        if self._filled == 0:
            if self._n == N_PIECES:
                self._halve()
            self._time[self._n], self._low[self._n], self._high[self._n] = time, math.nan, math.nan
            self._n += 1
        at = self._n - 1
        self._low[at] = np.fmin(self._low[at], value)
        self._high[at] = np.fmax(self._high[at], value)
        self._filled = (self._filled + 1) % self._width

    def _halve(self) -> None:
        half = N_PIECES // 2
        self._time[:half] = self._time[::2]
        self._low[:half] = np.fmin(self._low[::2], self._low[1::2])
        self._high[:half] = np.fmax(self._high[::2], self._high[1::2])
        self._n, self._width = half, 2 * self._width

    def pieces(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the pieces' first times, lowest values and highest values, (n,) each."""
        n = self._n
        return self._time[:n], self._low[:n], self._high[:n]
