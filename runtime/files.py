"""A run's files belong to it alone: no two of its own are the same, and no other run holds them.

A lock is the system's (flock) and dies with its process, so a lock file that was left behind
blocks nobody. Nothing here opens the files themselves.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from edgefold.runtime.errors import OutputError, SnapshotError


def refuse_same_files(source: str, output: str | None, snapshot: Path | None) -> None:
    """Refuse files of a run that would overwrite each other, through links too.

    Args:
        source: The input, or "-".
        output: The predictions, "-" or None.
        snapshot: The snapshot, or None.

    Raises:
        OutputError: Two are the same file; nothing was opened.
    """
    roles = [("--input", source, 0), ("--output", output, 1)]
    if snapshot is not None:
        beside = f"{snapshot}.tmp"
        roles += [("--snapshot", str(snapshot), -1), ("the snapshot's temporary file", beside, -1)]
        roles += [("the snapshot's lock", lock_of(snapshot), -1)]
    files = [
        (role, path, _identities(path, standard))
        for role, path, standard in roles
        if path is not None
    ]
    for (role, path, mine), (other_role, other_path, others) in combinations(files, 2):
        if mine & others:
            raise OutputError(
                f"{role} ({path}) and {other_role} ({other_path}) are the same file, which would "
                "be destroyed; nothing was written. Give each its own name."
            )


def lock_of(snapshot: Path) -> str:
    """The file that is locked while a run uses the snapshot."""
    return f"{snapshot}.lock"


def _identities(path: str, standard: int) -> set[object]:
    """What tells a file from another: resolved path and inode; empty for devices and pipes."""
    try:
        found = os.fstat(standard) if path == "-" else os.stat(path)
    except OSError:
        return set() if path == "-" else {os.path.realpath(path)}
    if not stat.S_ISREG(found.st_mode):
        return set()
    inode: set[object] = {(found.st_dev, found.st_ino)}
    return inode if path == "-" else inode | {os.path.realpath(path)}


@contextmanager
def snapshot_lock(snapshot: Path | None) -> Iterator[None]:
    """Hold the snapshot against every other run until the end of the block, or of the process.

    Raises:
        SnapshotError: Another run holds it, or the lock cannot be made.
    """
    if snapshot is None:
        yield
        return
    try:
        handle = os.open(lock_of(snapshot), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SnapshotError(
            f"{lock_of(snapshot)} cannot be made ({error.strerror}); it keeps a second run away "
            "from the snapshot. Choose a place for --snapshot that can be written."
        ) from error
    try:
        if not take(handle):
            raise SnapshotError(
                f"snapshot {snapshot} is in use by another run; wait for it or stop it, or give "
                "this one another snapshot and output."
            )
        yield
    finally:
        os.close(handle)


def take(handle: int) -> bool:
    """Lock an open file until it is closed; False if another run holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
