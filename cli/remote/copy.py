"""Copy files to a board as one tar archive over ssh, and verify them there by their SHA-256.

    files ──> tar ──> ssh ──> FOLDER on the board ──> SHA-256 of each file there = here?

A board without sha256sum and without Python sends the bytes back, and they are compared here.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgefold.cli.remote.connection import IN_FOLDER, Connection
from edgefold.cli.text.numbers import format_bytes
from edgefold.runtime.errors import BoardFailedError, BundleError
from edgefold.runtime.hashing import sha256, sha256_of

EXECUTABLE, PLAIN = 0o755, 0o644
HASHES = f"""{IN_FOLDER}
cd "$dir/$1" 2>/dev/null || exit 3
shift
for name in "$@"; do [ -f "$name" ] || exit 3; done
if command -v sha256sum >/dev/null 2>&1; then exec sha256sum -- "$@"; fi
if command -v python3 >/dev/null 2>&1; then exec python3 -c '
import hashlib, sys
for name in sys.argv[1:]:
    print(hashlib.sha256(open(name, "rb").read()).hexdigest())
' "$@"; fi
exit 4
"""
ABSENT, NO_TOOL = 3, 4
BLOCK_BYTES = 1 << 16
READ_BACK = f"""{IN_FOLDER}
cd "$dir/$1" || exit 3
shift
exec cat -- "$@"
"""
UNPACK = f"""{IN_FOLDER}
target=$dir/$1
mkdir -p "${{target%/*}}" && rm -rf "$target" && mkdir "$target" && cd "$target" && exec tar xf -
"""
REMOVE = f"""{IN_FOLDER}
exec rm -rf "$dir/$1"
"""


@dataclass(frozen=True, slots=True)
class FileToCopy:
    """Describes a file: where its bytes are here, and its relative name on the board.

    Attributes:
        source: File here, or its bytes.
        name: Relative path on the board, with `/`.
        mode: Permissions there.
        n_bytes: Size.
        sha256: SHA-256 of its bytes, in hexadecimal digits.
    """

    source: Path | bytes
    name: str
    mode: int
    n_bytes: int
    sha256: str


def file_to_copy(path: Path, name: str = "", mode: int = PLAIN) -> FileToCopy:
    """Describe a file here; its name on the board is that of the file, unless one is given."""
    return FileToCopy(path, name or path.name, mode, path.stat().st_size, sha256_of(path))


def text_to_copy(text: str, name: str, mode: int = PLAIN) -> FileToCopy:
    """Describe a file that is made of a text."""
    content = text.encode()
    return FileToCopy(content, name, mode, len(content), sha256(content).hexdigest())


def files_of_bundle(folder: Path) -> list[FileToCopy]:
    """Return the files of a bundle, each whole as its manifest says.

    Raises:
        BundleError: The folder is not a bundle, or is damaged.
    """
    from edgefold.runtime.bundle.manifest_file import load_manifest

    load_manifest(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    if not paths:
        raise BundleError(f"{folder} is not a bundle: it is empty.")
    return [file_to_copy(path, path.relative_to(folder).as_posix()) for path in paths]


def total_bytes(files: Sequence[FileToCopy]) -> int:
    """Return the bytes of all files together."""
    return sum(file.n_bytes for file in files)


def is_same_there(
    connection: Connection, folder: str, place: str, files: Sequence[FileToCopy]
) -> bool:
    """Return whether a place in the board's folder has all files with these very bytes."""
    names = [file.name for file in files]
    answer = connection.run(HASHES, folder, place, *names, doing=f"comparing {place}")
    if answer.code == ABSENT:
        return False
    if answer.code == NO_TOOL:
        back = connection.run(READ_BACK, folder, place, *names, doing=f"reading {place} back")
        whole = sha256()
        for file in files:
            whole.update(_content(file))
        return sha256(back.output).digest() == whole.digest()
    # A line begins with the digits, or with a backslash where the name has an odd character.
    lines = answer.output.decode(errors="replace").splitlines()
    digits = [line.lstrip("\\")[:64] for line in lines]
    return answer.code == 0 and digits == [file.sha256 for file in files]


def send(
    connection: Connection,
    folder: str,
    place: str,
    files: Sequence[FileToCopy],
    show: Callable[[str], None],
) -> None:
    """Copy files into a new place in the board's folder, and verify them there.

    What was at the place is removed first; a copy that breaks off leaves a part of the files.

    Raises:
        BoardFailedError: The line was lost, the board's disk is full, or the bytes differ there.
    """
    board, n_bytes = connection.address.text, total_bytes(files)
    name = place.rpartition("/")[2].removeprefix(".").removesuffix(".new")
    what = f"copying {name}"

    def feed(pipe: IO[bytes]) -> None:
        def count(n_sent: int) -> None:
            percent = min(100 * n_sent // max(n_bytes, 1), 100)
            show(f"copies {percent} % of {name}, {format_bytes(n_bytes)}")

        counted = _CountedPipe(pipe, count, max(n_bytes // 100, 1))
        with tarfile.open(
            fileobj=counted, mode="w|", format=tarfile.GNU_FORMAT, bufsize=BLOCK_BYTES
        ) as archive:
            for file in files:
                _add(archive, file)
        pipe.flush()

    connection.ask(UNPACK, folder, place, doing=what, feed=feed)
    show(f"verifies {name}")
    if not is_same_there(connection, folder, place, files):
        raise BoardFailedError(
            f"{board}: {what} brought other bytes than were sent, by their SHA-256; what was there "
            "before is whole. Check the board's disk, and run the same command again."
        )


def remove(connection: Connection, folder: str, place: str) -> None:
    """Remove a place in the board's folder."""
    connection.ask(REMOVE, folder, place, doing=f"removing {place}")


class _CountedPipe(io.RawIOBase):
    """Passes bytes on to a pipe, and calls `count` with their sum each time `every` have passed."""

    def __init__(self, pipe: IO[bytes], count: Callable[[int], None], every: int):
        self._pipe, self._count, self._every = pipe, count, every
        self._n_sent = self._n_counted = 0

    def write(self, block: object) -> int:
        assert isinstance(block, bytes | bytearray | memoryview)
        self._pipe.write(block)
        self._n_sent += len(block)
        if self._n_sent - self._n_counted >= self._every:
            self._n_counted = self._n_sent
            self._count(self._n_sent)
        return len(block)


def _add(archive: tarfile.TarFile, file: FileToCopy) -> None:
    entry = tarfile.TarInfo(file.name)
    entry.size, entry.mode = file.n_bytes, file.mode
    if isinstance(file.source, bytes):
        archive.addfile(entry, io.BytesIO(file.source))
        return
    entry.mtime = int(file.source.stat().st_mtime)
    with file.source.open("rb") as content:
        archive.addfile(entry, content)


def _content(file: FileToCopy) -> bytes:
    return file.source if isinstance(file.source, bytes) else file.source.read_bytes()
