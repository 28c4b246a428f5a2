"""The last values of a series in a ring, and which rows were learned, both in fixed memory."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import SnapshotError

SETTLED_ROWS = 4
"""Rows without a long gap after which a history is trusted: more than a fault of three rows."""
SEEN_ROWS = 10_000
"""Steps that are remembered row by row: more than a year of hours."""


class History:
    """The last values of one stretch of a series, one for each step.

    Args:
        size: Values kept.

    Attributes:
        count: Values in the ring.
        last_time: Time of the newest row; NaN before the first.
        since: Time of the first row after the last long gap, or of the first row.
        n_settled: Rows after the last long gap, at most SETTLED_ROWS.
    """

    def __init__(self, size: int):
        self._ring = np.zeros(size)
        self._head = 0  # where the next value goes
        self.clear()

    def clear(self) -> None:
        """Forget every row."""
        self._head = self.count = self.n_settled = 0
        self.last_time = self.since = math.nan

    @property
    def is_full(self) -> bool:
        """Whether the ring holds as many values as it can."""
        return self.count == len(self._ring)

    @property
    def is_settled(self) -> bool:
        """Whether enough rows came without a long gap to trust their times."""
        return self.n_settled == SETTLED_ROWS

    @property
    def last_value(self) -> float:
        """Value of the newest row; 0 before the first."""
        return float(self._ring[self._head - 1]) if self.count else 0.0

    @property
    def mean(self) -> float:
        """Mean of a full ring."""
        return float(self._ring.mean())

    @property
    def largest_change(self) -> float:
        """The largest change from one value to the next; 0 where there are fewer than two."""
        values = np.roll(self._ring, -self._head)[len(self._ring) - self.count :]
        return float(np.abs(np.diff(values)).max(initial=0.0))

    def back(self, k: int) -> float:
        """The value k steps before the newest."""
        return float(self._ring[(self._head - 1 - k) % len(self._ring)])

    def append(self, time: float, value: float, n_missing: int = 0) -> None:
        """Add a row; the rows missing before it are interpolated."""
        size, last = len(self._ring), self.last_value
        for k in range(max(0, n_missing - size), n_missing):
            self._put(last + (value - last) * (k + 1) / (n_missing + 1))
        self._put(value)
        if math.isnan(self.since):
            self.since = time
        self.n_settled = min(self.n_settled + 1, SETTLED_ROWS)
        self.last_time = time

    def begin_stretch(self, time: float) -> None:
        """Count settled rows again from 0, from a row that comes at `time` after a long gap."""
        self.since, self.n_settled = time, 0

    def _put(self, value: float) -> None:
        self._ring[self._head] = value
        self._head = (self._head + 1) % len(self._ring)
        self.count = min(self.count + 1, len(self._ring))

    def copy_from(self, other: History) -> None:
        """Become equal to a history of the same size."""
        self._ring[:] = other._ring
        self._head, self.count, self.n_settled = other._head, other.count, other.n_settled
        self.last_time, self.since = other.last_time, other.since

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copy everything that a snapshot must keep for `load`."""
        return {
            "ring": self._ring.copy(),
            "position": np.array([self._head, self.count], dtype=np.int64),
            "last_time": np.array(self.last_time),
            "stretch": np.array([self.since, self.n_settled]),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned, whose shapes and types are right.

        Raises:
            SnapshotError: The content is damaged; this history is then of no use.
        """
        head, count = (int(n) for n in arrays["position"])
        since, n_settled = (float(n) for n in arrays["stretch"])
        size, last_time = len(self._ring), float(arrays["last_time"])
        times = (last_time, since) if count else ()
        if not (
            0 <= head < size
            and 0 <= count <= size
            and np.isfinite(arrays["ring"]).all()
            and all(map(math.isfinite, times))
            and n_settled in range(SETTLED_ROWS + 1)
        ):
            raise SnapshotError("the snapshot's series rows are damaged; start without it.")
        self._ring[:] = arrays["ring"]
        self._head, self.count, self.n_settled = head, count, int(n_settled)
        self.last_time, self.since = last_time, since


class SeenRows:
    """Decides whether a row with an old time was already learned.

    A table has one slot for each of the last 10,000 steps; it holds 16 bits of the row's checksum.
    A new row is taken for a known one in 1 of 65,000 cases, a known one for a new one only where
    two rows came within one step.

    Args:
        step: Usual time between two rows.
    """

    def __init__(self, step: float):
        self._step = step
        self._table = np.zeros(SEEN_ROWS, dtype=np.uint16)
        self._first = self._since = math.inf  # oldest time learned, oldest time in the table

    def add(self, time: float, value: float) -> None:
        """Remember a row."""
        self._first, self._since = min(self._first, time), min(self._since, time)
        self._table[self._slot(time)] = _checksum(time, value)

    def holds(self, time: float, value: float) -> bool:
        """Whether this row was learned among the last ones."""
        return int(self._table[self._slot(time)]) == _checksum(time, value)

    def may_have_held(self, time: float, newest: float) -> bool:
        """Whether a row of this time may have been learned longer ago than the table reaches."""
        return self._first <= time < max(self._since, newest - SEEN_ROWS * self._step)

    def _slot(self, time: float) -> int:
        return int(time % (SEEN_ROWS * self._step) / self._step) % SEEN_ROWS

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copy everything that a snapshot must keep for `load`."""
        bounds: FloatArray = np.array([self._first, self._since])
        return {"seen": self._table.copy(), "seen_since": bounds}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned, whose shapes and types are right.

        Raises:
            SnapshotError: The content is damaged.
        """
        first, since = (float(n) for n in arrays["seen_since"])
        if not first <= since:
            raise SnapshotError("the snapshot's table of rows is damaged; start without it.")
        self._table[:] = arrays["seen"]
        self._first, self._since = first, since


def _checksum(time: float, value: float) -> int:
    return zlib.crc32(struct.pack("<dd", time, value)) % 65535 + 1
