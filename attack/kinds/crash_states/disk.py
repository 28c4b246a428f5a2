"""Keep what is surely on a disk and what is not, and draw the states that a power cut may leave.

    surely there   data and lengths of a file before its last fsync or fdatasync; names of a folder
                   before its last fsync
    may be there   everything later, up to the crash point, in any legal part

The model is weaker than ext4, XFS or FAT in their usual settings:

- A sector of 512 bytes is written as a whole. One with writes that are not sure holds what it held
  after any of these writes, or before them. A sector that nobody writes keeps its content.
- A file's length is that after any of its changes since the last sync, whatever its data. What is
  within the length and was never written is zero.
- Of the changes of a folder's names that are not sure, any part is there. A rename is one change:
  it never leaves both names or none. Two changes of the same name never swap.
- A file's fsync does not make its name sure, and a folder's fsync makes no data sure.
- Rarely one sector holds garbage: one behind the sure length (a disk gives a file an old block), or
  one that was being written as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from attack.kinds.crash_states.recording import Operation

SECTOR = 512
STYLES = ("lost", "there", "ordered", "ordered", "any", "any", "but one", "only one")
"""Ways to draw a part of what is not sure. "ordered" is that of ext4 with data=ordered: the changes
of names and lengths form a beginning of all such changes of the file system, and a length is there
only with its data."""
GARBAGE = 0.08
"""The share of states with one sector of garbage."""


@dataclass(slots=True)
class Change:
    """Holds one change of a file that is not surely on the disk.

    Attributes:
        number: The number of the operation since the disk was made.
        place: The offset of the data, or the file's length after truncating.
        data: The data; None for truncating.
    """

    number: int
    place: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class DiskFile:
    """Holds the content of a file, which may have any name or none.

    Attributes:
        sure: The content that is surely on the disk.
        changes: The changes since, in order.
    """

    sure: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """Make all changes sure."""
        for change in self.changes:
            apply(self.sure, change)
        self.changes = []

    def content(self) -> bytes:
        """Return the content that a process reads."""
        content = bytearray(self.sure)
        for change in self.changes:
            apply(content, change)
        return bytes(content)


def apply(content: bytearray, change: Change) -> None:
    """Make one change of a content."""
    end = change.place + len(change.data or b"")
    if change.data is None:
        del content[change.place :]
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if change.data is not None:
        content[change.place : end] = change.data


@dataclass(slots=True)
class NameChange:
    """Holds a change of names that is not surely on the disk; None stands for no file."""

    number: int
    folder: str
    names: dict[str, DiskFile | None]


class Disk:
    """Holds the files of one folder, and what of them is surely on the disk.

    Args:
        files: The content of each file by its path; all is sure.
    """

    def __init__(self, files: Mapping[str, bytes]):
        self._sure = {path: DiskFile(bytearray(content)) for path, content in files.items()}
        self._names = dict(self._sure)  # as a process finds them
        self._name_changes: list[NameChange] = []
        self._open: dict[int, DiskFile] = {}
        self._n = self._n_ordered = 0  # operations; those that ext4 has surely written
        self.n_acknowledged = 0

    def perform(self, operations: Sequence[Operation]) -> None:
        """Perform operations in order."""
        for operation in operations:
            self._n += 1
            self._perform(operation)

    def _perform(self, operation: Operation) -> None:
        kind, path, number = operation.kind, operation.path, self._n
        if kind == "begin":
            self._open = {}
        elif kind == "acknowledge":
            self.n_acknowledged = operation.place
        elif kind in ("create", "open"):
            if kind == "create":
                self._rename({path: DiskFile()})
            self._open[operation.file] = self._names[path]
        elif kind == "write":
            change = Change(number, operation.place, operation.data)
            self._open[operation.file].changes.append(change)
        elif kind == "truncate":
            self._open[operation.file].changes.append(Change(number, operation.place, None))
        elif kind == "sync":
            self._open[operation.file].sync()
            self._n_ordered = number
        elif kind == "sync folder":
            for renamed in self._name_changes:
                if renamed.folder == path:
                    _rename(self._sure, renamed.names)
            self._name_changes = [c for c in self._name_changes if c.folder != path]
            self._n_ordered = number
        elif kind == "rename":
            assert _folder(path) == _folder(operation.to), "a rename is within a folder"
            self._rename({path: None, operation.to: self._names[path]})
        else:
            assert kind == "unlink", kind
            self._rename({path: None})

    def _rename(self, names: dict[str, DiskFile | None]) -> None:
        self._name_changes.append(NameChange(self._n, _folder(next(iter(names))), names))
        _rename(self._names, names)

    def files(self) -> dict[str, bytes]:
        """Return the content of each file as a process reads it, by the file's path."""
        return {path: file.content() for path, file in sorted(self._names.items())}

    def after_power_cut(self, random: np.random.Generator) -> tuple[str, dict[str, bytes]]:
        """Draw one state that a power cut may leave.

        Returns:
            A word for the part that was drawn, and the content of each file by its path.
        """
        style = STYLES[random.integers(len(STYLES))]
        # In these two, one change or sector is the other way round than all the rest.
        odd = style in ("but one", "only one")
        last = int(random.integers(self._n_ordered, self._n + 1)) if style == "ordered" else self._n
        share = {"lost": 0.0, "only one": 0.0, "any": float(random.choice([0.1, 0.5, 0.9]))}
        draw = _Draw(random, style == "ordered", last, share.get(style, 1.0))
        names, n_names = dict(self._sure), len(self._name_changes)
        chosen = [draw.has_name(change) for change in self._name_changes]
        odd_name = odd and n_names and random.random() < 0.5
        if odd_name:
            place = int(random.integers(n_names))
            chosen[place] = not chosen[place]
        for change, is_there in zip(self._name_changes, chosen, strict=True):
            if is_there:
                _rename(names, change.names)
        open_paths = [path for path in sorted(names) if names[path].changes]
        odd_path = ""
        if odd and not odd_name and open_paths:
            odd_path = open_paths[random.integers(len(open_paths))]
        garbage = ""
        if open_paths and random.random() < GARBAGE:
            garbage = open_paths[random.integers(len(open_paths))]
        found = {}
        for path in sorted(names):
            file = names[path]
            if not file.changes:
                found[path] = bytes(file.sure)
                continue
            content = draw.content(file, path == odd_path)
            if path == garbage:
                spoil_sector(random, file, content)
            found[path] = bytes(content)
        return style + " with garbage" * bool(garbage), found


