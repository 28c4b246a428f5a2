"""State which rows a state has learned, so that no merge counts a row twice.

    piece        rows 0 to 99 of roof.csv, of which 97 points were learned
    provenance   the pieces of a state; two with a row in common do not join
    unknown      points of the state that no piece states

A state that has learned rows of roof.csv with site 3 and one of the same rows with site 4 have no
row in common: `where` names the columns that chose the rows. Pieces are statements of whoever gives
the rows. They are kept in one order, and adjacent ones are joined, so that the same rows give the
same bytes in whatever order they were learned and merged.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import OverlapError, SnapshotError
from edgefold.runtime.rows.csv_fields import plain

_source = attrgetter("source")
RESERVED = "edgefold."
"""The caller's arrays in a snapshot have no names that begin so."""
PROVENANCE = f"{RESERVED}provenance"
"""A snapshot's array with this name, among the caller's arrays, holds the pieces of its state."""
MOST_ROWS = 1 << 62
Where = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Holds which rows of one source a state has learned.

    Two pieces overlap if their source is the same, a row lies in both, and no column in the `where`
    of both has different values there.

    Attributes:
        source: The name of the rows' source, such as a file or a board.
        start: The number of the first row, from 0 on.
        stop: The number of the last row plus 1.
        n_points: The number of points that were learned of these rows; rows with nulls and rows
            that a filter leaves out are none.
        where: Names and values of the columns that chose the rows, in the order of the names.
    """

    source: str
    start: int
    stop: int
    n_points: int
    where: Where = ()

    def __post_init__(self) -> None:
        counts = (self.start, self.stop, self.n_points)
        if not all(type(count) is int for count in counts) or not (
            0 <= self.start <= self.stop < MOST_ROWS and 0 <= self.n_points <= self.size
        ):
            raise SnapshotError(
                f"a piece has rows {self.start!r} to {self.stop!r} (exclusive) and "
                f"{self.n_points!r} points; give whole numbers with 0 <= start <= stop and at most "
                "one point for each row."
            )
        try:
            object.__setattr__(self, "where", tuple(sorted((c, v) for c, v in self.where)))
            for text in (self.source, *(text for pair in self.where for text in pair)):
                text.encode()  # half of a pair of surrogates raises ValueError
        except (AttributeError, TypeError, ValueError):
            raise SnapshotError(
                f"a piece is of source {self.source!r:.40} where {self.where!r:.40}; give a text, "
                "and pairs of a column's name and its value as texts."
            ) from None
        if not self.source or len(set(self.columns)) < len(self.where):
            raise SnapshotError(
                f"a piece is of source {self.source!r:.40} where {self.where!r:.40}; name the "
                "source, and each column once."
            )

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self.stop - self.start

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns that chose the rows, in order."""
        return tuple(column for column, _ in self.where)

    @property
    def origin(self) -> str:
        """Return the source and the chosen values as a text, such as "roof.csv (site=3)"."""
        chosen = ", ".join(f"{plain(column)}={plain(value)}" for column, value in self.where)
        return plain(self.source) + (f" ({chosen})" if chosen else "")


def _place(piece: Piece) -> tuple[str, Where, int]:
    return piece.source, piece.where, piece.start


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces, which are in order, with adjacent ones joined."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and (last.source, last.where, last.stop) == _place(piece):
            n = last.n_points + piece.n_points
            joined[-1] = Piece(last.source, last.start, piece.stop, n, last.where)
        else:
            joined.append(piece)
    return joined


def _may_share(where: Where, other: Where) -> bool:
    """Return whether the same row may be chosen by both: no common column has two values."""
    values = dict(where)
    return all(values.get(column, value) == value for column, value in other)


