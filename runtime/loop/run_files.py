"""Protect the files of a run: refuse equal ones, and lock the snapshot against other runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path

from edgefold.runtime.errors import OutputError, SnapshotError
from edgefold.runtime.files import lock_file


def refuse_same_files(
    source: str,
    output: str | None,
    snapshot: Path | None,
    alarms: str | None = None,
    metrics: Path | None = None,
) -> None:
    """Refuse a run in which two files are the same one, so that one would overwrite the other.

    Links are followed.

    Args:
        source: Path of the input, or "-" for standard input.
        output: Path of the predictions, "-" for standard output, or None for none.
        snapshot: Path of the snapshot, or None for none.
        alarms: Path of the alarms, "-" for standard output, or None for none.
        metrics: Path of the metrics, or None for none.

    Raises:
        OutputError: Two of them are the same file; nothing was opened.
    """
    roles = [("--input", source, 0), ("--output", output, 1), ("--alarms", alarms, 1)]
    if snapshot is not None:
        roles += [
            ("--snapshot", str(snapshot), -1),
            ("the snapshot's lock", f"{os.path.realpath(snapshot)}.lock", -1),
        ]
    if metrics is not None:
        roles.append(("--metrics-file", str(metrics), -1))
    files = [(role, path, _identities(path, fd)) for role, path, fd in roles if path is not None]
    for (role, path, mine), (other_role, other_path, others) in combinations(files, 2):
        if mine & others:
            raise OutputError(
                f"{role} ({path}) and {other_role} ({other_path}) are the same file, which would "
                "be destroyed; nothing was written. Give each its own name."
            )


def _identities(path: str, standard: int) -> set[object]:
    """Return values that identify a regular file: its resolved path, and device and inode number.

    The set is empty for devices and pipes.

    Args:
        path: The path, or "-".
        standard: Number of the open file for which "-" stands.
    """
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
    """Keep every other run from using the snapshot, until the end of the `with` block.

    The end of the process also ends the lock. Without a snapshot nothing is locked.

    Raises:
        SnapshotError: Another run uses the snapshot, or the lock cannot be made.
    """
    if snapshot is None:
        yield
        return
    lock = Path(f"{os.path.realpath(snapshot)}.lock")  # by a link it is the same snapshot
    with ExitStack() as stack:
        try:
            held = stack.enter_context(lock_file(lock))
        except OSError as error:
            raise SnapshotError(_explain_lock(lock, error)) from error
        if not held:
            raise SnapshotError(
                f"snapshot {snapshot} is in use by another run; wait for it or stop it, or give "
                "this one another snapshot and output."
            )
        yield


def _explain_lock(lock: Path, error: OSError) -> str:
    """Return an error message that says why a lock file cannot be opened.

    Either another user made the file, or its folder cannot be written.
    """
    try:
        owner = lock.stat().st_uid
    except OSError:
        return (
            f"{lock} cannot be made ({error.strerror}); it keeps a second run away from the "
            "snapshot. Choose a place for --snapshot that can be written."
        )
    return (
        f"{lock} cannot be opened ({error.strerror}): it was made by user {owner}, and this is "
        f"user {os.geteuid()}. Run as that user; or, if none of its runs uses the snapshot, remove "
        "the file, which holds nothing."
    )
