from __future__ import annotations

import numpy as np
import pytest

from edgefold.runtime.series.series_file import Series, SeriesReport
from edgefold.runtime.series.spec import SeriesSpec
from edgefold.train.progress import FIRST_STEPS, INTERVAL_S, PARTS, ProgressLines
from edgefold.train.tasks.series_notes import series_notes


def steps_told(n_steps: int, step_s: float, done: int = 0) -> tuple[list[int], list[str]]:
    """The steps at which a line came, and the lines, of a training of even steps."""
    now: list[float] = [0.0]
    at: list[int] = []
    lines: list[str] = []
    progress = ProgressLines(lines.append, n_steps, done, clock=lambda: now[0])
    for step in range(done + 1, n_steps + 1):
        now[0] += step_s
        before = len(lines)
        progress.step(1.0)
        at += [step] * (len(lines) - before)
    return at, lines


def test_a_quick_training_tells_its_first_estimate_alone() -> None:
    assert steps_told(100, 0.01)[0] == [FIRST_STEPS]
    assert steps_told(5, 1.0)[0] == []


def test_a_long_training_tells_a_line_a_minute_and_at_most_a_line_each_twentieth() -> None:
    at, _ = steps_told(5000, 0.09)  # 7.5 minutes
    assert 7 <= len(at) <= 9 and min(np.diff(at)) >= INTERVAL_S / 0.09 - 1
    at, _ = steps_told(5000, 10.0)  # 14 hours
    assert min(np.diff(at)) >= 5000 / PARTS and len(at) == PARTS


def test_the_estimate_leaves_the_first_step_out() -> None:
    now: list[float] = [0.0]
    lines: list[str] = []
    progress = ProgressLines(lines.append, 100, clock=lambda: now[0])
    for step in range(20):
        now[0] += 50.0 if step == 0 else 1.5
        progress.step(2.0)
    assert len(lines) == 1 and "2 minutes" in lines[0] and "2.000" in lines[0]


def test_a_resumed_training_counts_on() -> None:
    at, lines = steps_told(1000, 1.0, done=400)
    assert at[0] == 400 + FIRST_STEPS and "42%" in lines[0]


@pytest.mark.parametrize(
    ("spec", "asked", "words"),
    [
        (SeriesSpec("date", 3600.0, 86400.0), False, ("1 hour", "1 day (24 rows)", "chosen")),
        (SeriesSpec("date", 3600.0, 86400.0), True, ("1 hour", "1 day (24 rows)", "as asked")),
        (SeriesSpec("number", 0.5, level=True), False, ("steps of 0.5", "none", "level")),
        (SeriesSpec("number", 1.0), False, ("--time-format unix reads",)),
        (SeriesSpec("number", 1e9), False, ("--time-format unix-ms reads",)),
        (SeriesSpec("date", 60.0), True, ("1 minute", "none, as asked")),
        (SeriesSpec("date", 7 * 3600.0), False, ("7 hours", "season: none")),
    ],
)
def test_the_notes_name_rows_season_and_filled_gaps(
    spec: SeriesSpec, asked: bool, words: tuple[str, ...]
) -> None:
    times = 1.7e9 + spec.step * np.arange(1000)
    series = Series(
        times, np.zeros(1000), spec.clock, ("time", "value"), SeriesReport(n_gaps=1, n_missing=7)
    )
    text = "\n".join(series_notes("a.csv", series, spec, 800, 5, asked))
    assert all(word in text for word in ("1,000 rows", "7 rows", "5 rows", "first 800", "last 200"))
    assert all(word in text for word in words)
    assert f"{spec.n_inputs} features" in text


def test_moments_before_1970_and_after_9999_are_written() -> None:
    spec = SeriesSpec("date", 86400.0)
    series = Series(np.array([-1e10, 0.0, 1e12]), np.zeros(3), "date", ("t", "v"), SeriesReport())
    notes = series_notes("a.csv", series, spec, 2, 0, True)
    assert "from 1653-02-" in notes[0] and not any("mended" in note for note in notes)