class Provenance:
    """Holds pieces that do not overlap, in order; it never changes.

    Attributes:
        pieces: The pieces by source, `where` and first row; adjacent ones are joined.
        n_points: The number of points of all pieces.
    """

    __slots__ = ("n_points", "pieces")

    def __init__(self, pieces: Iterable[Piece] = ()):
        """Put pieces in order, and join adjacent ones.

        Raises:
            OverlapError: Two of them overlap.
        """
        ordered = sorted((piece for piece in pieces if piece.size), key=_place)
        for _, group in groupby(ordered, key=_source):
            _require_disjoint([*group])
        self.pieces = tuple(_joined(ordered))
        self.n_points = sum(piece.n_points for piece in self.pieces)

    def add(self, piece: Piece) -> Provenance:
        """Return the provenance of these pieces and one more.

        Raises:
            OverlapError: It overlaps with one of them.
        """
        if not piece.size:
            return self
        if (other := self._overlapping(piece)) is not None:
            raise _overlap(other, piece)
        i = bisect_left(self.pieces, _place(piece), key=_place)
        first = max(i - 1, 0)
        near = _joined((*self.pieces[first:i], piece, *self.pieces[i : i + 1]))
        result = Provenance()
        result.pieces = (*self.pieces[:first], *near, *self.pieces[i + 1 :])
        result.n_points = self.n_points + piece.n_points
        return result

    def state(self, piece: Piece, n_points: int) -> Provenance:
        """Return the provenance of a state of `n_points` points after one more piece was stated.

        Raises:
            OverlapError: It overlaps with one of these pieces.
            SnapshotError: It counts more points than the state has of unknown rows.
        """
        unknown = n_points - self.n_points
        if piece.n_points > unknown:
            raise SnapshotError(
                f"a piece of {piece.n_points} points was stated, and the stream has {unknown} "
                "points of unknown rows; state a piece once, after its points were learned."
            )
        return self.add(piece)

    def join(self, other: Provenance) -> Provenance:
        """Return the provenance of the pieces of both.

        Raises:
            OverlapError: A piece of one overlaps with a piece of the other.
        """
        if not other.pieces:
            return self
        return Provenance((*self.pieces, *other.pieces)) if self.pieces else other

    def end_of(self, source: str) -> int:
        """Return the number of the last row of a source plus 1; 0 if no piece is of this source."""
        first = bisect_left(self.pieces, source, key=_source)
        last = bisect_right(self.pieces, source, first, key=_source)
        return max((piece.stop for piece in self.pieces[first:last]), default=0)

    def _overlapping(self, piece: Piece) -> Piece | None:
        """Return a piece that overlaps with the given one; None if there is none."""
        pieces, i = self.pieces, bisect_left(self.pieces, piece.source, key=_source)
        while i < len(pieces) and pieces[i].source == piece.source:
            head = pieces[i].source, pieces[i].where
            # Rows of one `where` have no row in common: the last that begins before the stop does.
            end = bisect_left(pieces, (*head, piece.stop), i, key=_place)
            near = end > i and pieces[end - 1].stop > piece.start
            if near and _may_share(pieces[i].where, piece.where):
                return pieces[end - 1]
            i = bisect_left(pieces, (*head, MOST_ROWS), end, key=_place)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provenance) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __repr__(self) -> str:
        return f"Provenance({list(self.pieces)})"

    def to_form(self) -> list[Any]:
        """Return the pieces as JSON: a list of [source, where, start, stop, n_points]."""
        return [[p.source, p.where, p.start, p.stop, p.n_points] for p in self.pieces]


class Origin(NamedTuple):
    """Holds the pieces of a state at some moment, and its number of points then.

    Points that came later are of the stream's source, if it has one.

    Attributes:
        stated: The pieces that were stated up to then.
        n_points: The number of points that the state had then, those of no piece too.
    """

    stated: Provenance = Provenance()
    n_points: int = 0

    def now(self, n_points: int, source: str | None) -> Provenance:
        """Return the pieces of a state that has `n_points` points by now.

        Args:
            n_points: The number of points of the state.
            source: The name of the source of all later points; None if it is unknown.
        """
        n, stated = n_points - self.n_points, self.stated
        if source is None or not n:
            return stated
        start = stated.end_of(source)
        return stated.add(Piece(source, start, start + n, n))


