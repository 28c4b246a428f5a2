"""A file that is cut, rewritten or rotated while a loop reads it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.loop import LoopOptions, PredictionLoop
from edgefold.runtime.predictions import Gaussian
from edgefold.runtime.rows.csv_columns import PointColumns
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sources.input_file import InputFile
from tests.runtime.loop.test_loop import FakeStream, rows_of

N_ROWS = 2000  # of 80 bytes: more than the blocks that are read ahead
EVERY = 100
CHANGE_AT = 700


def lines(first: int = 0, n: int = N_ROWS) -> str:
    return "".join(f"{row},{10 * row:>74}\n" for row in range(first, first + n))


def run(
    folder: Path,
    name: str = "in.csv",
    stop: Callable[[], bool] = lambda: False,
    next_file: bool = False,
) -> PredictionLoop:
    """Run a loop over a file until its end, or until `stop`, asked after each row."""
    source = InputFile(str(folder / name), whole_lines=True)
    loop = PredictionLoop(
        FakeStream(Gaussian(), 1),  # type: ignore[arg-type]
        [RowAdapter(PointColumns(1, 1), 1)],
        source,
        OutputFile(str(folder / "out.csv")),
        folder / "s.npz",
        LoopOptions(every=EVERY, next_file=next_file),
    )
    try:
        loop.run(stop)
    finally:
        source.close()
    return loop


def after(n_rows: int, act: Callable[[], object], stops: bool = False) -> Callable[[], bool]:
    """A `stop` that acts once, after n rows, and from then on says whether to stop."""
    asked = count(1)

    def stop() -> bool:
        n = next(asked)
        if n == n_rows:
            act()
        return stops and n >= n_rows

    return stop


def learned(folder: Path) -> list[str]:
    """The x of each row in the output, which FakeStream has learned."""
    return [row[1] for row in rows_of(folder)[1:]]


def in_place(path: Path, text: str) -> None:
    """Overwrite as `cat other > path` does: the same file, other bytes."""
    with path.open("r+") as file:
        file.truncate(0)
        file.write(text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("x1,y1\n" + lines())
    return path


@pytest.mark.one_case
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x1,y1\n",
        "x1,y1\n5,5\n",
        "x1,y1\n" + lines(n=100),
        "x1,y1\n" + lines(7, N_ROWS),
        "x1,y1\n" + lines(7, 3 * N_ROWS),
    ],
)
@pytest.mark.parametrize("at", [1, 90, CHANGE_AT, N_ROWS])
def test_a_file_that_is_cut_or_overwritten_stops_the_loop_and_the_old_one_goes_on(
    file: Path, tmp_path: Path, text: str, at: int
) -> None:
    whole = file.read_text()
    with pytest.raises(DataError):
        run(tmp_path, stop=after(at, lambda: in_place(file, text)))
    if at > EVERY:  # else nothing is kept, and any file may be the first
        with pytest.raises(DataError):
            run(tmp_path)
    in_place(file, whole)
    assert run(tmp_path).counters.malformed == 0
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS)]


def test_a_file_that_only_grows_is_read_on(file: Path, tmp_path: Path) -> None:
    def grow() -> None:
        with file.open("a") as more:
            more.write(lines(N_ROWS, 50))

    run(tmp_path, stop=after(CHANGE_AT, grow))
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 50)]


def test_a_stop_after_the_change_keeps_the_snapshot_too(file: Path, tmp_path: Path) -> None:
    whole = file.read_text()
    with pytest.raises(DataError):
        run(tmp_path, stop=after(CHANGE_AT, lambda: in_place(file, "x1,y1\n"), stops=True))
    in_place(file, whole)
    run(tmp_path)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS)]


# Rotation ----------------------------------------------------------------------------------------


def rotate(path: Path, text: str, name: str = "in.csv.1") -> None:
    """Rename the file and write a new one, as logrotate with `create`."""
    path.rename(path.with_name(name))
    path.write_text(text)


NEW = "x1,y1\n" + lines(N_ROWS, 100)


@pytest.mark.parametrize("name", ["in.csv.1", "in-20240101.csv", "gone"])
def test_a_rotated_file_is_read_to_its_end_and_the_next_one_from_its_start(
    file: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataError, match="--next-file"):
        run(tmp_path, stop=after(CHANGE_AT, lambda: rotate(file, NEW, name)))
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS)]
    with pytest.raises(DataError, match="--next-file"):  # never by itself
        run(tmp_path)
    for _ in range(2):  # the option may stay
        loop = run(tmp_path, next_file=True)
        assert loop.resumed and loop.counters.rows == N_ROWS + 100
        assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 100)]


def test_the_former_file_goes_on_after_a_rotation(file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        run(tmp_path, stop=after(CHANGE_AT, lambda: rotate(file, NEW)))
    (tmp_path / "in.csv.1").rename(file)
    run(tmp_path)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS)]


def test_rows_that_were_added_before_a_rotation_are_not_passed_over(
    file: Path, tmp_path: Path
) -> None:
    run(tmp_path)
    with file.open("a") as more:
        more.write(lines(N_ROWS, 10))
    rotate(file, "x1,y1\n" + lines(N_ROWS + 10, 10))
    with pytest.raises(DataError, match=r"in\.csv\.1"):
        run(tmp_path, next_file=True)
    run(tmp_path, name="in.csv.1")
    run(tmp_path, next_file=True)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 20)]


def test_a_file_that_was_not_read_to_its_end_is_asked_for(file: Path, tmp_path: Path) -> None:
    run(tmp_path, stop=after(CHANGE_AT, lambda: rotate(file, NEW, "elsewhere"), stops=True))
    with pytest.raises(DataError, match="not read to its end"):
        run(tmp_path, next_file=True)
    run(tmp_path, name="elsewhere")
    run(tmp_path, next_file=True)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 100)]


@pytest.mark.parametrize("text", ["", "x1,y1\n", "x1,y1\n" + lines(n=2)])
def test_a_next_file_that_begins_like_the_former_one_waits(
    file: Path, tmp_path: Path, text: str
) -> None:
    """It may be the former one, cut: its rows would be learned twice."""
    run(tmp_path)
    rotate(file, text)
    with pytest.raises(DataError) as waits:
        run(tmp_path, next_file=True)
    assert ("--force" in str(waits.value)) == (len(text) >= 10)
    if len(text) < 10:
        file.write_text(NEW)
        run(tmp_path, next_file=True)
        assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 100)]


def test_a_file_that_is_copied_and_cut_is_rotated_as_well(file: Path, tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "in.csv.1").write_text(file.read_text())
    in_place(file, NEW)
    run(tmp_path, next_file=True)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 100)]


def test_a_next_file_that_is_killed_at_once_keeps_what_was_learned(
    file: Path, tmp_path: Path
) -> None:
    run(tmp_path)
    rotate(file, NEW)
    run(tmp_path, next_file=True, stop=after(1, lambda: None, stops=True))
    run(tmp_path)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 100)]


def test_a_file_saved_under_a_new_inode_with_the_same_rows_is_the_same(
    file: Path, tmp_path: Path
) -> None:
    def save() -> None:
        (tmp_path / "new").write_text(file.read_text() + lines(N_ROWS, 5))
        os.replace(tmp_path / "new", file)

    run(tmp_path, stop=after(CHANGE_AT, save))
    run(tmp_path)
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS + 5)]


def test_a_pipe_that_takes_the_name_of_the_file_is_another_file(file: Path, tmp_path: Path) -> None:
    def replace() -> None:
        file.unlink()
        os.mkfifo(file)

    with pytest.raises(DataError):
        run(tmp_path, stop=after(CHANGE_AT, replace))
    assert learned(tmp_path) == [str(row) for row in range(N_ROWS)]


def test_a_file_after_a_pipe_is_read_from_its_start(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"x1,y1\n" + lines(n=5).encode())
    run(tmp_path, "pipe", stop=after(5, lambda: os.close(writer)))
    (tmp_path / "in.csv").write_text("x1,y1\n" + lines(5, 300))
    for _ in range(2):
        run(tmp_path)
        assert learned(tmp_path) == [str(row) for row in range(305)]


# Lines without an end ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_bytes", [100, 65_535, 65_536, 65_537, 100_000, 300_000])
def test_a_long_last_line_without_an_end_is_left_to_the_next_run(
    tmp_path: Path, n_bytes: int
) -> None:
    file = tmp_path / "in.csv"
    file.write_text("x1,y1\n" + lines(n=5) + "7" * n_bytes)
    for _ in range(2):
        loop = run(tmp_path)
        assert isinstance(loop._source, InputFile)
        assert loop._source.n_left == n_bytes
        assert loop.counters.malformed == 0
    with file.open("a") as more:
        more.write("777\n" + lines(5, 3))
    loop = run(tmp_path)
    assert (loop.counters.rows, loop.counters.malformed) == (8, 1)
    assert [row[0] for row in rows_of(tmp_path)[1:]] == [str(n) for n in (*range(2, 7), 8, 9, 10)]


@pytest.mark.one_case
@pytest.mark.parametrize("start", [b"", b"x1,y1\n1,10\n"])
@pytest.mark.parametrize("block", [b"\0" * 4096, b"\n" * 4096, b"7" * 4096, b"7,7\n" * 1024])
def test_a_pipe_that_never_ends_can_be_stopped(tmp_path: Path, start: bytes, block: bytes) -> None:
    """A block more is there whenever the loop asks whether to stop."""
    path = tmp_path / "in.csv"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, start)
    asked = count()

    def stop() -> bool:
        if next(asked) > 100:
            return True
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            os.write(writer, block)
        return False

    source = InputFile(str(path), stop)
    loop = PredictionLoop(
        FakeStream(Gaussian(), 1),  # type: ignore[arg-type]
        [RowAdapter(PointColumns(1, 1), 1)],
        source,
        OutputFile(str(tmp_path / "out.csv")),
        tmp_path / "s.npz",
        LoopOptions(),
    )
    loop.run(stop)
    os.close(writer)
    source.close()
    assert (tmp_path / "s.npz").exists() == (bool(start) or b"," in block)
