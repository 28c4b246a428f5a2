from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from edgefold.runtime.backends.needed_memory import needed_bytes

PAGE = mmap.PAGESIZE
BLOCK = 32 << 20


def test_what_a_recorded_process_needs_is_its_anonymous_swapped_and_shared_pages(
    tmp_path: Path,
) -> None:
    assert needed_bytes(tmp_path) is None
    status = tmp_path / "status"
    status.write_text("VmRSS:\t 900 kB\nRssAnon:\t 40 kB\nRssFile:\t 800 kB\nRssShmem:\t 2 kB\n")
    assert needed_bytes(tmp_path) == 42 * 1024
    status.write_text("RssAnon:\t 40 kB\nVmSwap:\t 8 kB\n")
    assert needed_bytes(tmp_path) == 48 * 1024
    for text in ("VmRSS:\t 900 kB\n", "RssAnon:\n", "RssAnon:\t many kB\n"):
        status.write_text(text)
        assert needed_bytes(tmp_path) is None


def test_a_files_clean_pages_are_not_needed_and_written_ones_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(BLOCK))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), BLOCK, access=mmap.ACCESS_COPY)
        pages = np.frombuffer(mapped, np.uint8)[::PAGE]
        before = needed_bytes()
        assert before is not None and pages.sum() == 0  # reads each page
        read = needed_bytes()
        pages[:] = 1  # makes a private copy of each page
        written = needed_bytes()
        del pages
        mapped.close()
    assert read is not None and written is not None
    assert read - before < BLOCK // 4 < 3 * BLOCK // 4 < written - before