NO_PIECES = Origin()


def require_known(own: Provenance, n_own: int, other: Provenance, n_other: int) -> None:
    """Raise OverlapError if one of two states has points of which no piece states the rows.

    Args:
        own: The pieces of the first state.
        n_own: The number of its points.
        other: The pieces of the second state.
        n_other: The number of its points.
    """
    unknown = n_own - own.n_points, n_other - other.n_points
    if n_own and n_other and any(unknown):
        raise OverlapError(
            f"the rows of {unknown[0]} points of this state and of {unknown[1]} points of the "
            "other are unknown, so that some may be in both and would count twice. State their "
            "source when they are learned (`source=`, --source); or say that the two have no point "
            "in common (`disjoint=True`, --disjoint)."
        )


def as_array(form: Any) -> Array:
    """Return JSON as text, in an array (n,) of bytes (uint8)."""
    text = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
    return np.frombuffer(text.encode(), np.uint8)


def read_provenances(array: Array, n_points: Sequence[int]) -> list[Provenance]:
    """Read the pieces of several states, and check that each state can have them.

    Args:
        array: The text of a list with the `Provenance.to_form` of each state, as `as_array`
            returned it.
        n_points: The number of points of each state.

    Raises:
        SnapshotError: The array is damaged, or counts more points than a state has.
    """
    try:
        forms = json.loads(array.tobytes())
        found = [
            Provenance(Piece(s, a, b, n, tuple(map(tuple, where))) for s, where, a, b, n in form)
            for form in forms
        ]
        if as_array([each.to_form() for each in found]).tobytes() != array.tobytes():
            raise ValueError("they are not in order")
        if any(each.n_points > n for each, n in zip(found, n_points, strict=True)):
            raise ValueError("they have more points than the state")
    except (AttributeError, RecursionError, TypeError, ValueError, SnapshotError) as error:
        raise SnapshotError(
            f"the snapshot's pieces, which state what rows it has learned, are damaged ({error}); "
            "use an older copy, or start without it."
        ) from None
    return found


def _require_disjoint(pieces: Sequence[Piece]) -> None:
    """Raise OverlapError if two pieces of one source overlap.

    Pieces that were chosen by the same columns are compared with one another, and those of each two
    sets of columns: only pieces with equal values in the common columns, in the order of their
    rows. So the time grows as that of sorting.
    """
    by_columns = defaultdict[tuple[str, ...], list[Piece]](list)
    for piece in pieces:
        by_columns[piece.columns].append(piece)
    for (columns, group), (others, other) in combinations_with_replacement(by_columns.items(), 2):
        common = {*columns} & {*others}
        shared = defaultdict[Where, list[tuple[Piece, int]]](list)
        for side, side_pieces in enumerate((group,) if group is other else (group, other)):
            for piece in side_pieces:
                values = tuple(pair for pair in piece.where if pair[0] in common)
                shared[values].append((piece, side))
        for near in shared.values():
            _sweep(sorted(near, key=lambda each: each[0].start), group is other)


def _sweep(pieces: Sequence[tuple[Piece, int]], same: bool) -> None:
    """Raise OverlapError if two pieces of different sides have a row in common.

    Args:
        pieces: Pieces with their side, 0 or 1, in the order of their first rows.
        same: Whether all are of one side, and are compared with one another.
    """
    furthest: list[Piece | None] = [None, None]
    for piece, side in pieces:
        last = furthest[side if same else 1 - side]
        if last is not None and last.stop > piece.start:
            raise _overlap(last, piece)
        own = furthest[side]
        if own is None or own.stop < piece.stop:
            furthest[side] = piece


def _overlap(first: Piece, second: Piece) -> OverlapError:
    start, stop = max(first.start, second.start), min(first.stop, second.stop)
    origin = first.origin
    if second.origin != origin:
        origin += f" and {second.origin}"
    return OverlapError(
        f"rows {start} to {stop - 1} of {origin} would count twice; state each row once, and merge "
        "states that have no row in common."
    )
