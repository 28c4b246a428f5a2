from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.devices.memory.process import ProcessMemory
from edgefold.runtime.errors import MeterError

STATUS = (
    "Name:\tpython\nVmPeak:\t  201344 kB\nVmHWM:\t   71234 kB\nVmRSS:\t   70012 kB\nThreads:\t1\n"
)
ROLLUP = """55d0a3a4d000-7ffd5b9f4000 ---p 00000000 00:00 0                          [rollup]
Rss:               70016 kB
Pss:               52001 kB
Pss_Dirty:         40000 kB
Shared_Clean:      20000 kB
Shared_Dirty:          0 kB
Private_Clean:      9000 kB
Private_Dirty:     41016 kB
"""


def recorded(root: Path, status: str = STATUS, rollup: str = ROLLUP) -> ProcessMemory:
    folder = root / "self"
    folder.mkdir()
    (folder / "status").write_text(status)
    (folder / "smaps_rollup").write_text(rollup)
    (folder / "clear_refs").write_text("")
    return ProcessMemory(root)


def test_a_recorded_process_reads_in_bytes(tmp_path: Path) -> None:
    reading = recorded(tmp_path).read()
    assert reading.rss_bytes == 70016 * 1024
    assert reading.pss_bytes == 52001 * 1024
    assert reading.uss_bytes == (9000 + 41016) * 1024
    assert reading.peak_rss_bytes == 71234 * 1024


def test_reset_writes_five_to_clear_refs(tmp_path: Path) -> None:
    assert recorded(tmp_path).reset_peak() is None
    assert (tmp_path / "self/clear_refs").read_text() == "5"


def test_a_refused_reset_gives_its_reason(tmp_path: Path) -> None:
    meter = recorded(tmp_path)
    (tmp_path / "self/clear_refs").unlink()
    (tmp_path / "self/clear_refs").mkdir()  # a folder refuses the write, for root too
    reason = meter.reset_peak()
    assert reason is not None and "clear_refs" in reason and "whole life" in reason


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    meter = recorded(tmp_path)
    (tmp_path / "self/smaps_rollup").unlink()
    with pytest.raises(MeterError, match=r"smaps_rollup cannot be read .*no such file"):
        meter.read()


def test_an_unreadable_file_is_named_with_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = recorded(tmp_path)
    (tmp_path / "self/smaps_rollup").chmod(0o200)

    def refuse(path: Path, errors: str | None = None) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)  # root would be let through the mode
    with pytest.raises(MeterError, match=r"smaps_rollup cannot be read .*denied; mode 200"):
        meter.read()


def test_a_kernel_without_the_field_is_told(tmp_path: Path) -> None:
    meter = recorded(tmp_path, status="Name:\tpython\n")
    with pytest.raises(MeterError, match="no line 'VmHWM"):
        meter.peak_bytes()


def test_this_process_is_measured() -> None:
    meter = ProcessMemory()
    block = bytearray(b"x") * (32 << 20)
    before = meter.read()
    del block
    assert meter.reset_peak() is None
    after = meter.read()
    assert before.peak_rss_bytes - after.peak_rss_bytes > 24 << 20
    assert 0 < after.uss_bytes <= after.pss_bytes <= after.rss_bytes
