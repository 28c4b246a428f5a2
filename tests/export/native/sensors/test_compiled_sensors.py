"""`Sensors` with rules in compiled C and with Python's: each call answers the same to the bit."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors, Stream
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import EdgefoldError, StepRefusedError
from edgefold.runtime.sensors import compiled_sensors, named_sensors
from edgefold.runtime.sensors import sensors as sensors_module
from edgefold.runtime.sensors.forecasts import Forecast
from edgefold.runtime.sensors.scored_rows import SCORES
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.stream.snapshot import read_snapshot, write_snapshot
from tests.export.native.sensors.c_sensors import Row
from tests.export.native.sensors.streams_of_rows import MINUTE, SINCE, STREAMS
from tests.runtime.sensors.test_calls_as_a_whole import CALLS, begin, give, state_of
from tests.runtime.stream import interruptions
from tests.runtime.stream.interruptions import Lines

START, HOUR = datetime(2024, 1, 1), timedelta(hours=1)
Both = tuple[Sensors, Sensors]


def rough(seed: int) -> list[Row]:
    """Rows with all faults at once: jitter, gaps, clocks that are set, no values, refused rows."""
    random = np.random.default_rng(seed)
    rows, time = list[Row](), SINCE
    for at in range(700):
        chance = random.uniform()
        time += 5 * MINUTE * (1.0 + random.normal() * 0.02)
        if chance < 0.03:
            time += 5 * MINUTE * float(random.integers(1, 400))
        elif chance < 0.035:
            time -= 86_400.0
        value = 20.0 + 5.0 * math.sin(at / 46.0) + float(random.normal())
        if chance > 0.9:
            value = float(random.choice([math.nan, math.inf, -1e31, 1e30, 1e9, 0.0]))
        rows.append(Row(time if chance < 0.995 else math.nan, value, True))
        if chance < 0.1:
            rows.append(rows[-1])
    return rows


ROWS = {**STREAMS, "rough": rough(1), "rougher": rough(2)}


@pytest.fixture
def both(built: tuple[Path, EngineOptions]) -> Iterator[Both]:
    """Sensors with rules in C, and with Python's, on one compiled model."""
    with (
        Sensors.open(None, "native", engine=built[1]) as in_c,
        Sensors.open(None, "native", engine=built[1], compiled=False) as in_python,
    ):
        assert in_c.backend_report["rules"] == "C"
        assert in_python.backend_report["rules"] == "Python"
        yield in_c, in_python


def told(call: Callable[[], Any]) -> Any:
    """Return the answer of a call, its numbers as text so that NaN equals NaN; or its error."""
    try:
        answer = call()
    except EdgefoldError as error:
        return type(error), str(error)
    if isinstance(answer, Forecast):
        return repr(astuple(answer)), repr(answer), _bytes(answer._ahead)
    return _bytes(astuple(answer)) if hasattr(answer, "quantiles") else repr(answer)


def _bytes(arrays: Any) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays or ()]


def fed(sensors: Sensors, name: str = "") -> str:
    feed = sensors.feed(name)
    season = feed.season, feed.season_name
    return repr((feed.notes, *season, feed.pace, feed.newest_time, feed.is_irregular))


def require_equal(both: Both, call: Callable[[Sensors], Any]) -> Any:
    """Fail unless both answer a call alike; returns the answer."""
    found, expected = (told(lambda sensors=each: call(sensors)) for each in both)  # type: ignore[misc]
    assert found == expected
    return found


@pytest.mark.one_case
@pytest.mark.parametrize("stream", ROWS)
def test_each_row_brings_the_same_forecasts_notes_and_refusals(stream: str, both: Both) -> None:
    for at, (time, value, dated) in enumerate(ROWS[stream]):
        require_equal(both, lambda s: s.step(time, value, dated=dated))  # noqa: B023
        if both[1].names:
            assert fed(both[0]) == fed(both[1])
        if at % 50 == 0:
            require_equal(both, lambda s: s.path(100))
            require_equal(both, lambda s: s.ahead("season"))
    assert both[0].names == both[1].names == ("",)