@dataclass(slots=True)
class _Draw:
    """Draws which part of the changes is on the disk.

    Attributes:
        is_ordered: Whether names and lengths are there exactly up to the operation `last`.
        share: The share of the other changes that are there.
    """

    random: np.random.Generator
    is_ordered: bool
    last: int
    share: float

    def has_name(self, change: NameChange) -> bool:
        """Return whether a change of names is there."""
        if self.is_ordered:
            return change.number <= self.last
        return bool(self.random.random() < self.share)

    def content(self, file: DiskFile, is_odd: bool) -> bytearray:
        """Return the content of a file whose changes are there in part.

        Args:
            file: The file.
            is_odd: Whether one of its sectors, or its length, is there against the share.
        """
        changes, random, n = file.changes, self.random, len(file.changes)
        lengths = list(_lengths(file))
        n_sectors = -(-max(lengths) // SECTOR)
        n_there = random.binomial(1, self.share, n_sectors) * n
        if 0 < self.share < 1 or self.is_ordered:
            between = random.random(n_sectors) < 0.3
            n_there = np.where(between, random.integers(0, n + 1, n_sectors), n_there)
        length_at = n if random.random() < self.share else 0
        if 0 < self.share < 1 and random.random() < 0.5:
            length_at = int(random.integers(n + 1))
        if is_odd and random.random() < 0.4:
            length_at = n - length_at
        elif is_odd and n_sectors:
            place = random.integers(n_sectors)
            n_there[place] = n - n_there[place]
        if self.is_ordered:
            length_at = sum(change.number <= self.last for change in changes)
            first = len(file.sure) // SECTOR
            n_there[first:] = np.maximum(n_there[first:], length_at)
        content = bytearray(file.sure) + bytes(max(lengths) - len(file.sure))
        current = bytearray(file.sure)
        for number, change in enumerate(changes, 1):
            before = len(current)
            apply(current, change)
            start, end = _touched(change, before)
            for sector in range(start // SECTOR, -(-end // SECTOR)):
                if number <= n_there[sector]:
                    a, b = sector * SECTOR, (sector + 1) * SECTOR
                    piece = bytes(current[a:b])
                    content[a:b] = piece + bytes(min(b, len(content)) - a - len(piece))
        length = lengths[length_at]
        content.extend(bytes(max(0, length - len(content))))
        del content[length:]
        return content


def _touched(change: Change, before: int) -> tuple[int, int]:
    """Return the first byte that a change writes, and the one after the last."""
    if change.data is None:
        return min(change.place, before), before
    return change.place, change.place + len(change.data)


def _lengths(file: DiskFile) -> Iterator[int]:
    """Yield the sure length of a file, and its length after each change."""
    length = len(file.sure)
    yield length
    for change in file.changes:
        end = change.place + len(change.data or b"")
        length = end if change.data is None else max(length, end)
        yield length


def spoil_sector(random: np.random.Generator, file: DiskFile, content: bytearray) -> None:
    """Put garbage into one sector that may hold it (see the module), if there is one."""
    whole = set()
    for change in file.changes:
        if change.data is not None:
            first, stop = change.place, change.place + len(change.data)
            whole |= set(range(-(-first // SECTOR), stop // SECTOR))
            whole |= {n for n in range(first // SECTOR, -(-stop // SECTOR))
                      if n * SECTOR >= len(file.sure)}  # fmt: skip
    sectors = sorted(n for n in whole if n * SECTOR < len(content))
    if sectors:
        start = sectors[random.integers(len(sectors))] * SECTOR
        n = min(SECTOR, len(content) - start)
        content[start : start + n] = random.bytes(n)


def _rename(names: dict[str, DiskFile], changed: Mapping[str, DiskFile | None]) -> None:
    for path, file in changed.items():
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
