"""An output in parts: when they end, how they are called, and a kill between any two steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgefold.runtime.errors import OutputError
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sinks.rotation import Rotation, finished_parts

HEADER = "line,value\n"
ROWS = [f"{n},{'x' * (n % 7)}\n" for n in range(20)]
DAYS = [19_813 + n // 6 for n in range(20)]  # from 2024-03-31
RULES = {"size": Rotation(60), "day": Rotation()}


class KilledError(Exception):
    """Stands for SIGKILL."""


class Run:
    """A loop that writes ROWS, one after the other, and keeps a mark after every third."""

    def __init__(self, path: Path, rule: str):
        self.path, self.rule = path, RULES[rule]
        self.kept: tuple[int, dict[str, Any]] | None = None

    def go(self) -> None:
        self.output = output = OutputFile(str(self.path), rotation=self.rule)
        if self.kept is None:
            self.kept, start = (0, output.first_mark), 0
            output.begin(HEADER)
        else:
            start, mark = self.kept
            output.resume(mark, HEADER, False)
        for n in range(start, len(ROWS)):
            if output.is_full(ROWS[n], DAYS[n]):
                output.turn(ROWS[n], DAYS[n], partial(self.keep, n + 1))
            else:
                output.write(ROWS[n], DAYS[n])
            if n % 3 == 2:
                self.keep(n + 1, output.sync())
        self.keep(len(ROWS), output.sync())
        output.close()

    def keep(self, n: int, mark: dict[str, Any]) -> None:
        self.kept = n, mark


def parts(path: Path) -> dict[str, str]:
    return {part.name: part.read_text() for part in sorted(path.parent.iterdir())}


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "whole").mkdir()

    def of(rule: str) -> dict[str, str]:
        Run(tmp_path / "whole" / "p.csv", rule).go()
        return parts(tmp_path / "whole" / "p.csv")

    yield of


def test_no_part_is_longer_than_its_size(whole: Any) -> None:
    found = whole("size")
    assert list(found) == [*(f"p.{n:04d}.csv" for n in range(1, len(found))), "p.csv"]
    assert all(len(text) <= 60 and text.startswith(HEADER) for text in found.values())
    assert "".join(text.removeprefix(HEADER) for text in found.values()) == "".join(ROWS)


def test_a_part_holds_a_day(whole: Any) -> None:
    found = whole("day")
    assert list(found) == ["p.2024-03-31.csv", "p.2024-04-01.csv", "p.2024-04-02.csv", "p.csv"]
    assert [text.count("\n") - 1 for text in found.values()] == [6, 6, 6, 2]


def days_of_files(path: Path, days: list[int], restart: bool) -> list[int]:
    """Write a row for each day; return the day of the first row of each file."""
    output = OutputFile(str(path), rotation=RULES["day"])
    output.begin(HEADER)
    first = days[:1]
    for day in days:
        if output.is_full("row\n", day):
            output.turn("row\n", day, lambda mark: None)
            first.append(day)
        else:
            output.write("row\n", day)
        if restart:
            mark = output.sync()
            output.close()
            output = OutputFile(str(path), rotation=RULES["day"])
            output.resume(mark, HEADER, False)
    output.close()
    return first


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("days", "first"),
    [
        ([5, 5, 42, 5, 5, 6, 6, 7], [5, 42, 5, 6, 7]),
        ([5, 6, 5, 6, 5, 6, 7, 6], [5, 6, 7]),  # a sensor is a little late
        ([42, 0, 42, 0, 42, 0, 43, 0, 43, 0], [42, 0, 42, 43, 0, 43]),  # a clock that was reset
    ],
)
def test_days_go_on_after_a_row_that_is_ahead(
    tmp_path: Path, days: list[int], first: list[int], restart: bool
) -> None:
    assert days_of_files(tmp_path / "p.csv", days, restart) == first


@pytest.mark.parametrize("rule", RULES)
def test_a_kill_between_any_two_steps_changes_no_byte(
    tmp_path: Path, rule: str, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, calls = whole(rule), ("open", "write", "fsync", "rename", "ftruncate")
    real = {name: getattr(os, name) for name in calls}
    left = 0

    def counted(name: str) -> Any:
        def call(*words: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError
            return real[name](*words, **named)

        return call

    for name in calls:
        monkeypatch.setattr(os, name, counted(name))
    # On Python 3.10 Path.rename holds an os.rename of its own.
    monkeypatch.setattr(Path, "rename", lambda path, target: os.rename(path, target))
    n_killed = 0
    for moment in range(400):
        folder = tmp_path / str(moment)
        folder.mkdir()
        run = Run(folder / "p.csv", rule)
        left = moment
        try:
            run.go()
            break
        except KilledError:
            n_killed += 1
        left = 10**6
        if run.output._fd >= 0:  # as the end of a process does; what is buffered is lost
            os.close(run.output._fd)
        if run.kept is not None:
            run.go()
        assert parts(folder / "p.csv") == expected, moment
    assert n_killed > 20


@pytest.mark.parametrize("rule", RULES)
def test_finished_parts_are_the_users(tmp_path: Path, rule: str, whole: Any) -> None:
    """A part that is moved away is not missed, and a new one does not overwrite its namesake."""
    expected = whole(rule)
    run = Run(tmp_path / "p.csv", rule)
    marks = []
    run.keep = lambda n, mark: marks.append((n, mark))  # type: ignore[method-assign]
    run.go()
    for part in finished_parts(tmp_path / "p.csv"):
        part.unlink()
    last = (tmp_path / "p.csv").read_text()
    output = OutputFile(str(tmp_path / "p.csv"), rotation=RULES[rule])
    output.resume(marks[-1][1], HEADER, False)
    output.turn("next\n", DAYS[-1] + 1, lambda mark: None)
    output.close()
    names = sorted(path.name for path in tmp_path.glob("p*"))
    assert len(names) == 2 and expected["p.csv"] == last
    assert (tmp_path / names[0]).read_text() == last
    assert (tmp_path / "p.csv").read_text() == f"{HEADER}next\n"
    (tmp_path / "p.csv").write_text("")
    assert finished_parts(tmp_path / "p.csv") == [tmp_path / names[0]]


def test_a_name_that_exists_is_not_taken(tmp_path: Path) -> None:
    output = OutputFile(str(tmp_path / "p.csv"), rotation=RULES["size"])
    output.begin(HEADER)
    (tmp_path / "p.0001.csv").write_text("mine")
    output.write("a\n")
    output.turn("b\n", None, lambda mark: None)
    output.close()
    assert (tmp_path / "p.0001.csv").read_text() == "mine"
    assert (tmp_path / "p.0001.2.csv").read_text() == f"{HEADER}a\n"
    (tmp_path / "p.csv").unlink()
    with pytest.raises(OutputError):
        OutputFile(str(tmp_path / "p.csv"), rotation=RULES["size"]).begin(HEADER)


def test_a_link_stays_and_parts_lie_beside_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "p.csv").symlink_to(tmp_path / "disk" / "here.csv")
    Run(tmp_path / "p.csv", "day").go()
    assert (tmp_path / "p.csv").is_symlink()
    assert len(list((tmp_path / "disk").iterdir())) == 4


def test_what_is_no_file_has_no_parts(tmp_path: Path) -> None:
    for name in (None, "-", "/dev/null"):
        with pytest.raises(OutputError):
            OutputFile(name, rotation=RULES["size"]).begin(HEADER)


@pytest.mark.parametrize("content", ["mine", "line,other\n"])
def test_a_file_that_came_between_is_not_cut_to_nothing(tmp_path: Path, content: str) -> None:
    output = OutputFile(str(tmp_path / "p.csv"))
    mark = output.first_mark
    (tmp_path / "p.csv").write_text(content)
    with pytest.raises(OutputError):
        output.resume(mark, HEADER, True)
    assert (tmp_path / "p.csv").read_text() == content


def test_a_whole_part_that_grew_before_its_renaming_is_not_cut_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    output = OutputFile(str(path), rotation=RULES["size"])
    output.begin(HEADER)
    output.write("1,a\n")
    marks: list[dict[str, Any]] = []

    def keep(mark: dict[str, Any]) -> None:
        marks.append(mark)
        raise KilledError

    with pytest.raises(KilledError):
        output.turn("2,b\n", None, keep)
    output.close()
    with path.open("a") as file:
        file.write("mine\n")
    with pytest.raises(OutputError):
        OutputFile(str(path), rotation=RULES["size"]).resume(marks[0], HEADER, False)
    assert path.read_text() == f"{HEADER}1,a\nmine\n"
    path.rename(tmp_path / "away.csv")
    again = OutputFile(str(path), rotation=RULES["size"])
    again.resume(marks[0], HEADER, False)
    again.close()
    assert path.read_text() == f"{HEADER}2,b\n"


def test_another_name_than_the_snapshots_is_told_from_a_lost_file(tmp_path: Path) -> None:
    first = OutputFile(str(tmp_path / "p.csv"))
    first.begin(HEADER)
    mark = first.sync()
    first.close()
    with pytest.raises(OutputError) as other:
        OutputFile(str(tmp_path / "q.csv")).resume(mark, HEADER, False)
    assert str(tmp_path / "p.csv") in str(other.value)
    (tmp_path / "p.csv").unlink()
    with pytest.raises(OutputError) as gone:
        OutputFile(str(tmp_path / "p.csv")).resume(mark, HEADER, False)
    assert str(other.value) != str(gone.value)
