"""A loop under a real limit of the kernel: a control group of its own below this process's.

It runs where a group may be made (root, or a delegated tree); elsewhere the tests are skipped with
what is missing. Only processes that the test starts enter the group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefold.devices.memory.cgroup import CgroupMemory, CgroupNames
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import MeterError
from edgefold.runtime.stream.memory_estimate import footprint

LOOP = """
import sys
from edgefold.runtime import Stream
with Stream.open(sys.argv[1], backend="onnxruntime") as stream:
    row = [[0.25] * stream.manifest.n_inputs]
    stream.condition(row * 16, [[0.5]] * 16)
    for _ in range(200):
        stream.query(row)
        stream.update(row, [[0.5]])
    stream.query(row * 2)
print("done")
"""
STUCK_S = 60  # a loop that reads its pages again and again makes no progress to speak of


class Group:
    """A control group with a limit and without swap."""

    def __init__(self, folder: Path, names: CgroupNames):
        self.folder, self._names = folder, names

    def limit(self, n_bytes: int) -> None:
        """Bound memory, and memory with swap."""
        (self.folder / self._names.limit).write_text(str(n_bytes))
        swap = {1: ("memory.memsw.limit_in_bytes", n_bytes), 2: ("memory.swap.max", 0)}
        name, value = swap[self._names.version]
        if (self.folder / name).exists():
            (self.folder / name).write_text(str(value))

    def n_killed(self) -> int:
        """How many processes the kernel killed for want of memory."""
        name = {1: "memory.oom_control", 2: "memory.events"}[self._names.version]
        lines = (self.folder / name).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        above = CgroupMemory()
    except MeterError as error:
        pytest.skip(f"no control group accounts for this process: {error}")
    folder = above.folder / f"edgefold-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group may be made in {above.folder}: {error.strerror}")
    try:
        if not (folder / above.names.limit).exists():
            pytest.skip(f"{above.folder} does not give its groups the memory controller")
        yield Group(folder, above.names)
    finally:
        for _ in range(50):  # a process that has ended leaves its group a moment later
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def run_in(group: Group, bundle: Path) -> subprocess.CompletedProcess[str]:
    """Run the loop; it enters the group before Python starts, so that all of it is counted."""
    entry = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group.folder / "cgroup.procs")]
    return subprocess.run(
        [*entry, sys.executable, "-c", LOOP, str(bundle)],
        capture_output=True,
        text=True,
        timeout=STUCK_S,
    )


def test_a_loop_runs_at_the_figure_to_run_well(group: Group, tiny_bundle: Path) -> None:
    group.limit(footprint(load_manifest(tiny_bundle)).to_run_well_bytes)
    done = run_in(group, tiny_bundle)
    assert done.stdout == "done\n", done.stderr
    assert group.n_killed() == 0


def test_a_loop_is_killed_a_tenth_below_what_it_needs(group: Group, tiny_bundle: Path) -> None:
    group.limit(int(footprint(load_manifest(tiny_bundle)).needed_bytes * 0.9))
    done = run_in(group, tiny_bundle)
    assert done.stdout == ""
    killed = done.returncode == -signal.SIGKILL and group.n_killed() == 1
    assert killed or "MemoryError" in done.stderr, done.stderr
