"""Count the points of each group in a slice of a file, and between which rows they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from edgefold.fleets.conditioning.groups_file import GroupKey
from edgefold.fleets.conditioning.keys import text_of
from edgefold.fleets.conditioning.point_rows import PointRows
from edgefold.fleets.conditioning.setup import RowSlice
from edgefold.runtime.stream.provenance import Piece


class LearnedRows:
    """Counts the rows of a slice of a file, group by group.

    Args:
        part: The slice.
        is_filtered: Whether a filter leaves rows out. Then pieces end at the first and the last
            point, so that filters of different times do not overlap.

    Attributes:
        n_left_out: The number of rows with nulls or bad values by the number of their group.
    """

    def __init__(self, part: RowSlice, is_filtered: bool):
        self._part, self._is_filtered = part, is_filtered
        self.n_left_out = Counter[int]()
        self._n_points = Counter[int]()
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def add(self, points: PointRows) -> None:
        """Count the points of a batch."""
        _count(self.n_left_out, points.left_out)
        _count(self._n_points, points.groups)
        if self._is_filtered:
            groups, rows = points.groups, points.rows
            numbers, first = np.unique(groups, return_index=True)
            _, last = np.unique(groups[::-1], return_index=True)
            edges = zip(numbers, rows[first], rows[::-1][last], strict=True)
            for number, start, end in edges:
                self._first.setdefault(int(number), int(start))
                self._last[int(number)] = int(end)

    def pieces(
        self, keys: Sequence[GroupKey], chosen: Sequence[tuple[int, str]]
    ) -> Iterator[tuple[int, Piece]]:
        """Yield the number of each group that has points here, and its piece.

        Args:
            keys: The values of each group, by its number.
            chosen: The index and the name of each column by whose value rows were chosen.
        """
        start, stop, source = self._part.start, self._part.stop, self._part.file.source
        for number, n in self._n_points.items():
            where = tuple((name, text_of(keys[number][i])) for i, name in chosen)
            first, last = self._first.get(number, start), self._last.get(number, stop - 1)
            yield number, Piece(source, first, last + 1, n, where)


def _count(counts: Counter[int], numbers: np.ndarray) -> None:
    if numbers.size:
        for number, n in enumerate(np.bincount(numbers).tolist()):
            if n:
                counts[number] += n
