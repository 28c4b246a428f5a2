"""Make what many tests share once in a run, whichever worker asks first.

Without it, each of pytest-xdist's workers exports the same bundles again, for tens of seconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None], key: object = ""
) -> Path:
    """Return a folder of the whole run that `make` has filled; tests only read it.

    Args:
        factory: Knows the folder of this run, or of this worker of it.
        name: Name of the folder, one for each kind of content.
        make: Fills the empty folder that it is called with. Where it raises, the next one who asks
            tries again.
        key: What the content depends on, where a name has several: its text tells them apart.
    """
    folder = folder_of_run(factory) / f"{name}-{sha256(repr(key).encode()).hexdigest()[:16]}"

    def fill(work: Path) -> None:
        work.mkdir()
        make(work)

    make_if_missing(folder, f"{folder}", fill)
    return folder


def made_each(
    factory: pytest.TempPathFactory, name: str, makers: Mapping[str, Callable[[Path], object]]
) -> Path:
    """Return a folder of the whole run that holds what each maker has made; tests only read it.

    Workers that ask at the same time share the work: each takes what no other is making.

    Args:
        factory: Knows the folder of this run, or of this worker of it.
        name: Name of the folder.
        makers: By the name of an entry of the folder, what makes it at the path that it is
            called with, which does not exist.
    """
    folder = folder_of_run(factory) / name
    folder.mkdir(exist_ok=True)
    for waits in (False, True):
        for entry, make in makers.items():
            make_if_missing(folder / entry, f"{folder}-{entry}", make, waits)
    return folder


def make_if_missing(
    path: Path, beside: str, make: Callable[[Path], object], waits: bool = True
) -> None:
    """Make what lies at a path, unless it is there.

    Args:
        path: Where it appears once it is whole.
        beside: Begins the names of the lock and of the place where it is made.
        make: Makes it at the path that it is called with, which does not exist.
        waits: Whether to wait for another worker that makes it now.
    """
    with Path(f"{beside}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if not path.exists():
            work = Path(f"{beside}.work")
            shutil.rmtree(work, ignore_errors=True)
            make(work)
            work.rename(path)


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of a run share, for what is made once."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # the workers' folders lie in that of the run
    folder = root / "made-once"
    folder.mkdir(exist_ok=True)
    return folder
