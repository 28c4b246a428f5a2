"""Run the units of conditioning: read rows, fold states of the same groups, write snapshots.

    read     rows ──> points, sorted by group ──> Stream.condition ──> a file of groups
    fold     files of groups, in their order ──> Stream.merge_slot ──> a file of groups
    write    a file of groups ──> a snapshot for each group, and states.csv

The order of all sums follows from the plan alone. So the states are the same to the bit on any
number of processes, whichever of them died.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgefold.fleets.conditioning.groups_file import (
    GroupFacts,
    GroupKey,
    GroupsFile,
    new_groups,
    opened_groups,
)
from edgefold.fleets.conditioning.keys import GroupNumbers, file_names, text_of
from edgefold.fleets.conditioning.learned_rows import LearnedRows
from edgefold.fleets.conditioning.point_rows import PointReader, PointWindow
from edgefold.fleets.conditioning.setup import ConditionSetup, RowSlice
from edgefold.fleets.tables.batches import read_batches
from edgefold.fleets.tables.lake import Lake
from edgefold.fleets.tables.row_filter import RowFilter
from edgefold.fleets.work.unit import Advance
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import BackendError, EdgefoldError
from edgefold.runtime.files import write_atomic
from edgefold.runtime.stream.provenance import Piece, Provenance
from edgefold.runtime.stream.stream import Stream

TABLE = "states.csv"


@dataclass(frozen=True, slots=True)
class ReadArgument:
    """Names the rows of a unit, and the result that it goes on from, for a model without merge.

    Attributes:
        slices: The rows, in order.
        before: The name of the result of the unit before; None for a unit on its own.
    """

    slices: tuple[RowSlice, ...]
    before: str | None = None


@dataclass(frozen=True, slots=True)
class FoldArgument:
    """Names the results that a unit folds, in order."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteArgument:
    """Names the result whose states are written, and where.

    Attributes:
        name: The name of the result.
        folder: The folder for the snapshots and the table; the result of the unit is the table.
    """

    name: str
    folder: Path


def open_job(setup: ConditionSetup) -> ConditioningJob:
    """Open the bundle; a process of the crew calls this once.

    Raises:
        BackendError: The plan's backend does not open on this machine, or is another version here.
    """
    return ConditioningJob(setup)


