"""Keep in fixed memory a ring of the last values of a series, and which rows were learned.

A step is the usual time between two rows.
"""

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
"""The number of rows without a long gap after which a history is trusted: a fault may last three
rows."""
SEEN_ROWS = 10_000
"""The number of last steps (usual times between two rows) in which each learned row is remembered:
more than a year of hours."""


class History:
    """Keeps the last values of a series, one for each step, in a ring of fixed size.

    Args:
        size: The number of values that the ring keeps.

    Attributes:
        count: The number of values in the ring.
        last_time: The time of the newest row; NaN before the first.
        since: The time of the first row after the last long gap, or of the first row.
        n_settled: The number of rows after the last long gap, at most SETTLED_ROWS.
    """

    def __init__(self, size: int):
        self._ring = np.zeros(size)
        self._head = 0  # where the next value goes
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._head = self.count = self.n_settled = 0
        self.last_time = self.since = math.nan

    @property
    def is_full(self) -> bool:
        """Return whether the ring holds as many values as it can."""
        return self.count == len(self._ring)

    @property
    def is_settled(self) -> bool:
        """Return whether enough rows came without a long gap to trust their times."""
        return self.n_settled == SETTLED_ROWS

    @property
    def last_value(self) -> float:
        """Return the value of the newest row; 0 before the first."""
        return float(self._ring[self._head - 1]) if self.count else 0.0

    @property
    def mean(self) -> float:
        """Return the mean of the values in the ring, which must be full."""
        return float(self._ring.mean())

    @property
    def largest_change(self) -> float:
        """Return the largest absolute change between neighbour values; 0 with fewer than two."""
        values = np.roll(self._ring, -self._head)[len(self._ring) - self.count :]
        return float(np.abs(np.diff(values)).max(initial=0.0))

    def back(self, k: int) -> float:
        """Return the value k steps before the newest one."""
        return float(self._ring[(self._head - 1 - k) % len(self._ring)])

    def append(self, time: float, value: float, n_missing: int = 0) -> None:
        """Add a row; the values of the `n_missing` missing rows before it are interpolated."""
        size, last = len(self._ring), self.last_value
        for k in range(max(0, n_missing - size), n_missing):
            self._put(last + (value - last) * (k + 1) / (n_missing + 1))
        self._put(value)
        if math.isnan(self.since):
            self.since = time
        self.n_settled = min(self.n_settled + 1, SETTLED_ROWS)
        self.last_time = time

    def begin_stretch(self, time: float) -> None:
        """Count rows for `is_settled` from 0 again: a row at `time` will follow a long gap."""
        self.since, self.n_settled = time, 0

    def _put(self, value: float) -> None:
        self._ring[self._head] = value
        self._head = (self._head + 1) % len(self._ring)
        self.count = min(self.count + 1, len(self._ring))

    def copy_from(self, other: History) -> None:
        """Copy all rows and counts from another history of the same size."""
        self._ring[:] = other._ring
        self._head, self.count, self.n_settled = other._head, other.count, other.n_settled
        self.last_time, self.since = other.last_time, other.since

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        return {
            "ring": self._ring.copy(),
            "position": np.array([self._head, self.count], dtype=np.int64),
            "last_time": np.array(self.last_time),
            "stretch": np.array([self.since, self.n_settled]),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays that `arrays` returned; their shapes and types must be right.

        Raises:
            SnapshotError: The content of the arrays is damaged; this history must not be used then.
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

    A table has one place for each of the last 10,000 steps, which holds 16 bits of the checksum of
    the row in this step. A new row is taken for a known one in 1 of 65,000 cases. A known row is
    taken for a new one only if two rows came within one step.

    Args:
        step: The usual time between two rows.
    """

    def __init__(self, step: float):
        self._step = step
        self._table = np.zeros(SEEN_ROWS, dtype=np.uint16)
        self._first = self._since = math.inf  # oldest time learned, oldest time in the table

    def add(self, time: float, value: float) -> None:
        """Remember a row that was learned."""
        self._first, self._since = min(self._first, time), min(self._since, time)
        self._table[self._slot(time)] = _checksum(time, value)

    def holds(self, time: float, value: float) -> bool:
        """Return whether the table holds this row, so that it was already learned."""
        return int(self._table[self._slot(time)]) == _checksum(time, value)

    def may_have_held(self, time: float, newest: float) -> bool:
        """Return whether a row so old may have been learned but has left the table since.

        Args:
            time: The time of the row.
            newest: The time of the newest row.
        """
        return self._first <= time < max(self._since, newest - SEEN_ROWS * self._step)

    def _slot(self, time: float) -> int:
        return int(time % (SEEN_ROWS * self._step) / self._step) % SEEN_ROWS

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        bounds: FloatArray = np.array([self._first, self._since])
        return {"seen": self._table.copy(), "seen_since": bounds}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays that `arrays` returned; their shapes and types must be right.

        Raises:
            SnapshotError: The content of the arrays is damaged.
        """
        first, since = (float(n) for n in arrays["seen_since"])
        if not first <= since:
            raise SnapshotError("the snapshot's table of rows is damaged; start without it.")
        self._table[:] = arrays["seen"]
        self._first, self._since = first, since


def _checksum(time: float, value: float) -> int:
    return zlib.crc32(struct.pack("<dd", time, value)) % 65535 + 1
