"""Hold the states of many groups in one file, of which only one is in memory at a time.

    records of equal length, one for each group: the tensors of its state
    pieces, JSON for each group: which rows it has learned
    index, JSON: each group's values and counts, where its pieces are, the counts of all rows
    length of the index, 8 bytes; a mark, 8 bytes

A state that is needed again is read from its place and written back; the system keeps the pages in
memory that are used most. Pieces wait in a file of their own until the number of records is known.
The file gets its name when it is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError
from edgefold.runtime.stream.provenance import Piece, Provenance
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream

MARK = b"EDGEFST1"
GroupValue = str | int | float | bool
GroupKey = tuple[GroupValue, ...]


@dataclass(slots=True)
class GroupFacts:
    """Counts what a group has learned.

    Attributes:
        place: The number of the group's record in the file.
        n_points: The number of points in its state.
        n_recent: The number of points since the step `consolidate` last ran.
        n_left_out: The number of its rows that are no points: with nulls, or bad values.
        pieces_start: Where its pieces begin among those of all groups, in bytes.
        pieces_bytes: Their length.
    """

    place: int
    n_points: int = 0
    n_recent: int = 0
    n_left_out: int = 0
    pieces_start: int = 0
    pieces_bytes: int = 0


class GroupsFile:
    """Reads and writes the states of groups; see the module.

    Args:
        file: The file of records.
        pieces: The file of pieces; of a whole file the same one.
        slots: One slot, for the state that is read or written.

    Attributes:
        groups: The facts about each group by its values, in the order in which they appeared.
        counts: The number of rows of each kind: read, points, and left out for several reasons.
    """

    def __init__(self, file: BinaryIO, pieces: BinaryIO, slots: StateSlots):
        self.groups: dict[GroupKey, GroupFacts] = {}
        self.counts: Counter[str] = Counter()
        self._file, self._pieces, self._slots = file, pieces, slots
        self._tensors = list(slots.state(0).values())
        self._n_bytes = sum(tensor.nbytes for tensor in self._tensors)
        self._pieces_place = 0

    def facts(self, key: GroupKey) -> GroupFacts:
        """Return the facts about a group, which is new if it is not known."""
        known = self.groups.get(key)
        if known is None:
            known = self.groups[key] = GroupFacts(len(self.groups))
        return known

    def load(self, facts: GroupFacts) -> StateSlots:
        """Read a group's state, which has points, into the slot that the result holds."""
        self._file.seek(facts.place * self._n_bytes)
        for tensor in self._tensors:
            data = self._file.read(tensor.nbytes)
            tensor[...] = np.frombuffer(data, tensor.dtype).reshape(tensor.shape)
        self._slots.n_points[0], self._slots.n_recent[0] = facts.n_points, facts.n_recent
        return self._slots

    def keep(self, facts: GroupFacts, stream: Stream) -> None:
        """Write a stream's state as that of a group."""
        stream.take(self._slots, 0)
        self._file.seek(facts.place * self._n_bytes)
        for tensor in self._tensors:
            self._file.write(tensor.tobytes())
        facts.n_points = int(self._slots.n_points[0])
        facts.n_recent = int(self._slots.n_recent[0])

    def provenance(self, facts: GroupFacts) -> Provenance:
        """Return which rows a group has learned."""
        if not facts.pieces_bytes:
            return Provenance()
        self._pieces.seek(self._pieces_place + facts.pieces_start)
        form = json.loads(self._pieces.read(facts.pieces_bytes))
        return Provenance(
            Piece(source, start, stop, n_points, tuple((name, value) for name, value in where))
            for source, where, start, stop, n_points in form
        )

    def state(self, facts: GroupFacts, provenance: Provenance) -> None:
        """Write which rows a group has learned."""
        text = json.dumps(provenance.to_form(), separators=(",", ":")).encode()
        facts.pieces_start, facts.pieces_bytes = self._pieces.seek(0, os.SEEK_END), len(text)
        self._pieces.write(text)

    def copy_from(self, other: GroupsFile) -> None:
        """Take over all groups of another file, whose order stays, into this one without groups."""
        for key, theirs in other.groups.items():
            mine = self.facts(key)
            other._file.seek(theirs.place * self._n_bytes)
            self._file.seek(mine.place * self._n_bytes)
            self._file.write(other._file.read(self._n_bytes))
            mine.n_points, mine.n_recent = theirs.n_points, theirs.n_recent
            mine.n_left_out = theirs.n_left_out
            self.state(mine, other.provenance(theirs))
        self.counts.update(other.counts)

    # Files --------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write what follows the records."""
        self._file.seek(len(self.groups) * self._n_bytes)
        self._pieces.seek(0)
        shutil.copyfileobj(self._pieces, self._file)
        groups = [[list(key), *astuple(facts)[1:]] for key, facts in self.groups.items()]
        index = json.dumps({"groups": groups, "counts": self.counts}).encode()
        self._file.write(index + len(index).to_bytes(8, "little") + MARK)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read_index(self) -> None:
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - 16))
        tail = self._file.read(16)
        n_index = int.from_bytes(tail[:8], "little")
        if tail[8:] != MARK or n_index > end - 16:
            raise ValueError("it has no end")
        self._file.seek(end - 16 - n_index)
        index: Mapping[str, Any] = json.loads(self._file.read(n_index))
        for place, (key, *facts) in enumerate(index["groups"]):
            self.groups[tuple(key)] = GroupFacts(place, *facts)
        self._pieces_place = len(self.groups) * self._n_bytes
        if self._pieces_place > end - 16 - n_index:
            raise ValueError("its states have another length")
        self.counts.update(index["counts"])


@contextmanager
def new_groups(path: Path, manifest: Manifest) -> Iterator[GroupsFile]:
    """Make a file of groups, which gets its name at the end of the block; on an error it has none.

    Args:
        path: The file.
        manifest: The manifest of the bundle to which the states belong.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with (
            beside.open("w+b") as file,
            tempfile.TemporaryFile(dir=path.parent) as pieces,
        ):
            groups = GroupsFile(file, pieces, StateSlots(manifest, 1))
            yield groups
            groups._finish()
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def opened_groups(path: Path, manifest: Manifest) -> Iterator[GroupsFile]:
    """Open a file that `new_groups` made, for reading.

    Raises:
        DataError: It is damaged.
    """
    with path.open("rb") as file:
        groups = GroupsFile(file, file, StateSlots(manifest, 1))
        try:
            groups._read_index()
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} is damaged ({error}); give --restart, which computes it again."
            ) from error
        yield groups
