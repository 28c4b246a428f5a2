from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from edgefold.devices.memory.process import ProcessMemory
from edgefold.devices.memory.reclaim import FILE_MAP, drop_file_pages, working_files
from edgefold.runtime.errors import MeterError

PAGE = mmap.PAGESIZE


def test_maps_of_files_are_told_from_memory_and_devices() -> None:
    text = (
        "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon\n"
        "00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n"
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
        "7f0000002000-7f0000003000 rw-s 00000000 00:05 1024 /dev/nvmap\n"
        "7f0000004000-7f0000005000 rw-s 00000000 00:01 2048 /memfd:shared (deleted)\n"
        "7f0000006000-7f0000008000 r--p 00001000 08:02 9    /a file with blanks\n"
    )
    assert FILE_MAP.findall(text) == [
        ("00400000", "00452000"),
        ("7f0000006000", "7f0000008000"),
    ]


def test_maps_that_cannot_be_read_are_a_meters_error(tmp_path: Path) -> None:
    with pytest.raises(MeterError):
        drop_file_pages(tmp_path / "maps")


def test_pages_of_files_that_a_loop_uses_come_back_after_a_drop(tmp_path: Path) -> None:
    """Which others come back with them depends on the page cache, so only bounds are asserted."""
    path, size = tmp_path / "pages", 4 << 20
    path.write_bytes(b"x" * size)

    def own() -> int:
        found = (file for file in ProcessMemory().files() if file.path == str(path))
        return next((file.touched_bytes for file in found), 0)

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        touched: list[int] = []

        def loop() -> None:
            assert sum(mapped[start] for start in range(0, size, PAGE)) == ord("x") * size // PAGE
            touched.append(own())

        try:
            found = working_files(loop)
        except MeterError as error:
            pytest.skip(f"this kernel cannot drop pages of a process: {error}")
        assert touched == [size]
        assert size <= found.least_bytes <= found.most_bytes
        assert found.kept_bytes >= 0
        unused: list[int] = []
        working_files(lambda: unused.append(own()))
        assert unused == [0]  # its pages were dropped and not used again
