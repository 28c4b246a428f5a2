"""Take the points out of batches of rows: leave out nulls, refuse bad values, number groups."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from edgefold.fleets.conditioning.keys import GroupNumbers
from edgefold.fleets.conditioning.setup import ConditionSetup
from edgefold.fleets.tables.batches import LakeBatch
from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError

READ, POINTS = "rows read", "points"
NULL, NO_GROUP, BAD, FILTERED = "null", "without a group", "bad", "filtered"
"""Why rows are left out; their counts have these names."""


class PointRows(NamedTuple):
    """Holds the points of a batch.

    Attributes:
        x: The inputs, (n, X).
        y: The outputs, (n, Y).
        groups: The number of each point's group, (n,).
        rows: The number of each point's row in its file, (n,).
        left_out: The numbers of the groups of rows that are left out, (m,); of rows without a
            group there is none.
    """

    x: FloatArray
    y: FloatArray
    groups: Array
    rows: Array
    left_out: Array


class PointReader:
    """Takes points out of batches.

    Args:
        setup: Which columns are read, and whether bad values are left out.
        manifest: The bundle's manifest, which says what values are bad.
        numbers: Gives groups their numbers.
        counts: Receives the numbers of rows read and left out.
    """

    def __init__(
        self,
        setup: ConditionSetup,
        manifest: Manifest,
        numbers: GroupNumbers,
        counts: Counter[str],
    ):
        self._setup, self._numbers, self._counts = setup, numbers, counts
        self._names = (*setup.x, *setup.y)
        scalings = manifest.scaling_x, manifest.scaling_y
        self._shift = np.concatenate([scaling.shift for scaling in scalings])
        self._scale = np.concatenate([scaling.scale for scaling in scalings])
        self._limit = manifest.prediction.largest_input

    def points(self, batch: LakeBatch) -> PointRows:
        """Return the points of a batch.

        Raises:
            DataError: A value is NaN, infinite or absurdly large, and bad rows are not left out.
        """
        n, counts = len(batch), self._counts
        counts[READ] += batch.stop - batch.start
        counts[FILTERED] += batch.stop - batch.start - n
        groups = self._numbers.of(batch)
        values = np.empty((n, len(self._names)))
        sound = np.ones(n, np.bool_)
        for i, name in enumerate(self._names):
            column, is_null = batch.numbers(name)
            values[:, i] = column
            if is_null is not None:
                sound &= ~is_null
        grouped = groups >= 0
        counts[NULL] += n - int(np.count_nonzero(sound))
        counts[NO_GROUP] += int(np.count_nonzero(sound & ~grouped))
        sound &= grouped
        # A comparison with NaN is false, so that one comparison finds all that is bad.
        with np.errstate(invalid="ignore", over="ignore"):
            fine = (np.abs((values - self._shift) / self._scale) <= self._limit).all(axis=1)
        bad = sound & ~fine
        if (n_bad := int(np.count_nonzero(bad))) and not self._setup.skip_bad:
            self._refuse(batch, values, int(np.argmax(bad)))
        counts[BAD] += n_bad
        sound &= fine
        left_out = groups[grouped & ~sound]
        rows = batch.rows
        if not sound.all():
            values, groups, rows = values[sound], groups[sound], rows[sound]
        counts[POINTS] += len(rows)
        n_x = len(self._setup.x)
        return PointRows(values[:, :n_x], values[:, n_x:], groups, rows, left_out)

    def _refuse(self, batch: LakeBatch, values: FloatArray, i: int) -> None:
        scaled = np.abs((values[i] - self._shift) / self._scale)
        column = int(np.argmin(scaled <= self._limit))
        raise DataError(
            f"{batch.file.path}: row {int(batch.rows[i]):,} (from 0) holds {values[i, column]:g} "
            f"in column {self._names[column]!r}: NaN, infinite, or beyond {self._limit:g} scale "
            "units of the model. Correct it, or give --skip-bad, which leaves such rows out and "
            "counts them."
        )


class PointWindow:
    """Collects points until there are many, and hands them out group by group, in their order.

    The time of a call for each group is paid once a window, not once a batch.

    Args:
        n_rows: The most points.
        n_x: The number of columns of x.
        n_y: The number of columns of y.
    """

    def __init__(self, n_rows: int, n_x: int, n_y: int):
        self._x, self._y = np.empty((n_rows, n_x)), np.empty((n_rows, n_y))
        self._groups = np.empty(n_rows, np.int64)
        self._n = 0

    def take(self, points: PointRows, start: int) -> int:
        """Copy points from point `start` on, as many as fit; return how many those were."""
        n = min(len(points.rows) - start, len(self._groups) - self._n)
        place, part = slice(self._n, self._n + n), slice(start, start + n)
        self._x[place], self._y[place] = points.x[part], points.y[part]
        self._groups[place] = points.groups[part]
        self._n += n
        return n

    @property
    def is_full(self) -> bool:
        """Return whether no more point fits."""
        return self._n == len(self._groups)

    def empty(self) -> list[tuple[int, FloatArray, FloatArray]]:
        """Return each group's number, x (n, X) and y (n, Y), and forget all points."""
        n, self._n = self._n, 0
        groups = self._groups[:n]
        if not n:
            return []
        if (groups == groups[0]).all():
            return [(int(groups[0]), self._x[:n], self._y[:n])]
        if groups.max() < 1 << 16:
            groups = groups.astype(np.uint16)  # which numpy sorts by digits, in a tenth of the time
        order = np.argsort(groups, kind="stable")
        self._x[:n], self._y[:n] = self._x[order], self._y[order]
        ordered = groups[order]
        edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), n]
        return [(int(ordered[a]), self._x[a:b], self._y[a:b]) for a, b in pairwise(edges)]
