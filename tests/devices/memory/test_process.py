from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from edgefold.devices.memory.process import (
    MappedFile,
    MemoryReading,
    ProcessMemory,
    SystemMemory,
)
from edgefold.runtime.errors import MeterError
from tests.recorded_boards import jetson_orin_nano

STATUS = (
    "Name:\tpython\nVmPeak:\t  201344 kB\nVmHWM:\t   71234 kB\nVmRSS:\t   70012 kB\n"
    "RssAnon:\t   41000 kB\nRssFile:\t   28988 kB\nRssShmem:\t      24 kB\nThreads:\t1\n"
)
ROLLUP = """55d0a3a4d000-7ffd5b9f4000 ---p 00000000 00:00 0                          [rollup]
Rss:               70016 kB
Pss:               52001 kB
Pss_Dirty:         40000 kB
Shared_Clean:      20000 kB
Shared_Dirty:          0 kB
Private_Clean:      9000 kB
Private_Dirty:     41016 kB
Anonymous:         41016 kB
Swap:                 80 kB
"""
SMAPS = """55d000000000-55d000002000 r-xp 00000000 fe:00 260386                     /lib/my lib.so
Size:                  8 kB
Rss:                   8 kB
Referenced:            4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55d000002000-55d000004000 rw-p 00002000 fe:00 260386                     /lib/my lib.so
Size:                  8 kB
Rss:                   8 kB
Referenced:            8 kB
Anonymous:             4 kB
VmFlags: rd mr mw me
55d000004000-55d000104000 r--p 00000000 fe:00 260387                     /lib/large.so
Size:               1024 kB
Rss:                  64 kB
Referenced:            0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7ff000000000-7ff000008000 rw-s 00000000 00:01 77                         /dev/shm/ring
Size:                 32 kB
Rss:                  32 kB
Referenced:           32 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7ff000010000-7ff000110000 rw-p 00000000 00:00 0
Size:               1024 kB
Rss:                1024 kB
Referenced:         1024 kB
Anonymous:          1024 kB
VmFlags: rd mr mw me
"""


def recorded(root: Path, status: str = STATUS, rollup: str = ROLLUP) -> ProcessMemory:
    folder = root / "self"
    folder.mkdir()
    (folder / "status").write_text(status)
    (folder / "smaps_rollup").write_text(rollup)
    (folder / "smaps").write_text(SMAPS)
    (folder / "clear_refs").write_text("")
    return ProcessMemory(root)


def test_a_recorded_process_reads_in_bytes(tmp_path: Path) -> None:
    meter = recorded(tmp_path)
    assert meter.read() == MemoryReading(
        needed_bytes=(41016 + 80 + 24) * 1024,  # anonymous, swapped, shared
        file_bytes=(70016 - 41016 - 24) * 1024,
    )
    assert meter.resident_peak_bytes() == 71234 * 1024


def test_mapped_files_are_told_without_what_is_written_to_of_them(tmp_path: Path) -> None:
    large, small = recorded(tmp_path).files()
    assert large == MappedFile("/lib/large.so", 0, 64 * 1024, 1024 * 1024)
    assert small == MappedFile("/lib/my lib.so", 8 * 1024, 12 * 1024, 12 * 1024)


def test_a_window_ends_by_writing_five_to_clear_refs(tmp_path: Path) -> None:
    assert recorded(tmp_path).start_window() is None
    assert (tmp_path / "self/clear_refs").read_text() == "5"


def test_a_refused_reset_gives_its_reason(tmp_path: Path) -> None:
    meter = recorded(tmp_path)
    (tmp_path / "self/clear_refs").unlink()
    (tmp_path / "self/clear_refs").mkdir()  # a folder refuses the write, for root too
    reason = meter.start_window()
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

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(
        "edgefold.devices.sysfs.read_bytes", refuse
    )  # root would be let through the mode
    with pytest.raises(MeterError, match=r"smaps_rollup cannot be read .*denied; mode 200"):
        meter.read()


def test_a_kernel_without_the_field_is_told(tmp_path: Path) -> None:
    meter = recorded(tmp_path, status="Name:\tpython\n")
    with pytest.raises(MeterError, match="no line 'VmHWM"):
        meter.resident_peak_bytes()


def test_this_process_is_measured() -> None:
    meter, size = ProcessMemory(), 32 << 20
    # Pages of its own: memory of malloc's might come from what was freed before, and stay there.
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(b"x" * size)
        before, before_peak = meter.read(), meter.resident_peak_bytes()
    assert meter.start_window() is None
    after = meter.read()
    assert 24 << 20 < before.needed_bytes - after.needed_bytes < 40 << 20
    assert before_peak > 32 << 20  # needed pages are resident ones
    files = meter.files()
    assert sum(file.resident_bytes for file in files) <= sum(file.mapped_bytes for file in files)


def test_a_window_knows_which_pages_were_touched_in_it(tmp_path: Path) -> None:
    path, size = tmp_path / "file", 8 << 20
    path.write_bytes(bytes(size))
    meter = ProcessMemory()

    def touched() -> int:
        return next(file.touched_bytes for file in meter.files() if file.path == str(path))

    with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
        assert len(bytes(mapped)) == size
        assert touched() == size
        assert meter.start_window() is None
        assert touched() == 0


def test_free_memory_is_memfree_and_not_what_the_page_cache_would_give(tmp_path: Path) -> None:
    assert SystemMemory(jetson_orin_nano(tmp_path) / "proc").free_bytes() == 1893120 * 1024
    with pytest.raises(MeterError):
        SystemMemory(tmp_path / "nothing").free_bytes()
