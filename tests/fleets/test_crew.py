"""Units of work run on processes that may die, and each counts once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgefold.fleets.work.crew import Crew
from edgefold.fleets.work.unit import Agenda, JobSource, WorkNews, WorkUnit, folds
from edgefold.fleets.work.work_folder import LOCK, PLAN, remove_work, work_folder
from edgefold.fleets.work.worker import portable
from edgefold.runtime.errors import DataError, OutputError, WorkError
from edgefold.runtime.files import lock_file
from tests.fleets.slow_job import Square

SOURCE = JobSource("tests.fleets.slow_job", "open_square_job", "setup")


def units_of(squares: Sequence[Square]) -> list[WorkUnit]:
    """A unit for each square, and one that sums them."""
    units = [WorkUnit(f"s{i}", square, f"square {i}", n_rows=1) for i, square in enumerate(squares)]
    names = tuple(unit.name for unit in units)
    return [*units, WorkUnit("sum", Square(0, names), "the sum", names)]


def runs_in(folder: Path) -> list[str]:
    return (folder / "runs").read_text().split()[::2]


@pytest.mark.parametrize("n_processes", [1, 3])
def test_units_run_after_those_that_they_read(n_processes: int, tmp_path: Path) -> None:
    agenda = Agenda(units_of([Square(i) for i in range(6)]), tmp_path)
    news: list[WorkNews] = []
    Crew(SOURCE, n_processes).run(agenda, news.append)
    assert (tmp_path / "sum").read_text() == str(sum(i**2 for i in range(6)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "sum"]  # the rest is freed
    assert news[-1] == WorkNews(6, 0, 6, 0, 0)
    assert set((tmp_path / "runs").read_text().split()[1::2]) == {"1"}  # threads of libraries


def test_the_unit_of_a_killed_process_runs_again_and_counts_once(tmp_path: Path) -> None:
    agenda = Agenda(units_of([Square(1), Square(2, n_deaths=3), Square(3)]), tmp_path)
    crew = Crew(SOURCE, 2)
    crew.run(agenda, lambda news: None)
    assert (tmp_path / "sum").read_text() == "14"
    assert crew.n_deaths == 3 and runs_in(tmp_path).count("s1") == 4


def test_a_unit_of_which_many_processes_die_is_given_up_by_its_name(tmp_path: Path) -> None:
    agenda = Agenda(units_of([Square(1), Square(2, n_deaths=9)]), tmp_path)
    crew = Crew(SOURCE, 2, most_deaths=2)
    with pytest.raises(WorkError, match=r"square 1: 2 processes died .*SIGKILL.*Memory"):
        crew.run(agenda, lambda news: None)
    assert runs_in(tmp_path).count("s1") == 2 and not crew.process_ids


def test_an_error_ends_the_work_and_what_is_done_stays(tmp_path: Path) -> None:
    units = units_of([Square(1), Square(2, fails=True)])
    with pytest.raises(DataError, match="it fails"):
        Crew(SOURCE, 1).run(Agenda(units, tmp_path), lambda news: None)
    assert (tmp_path / "s0").exists() and not (tmp_path / "s1").exists()
    units = units_of([Square(1), Square(2)])
    agenda = Agenda(units, tmp_path)
    assert (agenda.n_rows_before, agenda.n_left) == (1, 2)
    Crew(SOURCE, 1).run(agenda, lambda news: None)
    assert runs_in(tmp_path) == ["s0", "s1", "s1", "sum"]
    assert Agenda(units, tmp_path).is_done  # the results that were freed are not computed again


def test_an_error_that_cannot_be_pickled_keeps_its_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="OddError: odd"):
        Crew(SOURCE, 1).run(Agenda(units_of([Square(1, is_odd=True)]), tmp_path), lambda news: None)
    assert isinstance(portable(DataError("a")), DataError)


def test_a_job_that_does_not_open_ends_the_work(tmp_path: Path) -> None:
    source = JobSource("tests.fleets.slow_job", "open_square_job", "another")
    with pytest.raises(AssertionError):
        Crew(source, 1).run(Agenda(units_of([Square(1)]), tmp_path), lambda news: None)


def test_folds_keep_the_order_and_pass_single_results_on() -> None:
    levels = folds([f"r{i}" for i in range(9)], 4)
    assert levels == [
        [("fold-1-000000", ("r0", "r1", "r2", "r3")), ("fold-1-000001", ("r4", "r5", "r6", "r7"))],
        [("fold-2-000000", ("fold-1-000000", "fold-1-000001", "r8"))],
    ]
    assert folds(["r0"], 4) == []


def test_a_folder_of_work_belongs_to_one_plan_and_one_process(tmp_path: Path) -> None:
    place, plan = tmp_path / "work", {"files": "1", "x": "a"}
    with work_folder(place, plan) as folder:
        (folder / "result").touch()
        (folder / "left.tmp").touch()
        with pytest.raises(OutputError, match="another process"), work_folder(place, plan):
            pass
    with work_folder(place, plan) as folder:
        assert (folder / "result").exists() and not (folder / "left.tmp").exists()
    with pytest.raises(OutputError, match="differs in x"), work_folder(place, {**plan, "x": "b"}):
        pass
    with work_folder(place, {**plan, "x": "b"}, restart=True) as folder:
        assert not (folder / "result").exists()
    remove_work(place)
    assert not place.exists()


def test_files_that_are_not_of_the_work_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with (
        pytest.raises(OutputError, match="not of this command"),
        work_folder(tmp_path, {}, restart=True),
    ):
        pass
    assert (tmp_path / "thesis.tex").exists() and not (tmp_path / PLAN).exists()


def test_files_of_a_start_at_the_same_moment_are_not_foreign(tmp_path: Path) -> None:
    (tmp_path / "plan.json.tmp").touch()
    with lock_file(tmp_path / LOCK) as held:
        assert held
        with pytest.raises(OutputError, match="another process"), work_folder(tmp_path, {"x": "a"}):
            pass