def test_rows_of_several_sensors_and_kinds_of_times_are_taken_alike(both: Both) -> None:
    rows: list[tuple[Any, ...]] = [
        *((START + at * HOUR, float(at), "dates") for at in range(20)),
        *((None, at % 7, "rows") for at in range(20)),
        *((f"{at}.5", None, "numbers") for at in range(20)),
        (5.0, 1.0, "dates"),
        (None, 1.0, "dates"),
        (START, 1.0, "rows"),
        ("yesterday", 1.0, "numbers"),
        ("yesterday", 1.0, "new"),
        (1e301, 1.0, "new"),
        (1.0, 1e31, "new"),
        (1.0, "x", "new"),
        (1.0, 2.0, b"new"),
        (START + 90 * HOUR, math.nan, "dates"),
        (START + 30 * HOUR, 3.0, "dates"),
    ]
    for row in rows:
        require_equal(both, lambda s: s.step(*row))  # noqa: B023
    for sensors in both:
        assert sensors.names == ("dates", "rows", "numbers")
    names: list[Any] = ["dates", "rows", "new", 5]
    for name in names:
        require_equal(both, lambda s: s.path(9, name))  # noqa: B023
        require_equal(both, lambda s: s.ahead(4, name))  # noqa: B023
        require_equal(both, lambda s: s.predict_one(3, name))  # noqa: B023
        require_equal(both, lambda s: s.feed(name).notes)  # noqa: B023


