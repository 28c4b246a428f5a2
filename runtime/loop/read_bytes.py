"""The bytes that were read of a file, by digests as they came: which file it was, and how far.

|start|   head, 64 KiB   |   ...   | seam, 4 KiB |
0     1 KiB                                      ^ position
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.hashing import sha256

if TYPE_CHECKING:
    import hashlib

START_BYTES = 1024
HEAD_BYTES = 65536
SEAM_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """A place in a file, with what was read before it.

    Attributes:
        position: Bytes before it.
        start: The first of them.
        head: Running digest of the first 64 KiB.
        seam: The last of them.
    """

    position: int = 0
    start: bytes = b""
    head: hashlib._Hash = field(default_factory=sha256)
    seam: bytes = b""

    def followed_by(self, block: bytes) -> ReadBytes:
        """Return the place behind a further block."""
        head, start = self.head, self.start
        if self.position < HEAD_BYTES:
            head = head.copy()
            head.update(block[: HEAD_BYTES - self.position])
            start = (start + block)[:START_BYTES]
        return ReadBytes(self.position + len(block), start, head, (self.seam + block)[-SEAM_BYTES:])

    def mark(self) -> dict[str, Any]:
        """Return the place as plain JSON."""
        return {
            "position": self.position,
            "start": self.start.decode("latin-1"),
            "head": self.head.hexdigest(),
            "seam": sha256(self.seam).hexdigest(),
        }

    def is_marked_in(self, mark: dict[str, Any]) -> bool:
        """Whether a mark is of the same bytes; older marks have no start."""
        mine = self.mark()
        return all(mine[name] == mark.get(name) for name in ("position", "head", "seam"))

    def is_in(self, fd: int) -> bool:
        """Whether a file holds these bytes."""
        found = bytes_before(fd, self.position)
        return found is not None and found.is_marked_in(self.mark())


def bytes_before(fd: int, position: int) -> ReadBytes | None:
    """Read the place `position` from an open file; None if the file is shorter."""
    first = os.pread(fd, min(position, HEAD_BYTES), 0)
    start = max(0, position - SEAM_BYTES)
    seam = os.pread(fd, position - start, start)
    if len(first) < min(position, HEAD_BYTES) or len(seam) < position - start:
        return None
    return ReadBytes(position, first[:START_BYTES], sha256(first), seam)


def is_same_start(fd: int, mark: dict[str, Any]) -> bool:
    """Whether a file begins as the marked one, as far as both reach; true if nobody can know."""
    start = str(mark.get("start", "")).encode("latin-1")
    found = os.pread(fd, START_BYTES, 0)
    n = min(len(start), len(found))
    return start[:n] == found[:n]


def has_rows(fd: int) -> bool:
    """Whether a file has more than a first line, which may be a header."""
    return os.fstat(fd).st_size > HEAD_BYTES or b"\n" in os.pread(fd, HEAD_BYTES, 0).strip()


def n_unread(fd: int, position: int) -> int:
    """Count the bytes behind a position; 0 where only blank lines are left."""
    n_bytes = os.fstat(fd).st_size - position
    if n_bytes <= START_BYTES and not os.pread(fd, START_BYTES, position).strip():
        return 0
    return n_bytes


def find_rotated(path: str, mark: dict[str, Any]) -> tuple[str | None, int]:
    """Look beside a file for the marked one under a name that begins alike, as rotation gives.

    Returns:
        Its path and `n_unread` behind the mark; None and 0 if it is not there.
    """
    file = Path(path)
    for other in sorted(file.parent.glob(f"{escape(file.stem)}?*")):
        try:
            fd = os.open(other, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            if other.name == file.name or not stat.S_ISREG(os.fstat(fd).st_mode):
                continue
            place = bytes_before(fd, mark["position"])
            if place is not None and place.is_marked_in(mark):
                return str(other), n_unread(fd, place.position)
        finally:
            os.close(fd)
    return None, 0
