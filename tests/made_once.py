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
    root = folder_of_run(factory)
    folder = root / "made-once" / f"{name}-{sha256(repr(key).encode()).hexdigest()[:16]}"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            work = folder.with_name(f"{folder.name}.work")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            make(work)
            work.rename(folder)
    return folder


def made_each(
    factory: pytest.TempPathFactory, name: str, makers: Mapping[str, Callable[[Path], None]]
) -> Path:
    """Return a folder of the whole run that holds what each maker has made; tests only read it.

    Workers that ask at the same time share the work: each takes what no other is making.

    Args:
        factory: Knows the folder of this run, or of this worker of it.
        name: Name of the folder.
        makers: By the name of an entry of the folder, what makes it at the path that it is
            called with, which does not exist.
    """
    folder = folder_of_run(factory) / "made-once" / name
    folder.mkdir(parents=True, exist_ok=True)
    for waiting in (fcntl.LOCK_NB, 0):
        for entry, make in makers.items():
            with folder.with_name(f"{name}-{entry}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | waiting)
                except BlockingIOError:  # another worker makes it: the second round waits
                    continue
                if not (folder / entry).exists():
                    work = folder.with_name(f"{name}-{entry}.work")
                    shutil.rmtree(work, ignore_errors=True)
                    work.mkdir()
                    make(work / entry)
                    (work / entry).rename(folder / entry)
    return folder


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of the whole run, in which the workers' folders lie."""
    root = factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
