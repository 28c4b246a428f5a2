"""A new output holds nothing or all of its first lines, so that a later run knows its own file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.errors import OutputError
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sinks.rotation import Rotation

HEADER = "time,value\n"


def watch(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[bytes | None]:
    """Return a set that gets the file's content before each call that changes the disk."""
    seen: set[bytes | None] = set()

    def watched(true: Any) -> Any:
        def call(*words: Any, **named: Any) -> Any:
            seen.add(path.read_bytes() if os.path.exists(path) else None)
            return true(*words, **named)

        return call

    for name in ("write", "fsync", "rename", "replace", "ftruncate"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    monkeypatch.setattr(Path, "replace", lambda one, other: os.replace(one, other))
    return seen


def test_a_new_file_is_empty_until_its_header_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    seen = watch(path, monkeypatch)
    output = OutputFile(str(path))
    output.begin(HEADER)
    output.write("1,2\n")
    output.close()
    assert seen == {b"", HEADER.encode()}
    assert path.read_text() == f"{HEADER}1,2\n"


def test_a_next_part_is_empty_until_its_first_rows_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    output = OutputFile(str(path), rotation=Rotation(20))
    output.begin(HEADER)
    output.write("1,2\n")
    output.flush()
    seen = watch(path, monkeypatch)
    output.turn("2,3\n", None, lambda mark: None)
    output.close()
    assert seen == {f"{HEADER}1,2\n".encode(), None, b"", f"{HEADER}2,3\n".encode()}


@pytest.mark.parametrize("left", ["", HEADER, HEADER + "1,2\n3,", HEADER[:4]])
def test_a_run_that_was_cut_in_its_first_steps_goes_on(tmp_path: Path, left: str) -> None:
    path = tmp_path / "out.csv"
    mark = OutputFile(str(path)).first_mark
    path.write_text(left)
    output = OutputFile(str(path))
    output.resume(mark, HEADER, True)
    output.write("1,2\n")
    kept = output.sync()
    output.close()
    assert path.read_text() == f"{HEADER}1,2\n" and kept["length"] == path.stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    mark = OutputFile(str(path)).first_mark
    path.write_text("mine\n")
    with pytest.raises(OutputError, match="not the output"):
        OutputFile(str(path)).resume(mark, HEADER, True)
    assert path.read_text() == "mine\n"