def test_one_name_too_many_is_refused_alike(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("compiled_sensors", "named_sensors"):
        monkeypatch.setattr(f"edgefold.runtime.sensors.{module}.MOST_SENSORS", 2)
    in_python = Sensors(both[1]._stream, compiled=False)
    pair = both[0], in_python
    for name in ("a", "b"):
        require_equal(pair, lambda s: s.step(1.0, 2.0, name))  # noqa: B023
    assert require_equal(pair, lambda s: s.step(1.0, 2.0, "c"))[0] is DataError
    require_equal(pair, lambda s: s.step(math.inf, 2.0, "c"))
    require_equal(pair, lambda s: s.step(2.0, 2.0, "b"))
    assert both[0].names == in_python.names == ("a", "b")


def test_tables_and_their_scores_are_the_same(both: Both) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [row for row in ROWS["gaps"] if math.isfinite(row.time)][:1000]
    index = pandas.to_datetime([row.time for row in rows], unit="s")
    frame = pandas.DataFrame({"a": [row.value for row in rows], "b": range(1000)}, index=index)
    pandas.testing.assert_frame_equal(*(each.run(frame) for each in both), check_exact=True)
    later = frame.set_axis(index + pandas.Timedelta(days=60))
    with pytest.warns(UserWarning, match="2 of 2,000 rows"):  # the leap to them
        pandas.testing.assert_frame_equal(
            *(each.backtest(later, skip=3) for each in both), check_exact=True
        )


def columns_of(sensors: Sensors, times: Any, values: Any, dated: bool | None) -> Any:
    """Return the rows of sensor "a" by one call, as bytes."""
    rows = sensors.step_rows(times, values, "a", dated, with_ahead=True)
    refused = {at: str(error) for at, error in rows.refused.items()}
    forecasts = np.column_stack([rows.values, rows.forecasts])
    scores = [rows.column(name) for name in SCORES if name != "event"]
    scores = [np.where(np.isnan(each), 0.0, each) for each in scores]
    assert rows.ahead is not None
    return refused, list(rows.events), _bytes([forecasts, *scores, *rows.ahead])


def steps_of(sensors: Sensors, times: Any, values: Any, dated: bool | None) -> Any:
    """Return the same by a call of `step` for each row."""
    listed = [None] * len(values) if times is None else [*times]
    refused, events, lines = dict[int, str](), list[str](), list[list[float]]()
    steps: list[Any] = [*sensors.horizons, "season"]
    shape = len(values), len(steps)
    n_points, known = np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    means, quantiles = np.full(shape, math.nan), np.full((*shape, 7), math.nan)
    paces = np.full(len(values), math.nan)
    for at, (time, value) in enumerate(zip(listed, values, strict=True)):
        try:
            row = sensors.step(time, value, "a", dated)
        except DataError as error:
            refused[at] = str(error)
            events.append("")
            lines.append([value, *[math.nan] * 8, *[0.0] * 8])
            continue
        events.append(row.event)
        scores = row.log_density, row.p_value, row.size, row.since, row.n_missing, row.season
        band = [row.mean, *row.quantiles.values()]
        lines.append([value, *band, *scores, row.alarm, row.is_known])
        n_points[at], paces[at] = sensors._all.n_points("a"), sensors.feed("a").pace
        for place, step in enumerate(steps):
            later = sensors.ahead(step, "a")
            means[at, place] = later.mean
            quantiles[at, place] = list(later.quantiles.values())
            known[at] |= later.is_known
    table = np.array(lines, dtype=float)
    rows = [table[:, :9], *table[:, 9:].T]
    return refused, events, _bytes([*rows, n_points, paces, known, means, quantiles])


@pytest.mark.parametrize("stream", ["faults", "clocks", "gaps", "rough"])
@pytest.mark.parametrize("form", ["dates", "numbers", "rows", "texts"])
def test_many_rows_in_one_call_are_as_rows_one_by_one(
    stream: str, form: str, built: tuple[Path, EngineOptions], tmp_path: Path
) -> None:
    """In C, with Python's rules, and with a library from before C took many rows at once."""
    rows = ROWS[stream][:600]
    values = np.array([row.value for row in rows])
    times: Any = None if form == "rows" else np.array([row.time for row in rows])
    if form == "texts":
        times = [f"{time:.3f}" for time in times]
    dated = None if form == "rows" else form != "numbers"
    found = []
    for number, kind in enumerate(("steps", "C", "Python", "older C")):
        compiled = kind != "Python"
        with Sensors.open(None, "native", engine=built[1], compiled=compiled) as sensors:
            if kind == "older C":
                sensors._all._functions.push_rows = None  # type: ignore[union-attr]
            answer = (steps_of if kind == "steps" else columns_of)(sensors, times, values, dated)
            path = tmp_path / f"{number}.npz"
            sensors.save(path)
            found.append((answer, path.read_bytes(), fed(sensors, "a")))
    assert found[1] == found[0] == found[2] == found[3]


def test_rows_of_another_kind_of_times_are_refused_one_by_one(both: Both) -> None:
    for sensors in both:
        sensors.step(None, 1.0, "rows")
        sensors.step(5.0, 1.0, "numbers")
        rows = sensors.step_rows([1.0, 2.0], [1.0, 2.0], "rows")
        assert sorted(rows.refused) == [0, 1] and np.isnan(rows.numbers).all()
        rows = sensors.step_rows(None, [1.0, 2.0], "numbers")
        assert "no time" in str(rows.refused[1])
        for times, values in (([1.0], [1.0, 2.0]), (None, []), (None, [[1.0]])):
            with pytest.raises(DataError, match="step_rows"):
                sensors.step_rows(times, values)
        assert sensors.names == ("rows", "numbers")


def test_a_step_that_fails_among_many_keeps_the_rows_before_it(both: Both, tmp_path: Path) -> None:
    for sensors in both:
        for at in range(60):
            sensors.step(float(at), math.sin(at), "a")
        path = tmp_path / "absurd.npz"
        sensors.save(path)
        damage(sensors, path)
        sensors.restore(path)
        with pytest.raises(StepRefusedError):
            sensors.step_rows(np.array([60.0, 10.0, 61.0]), np.ones(3), "a")
    assert state_of(both[0]) == state_of(both[1])


# Snapshots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["faults", "clocks", "a found season", "rough"])
def test_snapshots_are_the_same_files_and_go_on_in_both(
    stream: str, both: Both, tmp_path: Path
) -> None:
    paths = tmp_path / "c.npz", tmp_path / "python.npz"
    for at, (time, value, dated) in enumerate(ROWS[stream]):
        name = "a" if at % 3 else "b"
        require_equal(both, lambda s: s.step(time, value, name, dated))  # noqa: B023
        if at % 97 == 0:
            for sensors, path in zip(both, paths, strict=True):
                sensors.save(path)
            assert paths[0].read_bytes() == paths[1].read_bytes()
            for sensors, path in zip(both, reversed(paths), strict=True):
                sensors.restore(path)
            assert both[0].names == both[1].names
            for known in both[0].names:
                assert fed(both[0], known) == fed(both[1], known)
                require_equal(both, lambda s: s.ahead(2, known))  # noqa: B023


def test_a_damaged_snapshot_changes_nothing(both: Both, tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    for at in range(60):
        require_equal(both, lambda s: s.step(START + at * HOUR, at % 5))  # noqa: B023
    both[0].save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x41
    path.write_bytes(content)
    before = state_of(both[0])
    require_equal(both, lambda s: s.restore(path))
    assert state_of(both[0]) == before


# A call as a whole -------------------------------------------------------------------------------


def damage(sensors: Sensors, path: Path) -> None:
    """Write absurd numbers into a snapshot, so that the model's arithmetic becomes infinite."""
    manifest = sensors._stream.manifest
    record, state, extra = read_snapshot(path, manifest, [t.name for t in manifest.state])
    for name, array in extra.items():
        if name.startswith("streams.state.") and array.dtype == np.float32:
            array[np.isfinite(array)] = np.finfo(np.float32).max
    write_snapshot(path, record, state, extra, [t.name for t in manifest.state])


@pytest.mark.parametrize("n_gap", [0, 3])
def test_a_step_that_fails_changes_nothing(n_gap: int, both: Both, tmp_path: Path) -> None:
    path = tmp_path / "absurd.npz"
    for at in range(100):
        require_equal(both, lambda s: s.step(START + at * HOUR, math.sin(at)))  # noqa: B023
    both[1].save(path)
    damage(both[0], path)
    for sensors in both:
        sensors.restore(path)
    before = state_of(both[0])
    failing = START + (100 + n_gap) * HOUR
    assert require_equal(both, lambda s: s.step(failing, 1.0))[0] is StepRefusedError
    assert state_of(both[0]) == before == state_of(both[1])


def give_many(sensors: Sensors, path: Path) -> None:
    """Give the roof 30 rows that one call of C takes, of which one is refused."""
    times = [(START + row * HOUR).replace(tzinfo=timezone.utc).timestamp() for row in range(47, 77)]
    times[9] = times[3]
    sensors.step_rows(np.array(times), np.sin(np.arange(30.0)), "roof")


IN_C = {**CALLS, "many rows": give_many}


@pytest.mark.long
@pytest.mark.parametrize("call", IN_C)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_any_line_leaves_all_of_a_call_or_nothing(
    call: str, both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests interrupt what is written for all snapshots."""
    modules = sensors_module, named_sensors, compiled_sensors
    monkeypatch.setattr(interruptions, "WATCHED", {module.__file__ for module in modules})
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    sensors, path = both[0], tmp_path / "two.npz"
    for row in range(47):
        give(sensors, "roof", row)
    for row in range(14):
        give(sensors, "cellar", row)
    sensors.save(path)
    manifest = sensors._stream.manifest
    kept = read_snapshot(path, manifest, [tensor.name for tensor in manifest.state])
    monkeypatch.setattr("edgefold.runtime.sensors.sensors.read_snapshot", lambda *_: kept)
    begin(sensors, path)
    before, lines = state_of(sensors), Lines()
    lines.watch(lambda: IN_C[call](sensors, path))
    after = state_of(sensors)
    first = {place: n for n, place in reversed([*enumerate(lines.events)])}
    last = {place: n for n, place in enumerate(lines.events)}
    for n in sorted({*first.values(), *last.values()}):
        begin(sensors, path)
        assert Lines(n).watch(lambda: IN_C[call](sensors, path))
        assert state_of(sensors) in (before, after), f"before {lines.events[n]} of {call}"


def test_sensors_of_two_threads_do_not_mix(built: tuple[Path, EngineOptions]) -> None:
    """A library computes in one block of memory for all of its sensors."""
    streams = ["faults", "a found season"]
    answers: dict[tuple[str, bool], list[Any]] = {}

    def run(stream: str, is_alone: bool) -> None:
        with Sensors.open(None, "native", engine=built[1]) as sensors:
            answers[stream, is_alone] = [
                told(lambda row=row: sensors.step(row.time, row.value, dated=row.dated))  # type: ignore[misc]
                for row in STREAMS[stream]
            ]

    threads = [threading.Thread(target=run, args=(stream, False)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        run(stream, True)
        assert answers[stream, False] == answers[stream, True]


# Without such a library --------------------------------------------------------------------------


def test_python_runs_the_rules_where_no_library_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stream.open(shipped_bundle(), "onnxruntime") as stream:
        for library, reason in (
            (None, "no library"),
            (ctypes.CDLL(None), "edgefold build sensors"),
        ):
            monkeypatch.setattr(Stream, "library", library)
            report = Sensors(stream).backend_report
            assert report["rules"] == "Python" and reason in report["rules_refused"]
