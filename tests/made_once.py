"""Make what many tests share once in a run, whichever worker asks first.

Without it, each of pytest-xdist's workers exports the same bundles again, for tens of seconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
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
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # the workers' folders lie in that of the run
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
