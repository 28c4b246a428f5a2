"""Keep received messages on the disk until a snapshot knows them: two files of fixed size in turn.

    PATH.0  │group│group│group│ ... full      a group: header, records, zeros up to a whole block
    PATH.1  │group│group│ <─ next group       one fdatasync for each group

A record is on the disk once `sync` returns; only then may its message be acknowledged. Records are
numbered from 1 without gaps. A full file is written again from its start once a snapshot knows all
of its records (`release`), so the journal never grows.

A group begins at a block of 4096 bytes and is never written again, so a power cut can damage only
the group that was being written, which was not acknowledged. Its header holds a checksum and the
number of its first record: what follows the newest group is an older one with smaller numbers, or
a damaged one, and ends the file. The files are zeroed when they are made, so that a group changes
no metadata of the file system.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefold.runtime.errors import DataError, OutputError
from edgefold.runtime.files import replacing, sync_name

BLOCK = 4096
FILE_BYTES = 4 << 20
LEAST_BYTES = 256 << 10
"""The smallest size of a file: one record may have 64 KiB, and a file must hold several groups."""
HEAD = struct.Struct("<8s8sQIII")
"""Magic, journal's identity, number of the first record, number of records, bytes, checksum."""
MAGIC = b"EFJRNL1\0"
LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Group:
    """Holds one group of records that is on the disk.

    Attributes:
        identity: The journal to which the group belongs.
        first: Number of its first record.
        last: Number of its last record.
        offset: Place in the file, in bytes.
        body: Its records, each behind its length, without header and padding.
    """

    identity: bytes
    first: int
    last: int
    offset: int
    body: bytes

    @property
    def end(self) -> int:
        """Return the place of the first block after the group."""
        return self.offset + _padded(HEAD.size + len(self.body))

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield its records as pairs of number and content."""
        place = 0
        for number in range(self.first, self.last + 1):
            (length,) = LENGTH.unpack_from(self.body, place)
            place += LENGTH.size
            yield number, self.body[place : place + length]
            place += length


class _File:
    """Holds one of the two files, which is open, and the end of its groups that follow each other.

    Attributes:
        identity: The journal to which its groups belong; b"" without groups.
        last: Number of its last record; 0 if there is none.
        end: The place where the next group goes.
    """

    def __init__(self, path: Path, n_bytes: int):
        self.path = path
        if not path.exists() or path.stat().st_size < BLOCK:
            _write_zeros(path, n_bytes)
        self.handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.n_bytes = self.end = os.fstat(self.handle).st_size // BLOCK * BLOCK
        self.cut(sys.maxsize)

    def cut(self, number: int) -> None:
        """Forget the groups that hold a record after this number, and what is behind them."""
        kept = [(g.identity, g.last, g.end) for g in self.groups() if g.last <= number]
        self.clear()
        if kept:
            self.identity, self.last, self.end = kept[-1]

    def clear(self) -> None:
        """Forget all groups."""
        self.identity, self.last, self.end = b"", 0, 0

    def groups(self) -> Iterator[Group]:
        """Yield the groups up to `end`, in order."""
        before: Group | None = None
        while group := self._group_at(before.end if before else 0):
            if before and (group.identity, group.first) != (before.identity, before.last + 1):
                return
            yield group
            before = group

    def _group_at(self, offset: int) -> Group | None:
        head = os.pread(self.handle, HEAD.size, offset)
        if len(head) < HEAD.size or offset >= self.end:
            return None
        magic, identity, first, n, n_bytes, checksum = HEAD.unpack(head)
        if magic != MAGIC or not n or offset + HEAD.size + n_bytes > self.n_bytes:
            return None
        body = os.pread(self.handle, n_bytes, offset + HEAD.size)
        if len(body) < n_bytes or zlib.crc32(body, zlib.crc32(head[:-4])) != checksum:
            return None
        return Group(identity, first, first + n - 1, offset, body)


class Journal:
    """Keeps records on the disk until they are released; see the module.

    Args:
        path: The files' common path; they are PATH.0 and PATH.1.
        file_bytes: Size of each file that is made; files that exist keep their size.

    Attributes:
        last: Number of the newest record, which `sync` may not have written yet.
        n_bytes_written: Bytes that this object has written to the disk.

    Raises:
        OutputError: The file system refused.
    """

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES):
        self.path, self._file_bytes = path, _padded(max(file_bytes, LEAST_BYTES))
        self._files: list[_File] = []
        self._identity = b""
        self._turn = 0  # the file that is written
        self.last = self._released = self._synced = 0
        self._buffer = bytearray()
        self.n_bytes_written = 0

    @property
    def identity(self) -> str:
        """Return 16 hexadecimal digits that no other journal has."""
        return self._identity.hex()

    @property
    def exists(self) -> bool:
        """Return whether one of the files is there."""
        return any(path.exists() for path in self._paths)

    @property
    def _paths(self) -> tuple[Path, Path]:
        return Path(f"{self.path}.0"), Path(f"{self.path}.1")

    def remove(self) -> None:
        """Remove the files, so that `open` begins a new journal."""
        try:
            for path in self._paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error(error) from error

    def open(self, identity: str = "", released: int = 0) -> None:
        """Open the files, and make those that are missing.

        Args:
            identity: The journal's identity as a snapshot keeps it; "" if there is no snapshot.
            released: Number of the last record that the snapshot knows.

        Raises:
            DataError: The files belong to another snapshot, or records that it does not know are
                not there any more.
        """
        try:
            self._files = [_File(path, self._file_bytes) for path in self._paths]
        except OSError as error:
            raise self._error(error) from error
        try:
            for file in self._files:  # what a killed process wrote may not be on the disk yet
                os.fdatasync(file.handle)
                sync_name(file.path)
        except OSError as error:
            raise self._error(error) from error
        self._released = released
        newest = max(self._files, key=lambda file: file.last)
        found = newest.identity
        self._identity = bytes.fromhex(identity) or found or os.urandom(8)
        self._turn = self._files.index(newest)
        if found and found != self._identity:
            raise DataError(
                f"the journal {self.path} belongs to another snapshot. Put the snapshot back that "
                "was made with it, or remove the journal's two files to go on without the "
                "messages that only they hold."
            )
        self.last = self._synced = max(newest.last, released)
        first = min((group.first for group in self._needed()), default=self.last + 1)
        # Without a snapshot the records before it gave no row, or the loop had written a snapshot.
        if identity and first > released + 1 and self.last > released:
            raise DataError(
                f"the snapshot knows the messages up to number {released:,}, and the journal "
                f"{self.path} those from {first:,} on: the snapshot is an older copy. Put the "
                "newest one back, or remove the journal's two files to go on without the messages "
                "between."
            )
        if newest.last < released:  # the files are new, or an older copy: none of them is needed
            for file in self._files:
                file.clear()
            self._turn = 0

    def _needed(self) -> Iterator[Group]:
        """Yield the groups that hold a record which is not released, in order."""
        for file in sorted(self._files, key=lambda file: file.last):
            if file.last > self._released:
                yield from (group for group in file.groups() if group.last > self._released)

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the records that are not released, as pairs of number and content, in order."""
        for group in self._needed():
            yield from (record for record in group.records() if record[0] > self._released)

    def all_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield all records on the disk, released or not, as pairs of number and content."""
        for file in sorted(self._files, key=lambda file: file.last):
            for group in file.groups():
                yield from group.records()

    def cut(self, number: int) -> None:
        """Forget the records after this number, which must be the last one of a group.

        The next record gets the number after it.
        """
        for file in self._files:
            file.cut(number)
        self._turn = self._files.index(max(self._files, key=lambda file: file.last))
        self.last = self._synced = number

    def append(self, record: bytes) -> int:
        """Add a record to the group that `sync` writes next, and return the record's number.

        Raises:
            OutputError: The group before had to be written, and the file system refused.
        """
        file = self._files[self._turn]
        needed = _padded(HEAD.size + len(self._buffer) + LENGTH.size + len(record))
        if file.end + needed > file.n_bytes:
            self.sync()
            needed = _padded(HEAD.size + LENGTH.size + len(record))
            if file.end + needed > file.n_bytes:
                self._turn_over()
        self._buffer += LENGTH.pack(len(record))
        self._buffer += record
        self.last += 1
        return self.last

    def _turn_over(self) -> None:
        other = self._files[1 - self._turn]
        assert other.last <= self._released, "the loop must write a snapshot when it is asked to"
        other.clear()
        self._turn = 1 - self._turn

    def wants_release(self, processed: int) -> bool:
        """Return whether a snapshot should be written soon, to make room.

        It is True from the middle of a file on, while the other one holds records that are needed
        and a snapshot would make all of that file free. The group that `sync` writes next counts,
        since it may be larger than the rest of the file.

        Args:
            processed: Number of the last record that a snapshot would know now.
        """
        file, other = self._files[self._turn], self._files[1 - self._turn]
        end = file.end + (_padded(HEAD.size + len(self._buffer)) if self._buffer else 0)
        return 2 * end >= file.n_bytes and self._released < other.last <= processed

    @property
    def n_unsynced(self) -> int:
        """Return the number of records that `sync` has not written yet."""
        return self.last - self._synced

    def sync(self) -> None:
        """Write the records that were added, and wait until they are on the disk."""
        n = self.n_unsynced
        if not n:
            return
        file, first = self._files[self._turn], self._synced + 1
        head = HEAD.pack(MAGIC, self._identity, first, n, len(self._buffer), 0)[:-4]
        checksum = zlib.crc32(self._buffer, zlib.crc32(head))
        content = head + struct.pack("<I", checksum) + self._buffer
        content += bytes(_padded(len(content)) - len(content))
        offset = file.end
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(file.handle, content[written:], offset + written)
            os.fdatasync(file.handle)
        except OSError as error:
            raise self._error(error) from error
        file.identity, file.last = self._identity, self.last
        file.end = offset + len(content)
        self._buffer.clear()
        self._synced = self.last
        self.n_bytes_written += len(content)

    def release(self, number: int) -> None:
        """Allow records up to this number to be overwritten, because a snapshot knows them."""
        self._released = max(self._released, number)

    def close(self) -> None:
        """Close the files without writing; a second call does nothing."""
        for file in self._files:
            with suppress(OSError):
                os.close(file.handle)
        self._files = []

    def _error(self, error: OSError) -> OutputError:
        return OutputError(
            f"the journal {self.path} cannot be written: {error.strerror}. Free some space or "
            "choose another place for --snapshot; the same command resumes from there."
        )


def _padded(n_bytes: int) -> int:
    """Return a length rounded up to whole blocks."""
    return -(-n_bytes // BLOCK) * BLOCK


def group_bytes(records: Iterable[int]) -> int:
    """Return how many bytes a group of records of these lengths takes in a file of the journal."""
    return _padded(HEAD.size + sum(LENGTH.size + n_bytes for n_bytes in records))


def _write_zeros(path: Path, n_bytes: int) -> None:
    """Make a file of zeros whose blocks are all on the disk."""
    with replacing(path) as beside, beside.open("r+b") as file:
        for _ in range(n_bytes // BLOCK):
            file.write(bytes(BLOCK))
