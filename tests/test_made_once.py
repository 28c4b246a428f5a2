"""What many tests share is made once, whoever asks first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.made_once import made_once


def test_what_was_made_is_not_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text(str(len(calls)))

    first = made_once(tmp_path_factory, "test", make, "a")
    assert made_once(tmp_path_factory, "test", make, "a") == first
    assert (first / "file").read_text() == "1"
    other = made_once(tmp_path_factory, "test", make, "b")
    assert (other / "file").read_text() == "2"


def test_what_failed_is_made_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path_factory, "fails", fail)
    made = made_once(tmp_path_factory, "fails", lambda folder: (folder / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]
