"""Remember which bytes of a file were read, so that the same file can be recognised later.

Digests (SHA-256) of the first and of the last bytes that were read are kept, not the bytes:

|start|   head, 64 KiB   |   ...   | seam, 4 KiB |
0     1 KiB                                      ^ position

A mark is such a place in a file as a JSON object, which a snapshot keeps.
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
    """Holds a place in a file, and what identifies the bytes before this place.

    Attributes:
        position: Number of bytes before the place.
        start: The first bytes of the file, at most 1 KiB.
        head: Running SHA-256 of the first 64 KiB, or of all bytes before the place if fewer.
        seam: The last bytes before the place, at most 4 KiB.
    """

    position: int = 0
    start: bytes = b""
    head: hashlib._Hash = field(default_factory=sha256)
    seam: bytes = b""

    def followed_by(self, block: bytes) -> ReadBytes:
        """Return the place after a further block of bytes, which was read from this place on."""
        head, start = self.head, self.start
        if self.position < HEAD_BYTES:
            head = head.copy()
            head.update(block[: HEAD_BYTES - self.position])
            start = (start + block)[:START_BYTES]
        return ReadBytes(self.position + len(block), start, head, (self.seam + block)[-SEAM_BYTES:])

    def mark(self) -> dict[str, Any]:
        """Return the mark of the place: position, start, and digests of head and seam, as JSON."""
        return {
            "position": self.position,
            "start": self.start.decode("latin-1"),
            "head": self.head.hexdigest(),
            "seam": sha256(self.seam).hexdigest(),
        }

    def is_marked_in(self, mark: dict[str, Any]) -> bool:
        """Return whether a mark (see `mark`) is of the same place in a file with the same bytes.

        Position and digests are compared, but not "start", which older marks do not have.
        """
        mine = self.mark()
        return all(mine[name] == mark.get(name) for name in ("position", "head", "seam"))

    def is_in(self, fd: int) -> bool:
        """Return whether an open file begins with the bytes that were read before this place."""
        found = bytes_before(fd, self.position)
        return found is not None and found.is_marked_in(self.mark())


def bytes_before(fd: int, position: int) -> ReadBytes | None:
    """Make the `ReadBytes` of a position in an open file; None if the file is shorter.

    Args:
        fd: Number of the open file.
        position: The place, as the number of bytes before it.
    """
    first = os.pread(fd, min(position, HEAD_BYTES), 0)
    start = max(0, position - SEAM_BYTES)
    seam = os.pread(fd, position - start, start)
    if len(first) < min(position, HEAD_BYTES) or len(seam) < position - start:
        return None
    return ReadBytes(position, first[:START_BYTES], sha256(first), seam)


def is_same_start(fd: int, mark: dict[str, Any]) -> bool:
    """Return whether an open file and the file of a mark (see `ReadBytes`) begin alike.

    At most 1 KiB is compared, or what the shorter one has; True if there is nothing to compare.
    """
    start = str(mark.get("start", "")).encode("latin-1")
    found = os.pread(fd, START_BYTES, 0)
    n = min(len(start), len(found))
    return start[:n] == found[:n]


def has_rows(fd: int) -> bool:
    """Return whether an open file has more than a first line, which may be a header."""
    return os.fstat(fd).st_size > HEAD_BYTES or b"\n" in os.pread(fd, HEAD_BYTES, 0).strip()


def n_unread(fd: int, position: int) -> int:
    """Return how many bytes an open file holds after a position; 0 if only blank lines follow."""
    n_bytes = os.fstat(fd).st_size - position
    if n_bytes <= START_BYTES and not os.pread(fd, START_BYTES, position).strip():
        return 0
    return n_bytes


def find_rotated(path: str, mark: dict[str, Any]) -> tuple[str | None, int]:
    """Search the folder of a file for the file of a mark, which was renamed by a rotation.

    Only names are tried that begin with the file's name without its suffix.

    Args:
        path: The present path of the input.
        mark: The mark of the file that an earlier run read.

    Returns:
        The path of the marked file, and how many of its bytes are not read yet; None and 0 if it is
        not found.
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
