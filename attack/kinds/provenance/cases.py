"""Play histories of several states, and compare what they state with sets of rows.

Up to four states learn rows of three sources, by every way there is: as the rows of a stream's
source, as pieces that choose rows by columns, and without a statement. They are saved, restored,
merged, forgotten, and exchanged by slots. Next to each state stands a plain set of the rows that it
may hold. A statement or a merge must be refused if and only if the sets say so, and the state must
then be as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from attack.kinds.provenance.states import PlainStates, States, StreamStates
from attack.outcomes import Outcome, random_of
from edgefold.runtime.errors import OverlapError, SnapshotError
from edgefold.runtime.stream.provenance import Piece

SOURCES = ("roof", "cellar.csv", "dach-ä")
COLUMNS = {"day": ("1", "2", "3"), "site": ("3", "4", "5")}
N_ROWS, LONGEST, MOST_STATES, MOST_ACTS = 40, 9, 4, 24
STREAM_SHARE = 0.2
"""The share of histories that real streams play; pieces without a stream play the others."""
Cell = tuple[str, int, str, str]


@dataclass(frozen=True, slots=True)
class Truth:
    """Holds what a state has learned in truth.

    Attributes:
        cells: The rows that its pieces may hold, each with every value of the columns that the
            piece does not name.
        n_points: The number of its points.
        n_unknown: The number of those that no piece states.
        ends: For each source, the row after its last one.
    """

    cells: frozenset[Cell] = frozenset()
    n_points: int = 0
    n_unknown: int = 0
    ends: tuple[int, ...] = (0,) * len(SOURCES)

    def with_piece(self, piece: Piece) -> Truth:
        """Return what the state knows after some of its unknown points were stated."""
        ends = list(self.ends)
        if piece.size:
            place = SOURCES.index(piece.source)
            ends[place] = max(ends[place], piece.stop)
        n_unknown = self.n_unknown - piece.n_points
        return replace(self, cells=self.cells | cells_of(piece), n_unknown=n_unknown, ends=(*ends,))

    def with_points(self, n: int) -> Truth:
        """Return what the state knows after n more points, of unknown rows."""
        return replace(self, n_points=self.n_points + n, n_unknown=self.n_unknown + n)


def cells_of(piece: Piece) -> frozenset[Cell]:
    """Return the rows of a piece, with every value that the columns may have."""
    where = dict(piece.where)
    days, sites = (
        (where[column],) if column in where else values for column, values in COLUMNS.items()
    )
    rows = range(piece.start, piece.stop)
    return frozenset(
        (piece.source, row, day, site) for row, day, site in product(rows, days, sites)
    )


class Cases:
    """Histories, of which a share is played by streams of the shipped bundle gp-tiny."""

    def __init__(self, subjects: Path, scratch: Path):
        self._stream_states = functools.cache(functools.partial(StreamStates, scratch, MOST_STATES))

    def describe(self, number: int) -> str:
        """Say who plays."""
        random = random_of("provenance", number)
        return f"{type(self._states(random)).__name__}, up to {MOST_ACTS} acts"

    def _states(self, random: np.random.Generator) -> States:
        if random.random() >= STREAM_SHARE:
            return PlainStates(MOST_STATES, SOURCES[0] if random.random() < 0.3 else None)
        buffered, source = bool(random.random() < 0.5), random.random() < 0.3
        states = self._stream_states(buffered, SOURCES[0] if source else None)
        states.begin()
        return states

    def play(self, number: int) -> Outcome:
        """Play a history, and compare after each act."""
        random = random_of("provenance", number)
        history = _History(self._states(random), random)
        acts = (
            *(history.learn, history.learn, history.state, history.state, history.state),
            *(history.merge, history.merge, history.merge, history.save, history.restore),
            history.forget,
        )
        for _ in range(int(random.integers(4, MOST_ACTS))):
            act = acts[int(random.integers(len(acts)))]
            if wrong := act() or history.compare():
                return Outcome("wrong", f"{act.__name__}: {wrong}")
        return Outcome("accepted", type(history.states).__name__)


class _History:
    """Plays acts on states, and keeps the truth next to them."""

    def __init__(self, states: States, random: np.random.Generator):
        self.states, self._random = states, random
        self._truths = [Truth()] * MOST_STATES
        self._saved: dict[int, Truth] = {}

    def _index(self) -> int:
        return int(self._random.integers(MOST_STATES))

    def _piece(self) -> Piece:
        random = self._random
        start, size = int(random.integers(N_ROWS)), int(random.integers(LONGEST))
        source = SOURCES[int(random.integers(len(SOURCES)))]
        where = tuple(
            (column, values[int(random.integers(len(values)))])
            for column, values in COLUMNS.items()
            if random.random() < 0.5
        )
        return Piece(source, start, start + size, int(random.integers(size + 1)), where)

    def learn(self) -> str:
        """Learn points, of the stream's source or of unknown rows."""
        index, n = self._index(), int(self._random.integers(LONGEST))
        self.states.learn(index, n)
        truth = self._truths[index].with_points(n)
        if self.states.source is not None:
            start = truth.ends[SOURCES.index(self.states.source)]
            truth = truth.with_piece(Piece(self.states.source, start, start + n, n))
        self._truths[index] = truth
        return ""

    def state(self) -> str:
        """Learn the points of a piece and state it; now and then it is too late or too early."""
        index, piece = self._index(), self._piece()
        truth = self._truths[index]
        if self.states.source is None and self._random.random() < 0.9:
            self.states.learn(index, piece.n_points)
            truth = truth.with_points(piece.n_points)
        self._truths[index] = truth
        if piece.n_points > truth.n_unknown:
            return self._expect(SnapshotError, lambda: self.states.learned(index, piece))
        if truth.cells & cells_of(piece):
            return self._expect(OverlapError, lambda: self.states.learned(index, piece))
        self.states.learned(index, piece)
        self._truths[index] = truth.with_piece(piece)
        return ""

    def merge(self) -> str:
        """Merge a saved state or that of a slot into another one."""
        index, disjoint = self._index(), bool(self._random.random() < 0.4)
        from_slot, other = bool(self._random.random() < 0.4), self._index()
        if not from_slot and other not in self._saved:
            return ""
        own, more = self._truths[index], (self._truths if from_slot else self._saved)[other]
        unsure = own.n_points and more.n_points and (own.n_unknown or more.n_unknown)

        def act() -> None:
            self.states.merge(index, other, from_slot, disjoint)

        if (unsure and not disjoint) or own.cells & more.cells:
            return self._expect(OverlapError, act)
        act()
        self._truths[index] = Truth(
            own.cells | more.cells,
            own.n_points + more.n_points,
            own.n_unknown + more.n_unknown,
            tuple(map(max, own.ends, more.ends)),
        )
        return ""

    def save(self) -> str:
        """Save a state to a file."""
        index, place = self._index(), self._index()
        self.states.save(index, place)
        self._saved[place] = self._truths[index]
        return ""

    def restore(self) -> str:
        """Restore a state from a file."""
        index, place = self._index(), self._index()
        if place in self._saved:
            self.states.restore(index, place)
            self._truths[index] = self._saved[place]
        return ""

    def forget(self) -> str:
        """Begin a state again; seldom, or nothing would ever overlap."""
        if self._random.random() < 0.3:
            index = self._index()
            self.states.reset(index)
            self._truths[index] = Truth()
        return ""

    def compare(self) -> str:
        """Return what the states state in another way than the truth; "" if all is well."""
        for index, truth in enumerate(self._truths):
            n_points, stated = self.states.read(index)
            if (n_points, n_points - stated.n_points) != (truth.n_points, truth.n_unknown):
                return "counts of points"
            if frozenset().union(*map(cells_of, stated.pieces)) != truth.cells:
                return "rows"
            if stated.end_of(SOURCES[0]) != truth.ends[0]:
                return "the end of a source"
        return ""

    def _expect(self, error: type[SnapshotError], act: Callable[[], object]) -> str:
        """Run an act that must be refused with exactly this class of errors."""
        try:
            act()
        except SnapshotError as raised:
            return "" if type(raised) is error else f"{type(raised).__name__} was raised"
        return f"{error.__name__} was not raised"