class ConditioningJob:
    """Runs units of conditioning with one open stream.

    Args:
        setup: How rows become points.
    """

    def __init__(self, setup: ConditionSetup):
        self._setup = setup
        self._stream = Stream.open(
            setup.bundle,
            setup.backend,
            engine=EngineOptions(setup.engine_cache),
            expect_hash=setup.bundle_hash,
        )
        self._manifest = self._stream.manifest
        version = str(self._stream.backend_report["version"])
        if version != setup.backend_version:  # its states would have other last digits
            self._stream.close()
            raise BackendError(
                f"the backend {setup.backend} is {version} here, and {setup.backend_version} on "
                "the machine that made the plan."
            )

    def close(self) -> None:
        self._stream.close()

    def run(
        self, argument: ReadArgument | FoldArgument | WriteArgument, place: Path, advance: Advance
    ) -> None:
        """Run a unit, whose result gets its name when it is whole.

        Raises:
            DataError: The rows cannot be read, or hold bad values.
            CapacityError: A model's state has no room for all rows of a group.
            EdgefoldError: A step failed.
        """
        if isinstance(argument, ReadArgument):
            self._read(argument, place, advance)
        elif isinstance(argument, FoldArgument):
            self._fold([place.with_name(name) for name in argument.names], place)
        else:
            self._write(place.with_name(argument.name), argument.folder, place)

    # Read ---------------------------------------------------------------------------------------

    def _read(self, argument: ReadArgument, place: Path, advance: Advance) -> None:
        setup = self._setup
        filter = None if setup.filter is None else RowFilter(setup.filter)
        numbers = GroupNumbers(setup.by)
        window = PointWindow(setup.window_rows, len(setup.x), len(setup.y))
        with new_groups(place, self._manifest) as groups:
            if argument.before is not None:
                with opened_groups(place.with_name(argument.before), self._manifest) as before:
                    groups.copy_from(before)
            pieces = defaultdict[int, list[Piece]](list)
            reader = PointReader(setup, self._manifest, numbers, groups.counts)
            for part in argument.slices:
                lake, n_left = Lake([part.file], setup.columns, filter), part.stop - part.start
                learned = LearnedRows(part, filter is not None)
                wanted = range(part.first, part.last)
                for batch in read_batches(lake, part.file, wanted, setup.batch_rows):
                    points = reader.points(batch)
                    learned.add(points)
                    done = 0
                    while done < len(points.rows):
                        done += window.take(points, done)
                        if window.is_full:
                            self._learn(window, numbers, groups)
                    advance(batch.stop - batch.start)
                    n_left -= batch.stop - batch.start
                advance(n_left)  # row groups that the filter rules out
                for number, piece in learned.pieces(numbers.keys, self._chosen_by(part)):
                    pieces[number].append(piece)
                for number, n in learned.n_left_out.items():
                    groups.facts(numbers.keys[number]).n_left_out += n
            self._learn(window, numbers, groups)
            for number, own in pieces.items():
                facts = groups.facts(numbers.keys[number])
                groups.state(facts, groups.provenance(facts).join(Provenance(own)))

    def _learn(self, window: PointWindow, numbers: GroupNumbers, groups: GroupsFile) -> None:
        """Learn all points of a window, group by group."""
        stream = self._stream
        for number, x, y in window.empty():
            key = numbers.keys[number]
            facts = groups.facts(key)
            with self._named(key):
                if facts.n_points:
                    stream.put(groups.load(facts), 0)
                else:
                    stream.reset()
                stream.condition(x if self._setup.x else None, y if self._setup.y else None)
                groups.keep(facts, stream)

    def _chosen_by(self, part: RowSlice) -> list[tuple[int, str]]:
        """Return the index and the name of columns by which rows of a file are chosen.

        The values of folders choose no rows: all of the file's rows have them.
        """
        return [(i, name) for i, name in enumerate(self._setup.by) if name not in part.file.values]

    # Fold ---------------------------------------------------------------------------------------

    def _fold(self, paths: Sequence[Path], place: Path) -> None:
        with ExitStack() as opened, new_groups(place, self._manifest) as result:
            parts = [opened.enter_context(opened_groups(path, self._manifest)) for path in paths]
            keys = dict.fromkeys(key for part in parts for key in part.groups)
            for key in keys:
                having = [(part, part.groups[key]) for part in parts if key in part.groups]
                self._fold_group(key, having, result.facts(key), result)
            for part in parts:
                result.counts.update(part.counts)

    def _fold_group(
        self,
        key: GroupKey,
        having: Sequence[tuple[GroupsFile, GroupFacts]],
        facts: GroupFacts,
        result: GroupsFile,
    ) -> None:
        """Join the states of one group, in the order of the parts."""
        stream, is_first, provenance = self._stream, True, Provenance()
        with self._named(key):
            stream.reset()
            for part, theirs in having:
                facts.n_left_out += theirs.n_left_out
                provenance = provenance.join(part.provenance(theirs))
                if not theirs.n_points:
                    continue
                slots = part.load(theirs)
                if is_first:
                    stream.put(slots, 0)
                else:  # the provenance is joined above, and has found no overlap
                    stream.merge_slot(slots, 0, disjoint=True)
                is_first = False
            result.keep(facts, stream)
            result.state(facts, provenance)

    # Write --------------------------------------------------------------------------------------

    def _write(self, source: Path, folder: Path, place: Path) -> None:
        by = self._setup.by
        folder.mkdir(exist_ok=True)
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*by, "file", "points", "rows_left_out"])
        with opened_groups(source, self._manifest) as groups:
            keys = sorted(groups.groups, key=lambda key: [(str(type(v)), v) for v in key])
            names = file_names(by, keys) if by else dict.fromkeys(keys, "state.npz")
            for key in keys:
                facts = groups.groups[key]
                with self._named(key):
                    if facts.n_points:
                        self._save(groups, facts, folder / names[key])
                file = names[key] if facts.n_points else ""
                writer.writerow([*map(text_of, key), file, facts.n_points, facts.n_left_out])
            counts = groups.counts
        os.sync()  # once for all snapshots: each by itself would take most of the time
        write_atomic(folder / TABLE, table.getvalue().encode())
        write_atomic(place, json.dumps(counts).encode())

    def _save(self, groups: GroupsFile, facts: GroupFacts, path: Path) -> None:
        self._stream.put(groups.load(facts), 0)
        for piece in groups.provenance(facts).pieces:
            self._stream.learned(piece)
        self._stream.save(path, durable=False)

    @contextmanager
    def _named(self, key: GroupKey) -> Iterator[None]:
        """Add the group's values to an error."""
        try:
            yield
        except EdgefoldError as error:
            if not key:
                raise
            values = ", ".join(
                f"{name}={text_of(value)}" for name, value in zip(self._setup.by, key, strict=True)
            )
            raise type(error)(f"{values}: {error}") from error
