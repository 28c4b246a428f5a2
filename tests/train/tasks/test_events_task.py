"""Events from files: what is read, how it is split, what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefold.cli.options.flags import add_flags, options_of
from edgefold.runtime.errors import DataError
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.events.event_files import JODIE_HEADER
from edgefold.train.tasks.events.events import EventsOptions, EventsTask
from tests.published import missing_columns

ROOT = Path(__file__).parents[3]


def options(*words: str) -> EventsOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser, EventsOptions)
    parsed: EventsOptions = options_of(EventsOptions, parser.parse_args(words))
    return parsed


def task_of(path: Path, *words: str) -> EventsTask:
    return EventsTask.from_options(options("--csv", str(path), *words))


def many(path: Path, n_users: int = 20, n_events: int = 6) -> Path:
    """Users by turns, a minute apart; the k-th event of a user has the mark k % 3."""
    rows = [
        f"2024-01-01T{k:02d}:{user:02d}:00,{['red', 'green', 'blue'][k % 3]},user {user}"
        for k in range(n_events)
        for user in range(n_users)
    ]
    path.write_text("\n".join(["when,colour,who", *rows]) + "\n")
    return path


WORDS = ("--time", "when", "--mark", "colour", "--sequence", "who")


def test_words_become_marks_and_sequences_are_held_out_whole(tmp_path: Path) -> None:
    task = task_of(many(tmp_path / "e.csv"), *WORDS)
    assert task.marks == ("blue", "green", "red") and task.time_scale == 3600
    assert len(task.train) == 16 and len(task.test) == 4
    expected = torch.tensor([[1.0, 1], [1, 0], [1, 2], [1, 1], [1, 0]])
    assert all(torch.equal(events, expected) for events in task.train)
    described = task.describe()
    assert described["rows"] == "events" and described["clock"] == "date"
    assert described["x_scale"] == [3600, 1] and described["y_scale"] == [3600]
    assert described["columns"] == ["when", "colour"]


def test_a_single_sequence_is_split_in_time_and_its_history_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("time,mark\n" + "".join(f"{t * t},{t % 2}\n" for t in range(101)))
    task = task_of(path, "--window", "16")
    assert len(task.train) == 1 and len(task.train[0]) == 80
    (part,) = task.held_out(10, 0)
    assert int(part.scored.sum()) == 20 and part.scored.shape[0] == 2
    gaps = [part.events[row][part.scored[row]][:, 0] * task.time_scale for row in range(2)]
    found = torch.cat(sorted(gaps, key=lambda rows: rows[0].item()))
    torch.testing.assert_close(found, torch.tensor([2.0 * t + 1 for t in range(80, 100)]))
    batch = task.training_batch(4, torch.Generator().manual_seed(0))
    assert batch.x_context.shape == (4, 16, 2) and batch.mask is not None and batch.mask.all()
    assert (batch.x_context[..., 0] * task.time_scale).max() < 161


def test_batches_of_ragged_sequences_have_a_mask(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    rows = [f"{t},a,{user}" for user in range(10) for t in range(3 + user)]
    path.write_text("\n".join(["time,mark,user", *rows]) + "\n")
    task = task_of(path, "--sequence", "user")
    batch = task.training_batch(16, torch.Generator().manual_seed(0))
    assert batch.mask is not None
    assert (batch.x_context[..., 0][batch.mask] > 0).all()
    assert (batch.x_context[~batch.mask] == 0).all() and not batch.mask.all()


def jodie(path: Path, n_users: int = 10) -> Path:
    rows = [
        f"{user},{(user + k) % 4},{100.0 * k + user},0,0.5,-0.25,1e-3,2"
        for k in range(5)
        for user in range(n_users)
    ]
    path.write_text("\n".join([JODIE_HEADER, *rows]) + "\n")
    return path


def test_jodie_s_files_are_split_as_in_the_literature(tmp_path: Path) -> None:
    task = task_of(jodie(tmp_path / "mooc.csv"))
    assert (len(task.train), len(task.test)) == (6, 2)
    assert task.marks == ("0", "1", "2", "3") and task.time_scale == 100
    assert any("411,749 rows" in note for note in task.notes)
    scores, _ = task.evaluate(create_model("poisson"), 2, 0, ("mine", "no steps"))
    assert not missing_columns("mooc", scores) and not missing_columns("reddit", scores)


def test_a_line_of_another_form_is_told_by_its_number(tmp_path: Path) -> None:
    path = jodie(tmp_path / "mooc.csv")
    path.write_text(path.read_text() + "7,what,nan\n")
    with pytest.raises(DataError, match="line 52"):
        task_of(path)
    assert len(task_of(path, "--bad-rows", "skip").train) == 6
    own = many(tmp_path / "own.csv")
    own.write_text(own.read_text() + "yesterday,red,user 1\n")
    with pytest.raises(DataError, match="--sequence the one that names the sequence"):
        task_of(own, *WORDS[:4], "--sequence", "user")
    with pytest.raises(DataError, match=r"line 122.*--bad-rows skip"):
        task_of(own, *WORDS)


def test_events_out_of_order_are_sorted_and_told(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    times = np.random.default_rng(0).permutation(50)
    path.write_text("time,mark\n" + "".join(f"{t},a\n" for t in times))
    task = task_of(path)
    assert torch.equal(task.train[0][:, 0], torch.ones(39))
    assert any("out of order" in note for note in task.notes)


def test_a_run_comes_back_from_its_description_and_only_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = many(tmp_path / "e.csv")
    task = task_of(path, *WORDS, "--window", "32")
    monkeypatch.chdir(tmp_path)
    again = EventsTask.from_options(options(), task.describe())
    assert again.describe() == task.describe() and again.window == 32
    other = many(tmp_path / "f.csv", n_events=9)
    other.write_text(other.read_text().replace("blue", "black"))
    with pytest.raises(DataError, match="marks"):
        EventsTask.from_options(options("--csv", str(other)), task.describe())
    for changed in (("--window", "64"), ("--bad-rows", "skip")):
        with pytest.raises(DataError, match="differ"):
            EventsTask.from_options(options(*changed), task.describe())
    path.unlink()
    with pytest.raises(DataError, match="--csv"):
        EventsTask.from_options(options(), task.describe())


def test_without_a_file_it_is_said_what_to_fetch_and_where_it_goes() -> None:
    with pytest.raises(DataError, match=r"mooc\.csv and reddit\.csv are at http.*data/"):
        EventsTask.from_options(options())
    with pytest.raises(DataError, match=r"Download http.*mooc\.csv .*7,047 users"):
        task_of(Path("nowhere/mooc.csv"))
    with pytest.raises(DataError, match="no pipe"):
        task_of(Path("-"))
    with pytest.raises(DataError, match="cannot open"):
        task_of(Path("nowhere/mine.csv"))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("time,mark\n1,a\n2,b\n", "no sequence of 3"),
        ("time,mark\n1,a\n1,b\n1,a\n", "same moment"),
        ("time,mark\n", "no events"),
        ("when,what\n1,a\n", "no column|no sequence"),
    ],
)
def test_files_of_which_nothing_can_be_learned_are_refused(
    tmp_path: Path, text: str, match: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=match):
        task_of(path)


def test_the_aftershocks_that_come_along_are_read() -> None:
    task = task_of(ROOT / "data/aftershocks.csv")
    assert task.marks == ("2.5 to 3", "3 to 4", "from 4")
    scores, text = task.evaluate(create_model("hawkes"), 10, 0, ("mine", "no steps"))
    poisson = scores["a Poisson process"]
    assert poisson["log_likelihood"] == pytest.approx(-3.29, abs=5e-3)  # as data/README.md says
    assert poisson["standard_error"] is None and "±" not in text
    assert (len(task.train[0]), sum(len(e) - n for e, n in task.test)) == (662, 166)
