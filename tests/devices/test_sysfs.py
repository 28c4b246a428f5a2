from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefold.devices.sysfs import optional_number, optional_text, read_text
from edgefold.runtime.errors import MeterError
from tests.recorded_boards import silent, write


def test_a_file_that_answers_eagain_is_an_error_with_that_cause_and_no_figure(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"temp": "51000\n"})
    with silent(tmp_path / "temp"):
        with pytest.raises(MeterError) as caught:
            read_text(tmp_path / "temp")
        assert isinstance(caught.value.__cause__, BlockingIOError)
        assert optional_text(tmp_path / "temp") is None
        assert optional_number(tmp_path / "temp") is None


def test_a_file_longer_than_one_read_comes_whole_and_leaves_no_handle(tmp_path: Path) -> None:
    write(tmp_path, {"clients": "a line of a table\n" * 20_000})
    before = len(os.listdir("/proc/self/fd"))
    assert read_text(tmp_path / "clients").count("\n") == 19_999  # the last one is stripped
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_is_an_error_as_any_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(MeterError):
        read_text(tmp_path)
