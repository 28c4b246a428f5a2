"""Keep the last rows of a loop on the disk, so that a new model can learn them later.

Two files of fixed size are written in turn (`edgefold.runtime.sources.journal`), with each snapshot
the rows since the one before. They hold between one and two files' worth of the newest rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.sources.journal import Journal

NAME = struct.Struct("<HB")
"""The length of the sensor's name in bytes, and the number of numbers."""


class KeptRows:
    """Keeps rows as pairs of a sensor's name and its numbers.

    Args:
        path: The common path of the two files, PATH.0 and PATH.1.
        n_bytes: Size of both together.
    """

    def __init__(self, path: Path, n_bytes: int):
        self._journal = Journal(path, n_bytes // 2)
        self._is_open = False

    def open(self, mark: Mapping[str, Any] | None) -> None:
        """Open the files.

        Args:
            mark: What `mark` returned for the snapshot from which the loop resumes; None begins
                anew, and rows of earlier runs are dropped.

        Raises:
            SnapshotError: The mark is damaged, or the files belong to another snapshot.
            OutputError: The file system refused.
        """
        journal = self._journal
        if mark is None:
            journal.remove()
            journal.open()
        else:
            try:
                number, identity = int(mark["number"]), str(mark["identity"])
                bytes.fromhex(identity)
            except (KeyError, TypeError, ValueError) as error:
                raise SnapshotError(f"the mark of the kept rows is damaged ({error}).") from None
            try:
                journal.open(identity, number)
            except DataError as error:
                raise SnapshotError(str(error)) from None
            journal.cut(number)
        self._is_open = True

    def add(self, name: str, numbers: tuple[float, ...]) -> None:
        """Add a row, which `mark` writes."""
        text = name.encode()
        head = NAME.pack(len(text), len(numbers))
        self._journal.release(self._journal.last)
        self._journal.append(head + text + struct.pack(f"<{len(numbers)}d", *numbers))

    def mark(self) -> dict[str, Any]:
        """Write the rows to the disk, and return their place for a snapshot."""
        self._journal.sync()
        return {"number": self._journal.last, "identity": self._journal.identity}

    def rows(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the rows on the disk, the oldest first, as pairs of a name and numbers."""
        for _, record in self._journal.all_records():
            length, n = NAME.unpack_from(record)
            end = NAME.size + length
            yield record[NAME.size : end].decode(), struct.unpack_from(f"<{n}d", record, end)

    def remove(self) -> None:
        """Remove the files."""
        self._journal.remove()

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._journal.close()
