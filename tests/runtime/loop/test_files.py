from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefold.runtime.errors import DataError, OutputError
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.input_file import InputFile


def lines_of(source: InputFile) -> list[bytes]:
    lines = []
    while line := source.readline(65536):
        lines.append(line)
    return lines


def test_an_input_gives_every_line_and_its_position(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\n\nthree\r\nlast")
    source = InputFile(str(path))
    assert [(source.readline(65536), source.position) for _ in range(5)] == [
        (b"one\n", 4),
        (b"\n", 5),
        (b"three\r\n", 12),
        (b"last", 16),
        (b"", 16),
    ]
    source.close()
    source.close()


def test_a_long_line_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"x" * 200_000 + b"\nnext\n")
    source = InputFile(str(path))
    pieces = [source.readline(65536) for _ in range(5)]
    source.close()
    assert [len(piece) for piece in pieces] == [65536, 65536, 65536, 200_000 - 3 * 65536 + 1, 5]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("n_read", [1, 3, 5])
def test_an_input_goes_on_behind_its_mark(tmp_path: Path, end: str, n_read: int) -> None:
    path = tmp_path / "in"
    lines = [f"line {i}{end}".encode() for i in range(5)]
    path.write_bytes(b"".join(lines))
    first = InputFile(str(path))
    for _ in range(n_read):
        first.readline(65536)
    first.keep()
    mark = first.mark()
    first.close()
    second = InputFile(str(path))
    second.resume(mark)
    assert lines_of(second) == lines[n_read:]
    second.close()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_last_line_may_get_its_end_later(tmp_path: Path, end: str) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"head\nlast")
    first = InputFile(str(path))
    assert len(lines_of(first)) == 2
    first.keep()
    mark = first.mark()
    first.close()
    with path.open("ab") as file:
        file.write(f"{end}new{end}".encode())
    second = InputFile(str(path))
    second.resume(mark)
    assert lines_of(second) == [f"new{end}".encode()]
    second.close()


def test_an_input_refuses_another_file(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\n" * 50_000)
    first = InputFile(str(path))
    for _ in range(45_000):
        first.readline(65536)
    first.keep()
    mark = first.mark()
    first.close()
    for changed in (b"a\n" * 40_000, b"b\n" + b"a\n" * 49_999, b"a\n" * 44_990 + b"c\n" * 10_010):
        path.write_bytes(changed)
        source = InputFile(str(path))
        with pytest.raises(DataError, match="is not the input"):
            source.resume(mark)
        source.close()


def test_a_silent_pipe_ends_when_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"whole\nhal")
    asked = iter([False, True])
    source = InputFile(str(path), lambda: next(asked))
    assert not source.seekable
    assert source.readline(65536) == b"whole\n"
    assert source.readline(65536) == b""
    os.close(writer)
    source.close()


def test_a_named_pipe_without_a_writer_ends_when_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    asked = iter([False, True])
    source = InputFile(str(path), lambda: next(asked))
    assert source.readline(65536) == b""
    source.close()


def test_a_named_pipe_may_get_its_writer_later(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> bool:
        path.write_text("one\ntwo\n")
        return False

    asked = iter([write])
    source = InputFile(str(path), lambda: next(asked, lambda: False)())
    assert lines_of(source) == [b"one\n", b"two\n"]
    source.close()


def test_an_output_pipe_without_a_reader_ends_when_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    asked = iter([False, True])
    with pytest.raises(OutputError, match="has no reader"):
        OutputFile(str(path), lambda: next(asked)).begin("")


@pytest.mark.long
def test_an_output_pipe_whose_reader_stalls_ends_when_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output = OutputFile(str(path), lambda: True)
    output.begin("")
    with pytest.raises(OutputError, match="nobody reads"):
        for _ in range(200_000):
            output.write("a row\n")
    output.close()
    assert os.read(reader, 6) == b"a row\n"
    os.close(reader)


def test_an_output_is_cut_back_to_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "out"
    first = OutputFile(str(path))
    first.begin("")
    first.write("kept\n")
    mark = first.sync()
    first.write("lost\n")
    first.close()
    assert path.read_text() == "kept\nlost\n"
    second = OutputFile(str(path))
    second.resume(mark, "", False)
    second.write("new\n")
    second.close()
    assert path.read_text() == "kept\nnew\n"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_output_that_loses_its_name_is_refused(tmp_path: Path, is_replaced: bool) -> None:
    path = tmp_path / "out"
    output = OutputFile(str(path))
    output.begin("")
    output.write("row\n")
    assert output.sync()["length"] == 4
    path.rename(tmp_path / "moved")
    if is_replaced:
        path.write_text("row\n")
    with pytest.raises(OutputError, match="removed, renamed or replaced"):
        output.sync()
    output.close()


def test_an_output_that_exists_is_overwritten_by_force_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    output = OutputFile(str(path))
    with pytest.raises(OutputError, match="--force"):
        output.begin("")
    assert path.read_text() == "mine"
    output.begin("", force=True)
    output.write("new\n")
    output.close()
    assert path.read_text() == "new\n"


def test_an_output_without_path_takes_everything() -> None:
    output = OutputFile(None)
    output.begin("")
    output.write("row\n")
    assert output.sync() == {} and not output.exists
    output.close()


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="none/out cannot be written: No such file"):
        OutputFile(str(tmp_path / "none/out")).begin("")


@pytest.mark.parametrize("resumed", [False, True])
def test_the_name_of_a_new_output_is_on_the_disk_before_a_snapshot_counts_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    synced: list[Path] = []

    def fsync(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))

    folder = tmp_path / "true"
    folder.mkdir()
    path = folder / "out.csv"
    if not resumed:
        path = tmp_path / "link.csv"
        path.symlink_to(folder / "out.csv")
    output = OutputFile(str(path))
    monkeypatch.setattr(os, "fsync", fsync)
    if resumed:  # the snapshot of a run that was stopped before its output began
        output.resume(output.first_mark, "a\n", True)
    else:
        output.begin("a\n", force=True)
    mark = output.sync()
    output.close()
    assert synced[-2:] == [folder, folder / "out.csv"] and mark["length"] == 2
