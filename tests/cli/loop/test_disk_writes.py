"""The bytes that a run has written are those of /proc/self/io, where Linux counts them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefold.cli.loop.disk_writes import DiskWrites, written_bytes


class Machine:
    """A clock and a count of bytes that a test sets."""

    time_s = 0.0
    n_bytes: int | None = 5000

    def read(self) -> int | None:
        return self.n_bytes

    def clock(self) -> float:
        return self.time_s

    def save(self, writes: DiskWrites, time_s: float, n_bytes: int) -> None:
        self.time_s, self.n_bytes = time_s, n_bytes
        writes.saved()


def counted(*snapshots: tuple[float, int], is_live: bool = True) -> str:
    """The summary of a run whose snapshots ended at these times and counts."""
    machine = Machine()
    writes = DiskWrites(machine.read, machine.clock)
    for time_s, n_bytes in snapshots:
        machine.save(writes, time_s, n_bytes)
    return writes.summary(is_live)


def test_a_day_is_reckoned_from_the_first_snapshot_on() -> None:
    found = counted((10.0, 8_005_000), (1010.0, 8_105_000), (2010.0, 8_205_000))
    assert found == "8.2 MB in this run, 8.6 MB a day at this rate"


def test_short_runs_and_files_have_no_rate() -> None:
    assert counted((10.0, 105_000), (40.0, 205_000)) == "200.0 kB in this run"
    assert counted((10.0, 105_000), (400.0, 205_000), is_live=False) == "200.0 kB in this run"
    assert counted((10.0, 105_000)) == "100.0 kB in this run"


def test_the_page_has_a_rate_only_after_snapshots_of_a_minute() -> None:
    times = iter((10.0, 40.0, 1010.0))
    writes = DiskWrites(iter((5_000, 8_005_000, 8_006_000, 8_105_000)).__next__, times.__next__)
    rates = []
    for _ in range(3):
        writes.saved()
        rates.append(writes.a_day)
    assert rates == [None, None, 8_640_000.0]


def test_a_machine_that_counts_nothing_is_not_reported(tmp_path: Path) -> None:
    assert written_bytes(tmp_path) is None
    assert counted() == ""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/io").write_text("rchar: 6976\n")
    assert written_bytes(tmp_path) is None
    (tmp_path / "proc/self/io").write_text("rchar: 6976\nwrite_bytes: 4096\ncancelled: 0\n")
    assert written_bytes(tmp_path) == 4096
    assert DiskWrites(lambda: None).summary(True) == ""


def test_pages_of_a_real_file_are_counted(tmp_path: Path) -> None:
    before = written_bytes()
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    after = written_bytes()
    if before is None or after is None or after == before:
        pytest.skip("the file system of the tests' folder counts no bytes for a process")
    assert after - before >= 1 << 20
