"""`Sensors` with rules in compiled C and with Python's: each call answers the same to the bit."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple
from datetime import datetime, timedelta
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
    pandas.testing.assert_frame_equal(
        *(each.backtest(later, skip=3) for each in both), check_exact=True
    )


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


@pytest.mark.parametrize("n_gap", [0, 3])
def test_a_step_that_fails_changes_nothing(n_gap: int, both: Both, tmp_path: Path) -> None:
    """An absurd number of a snapshot makes the model's arithmetic infinite."""
    path = tmp_path / "absurd.npz"
    for at in range(100):
        require_equal(both, lambda s: s.step(START + at * HOUR, math.sin(at)))  # noqa: B023
    both[1].save(path)
    manifest = both[0]._stream.manifest
    record, state, extra = read_snapshot(path, manifest, [t.name for t in manifest.state])
    for name, array in extra.items():
        if name.startswith("streams.state.") and array.dtype == np.float32:
            array[np.isfinite(array)] = np.finfo(np.float32).max
    write_snapshot(path, record, state, extra, [t.name for t in manifest.state])
    for sensors in both:
        sensors.restore(path)
    before = state_of(both[0])
    failing = START + (100 + n_gap) * HOUR
    assert require_equal(both, lambda s: s.step(failing, 1.0))[0] is StepRefusedError
    assert state_of(both[0]) == before == state_of(both[1])


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
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
    lines.watch(lambda: CALLS[call](sensors, path))
    after = state_of(sensors)
    first = {place: n for n, place in reversed([*enumerate(lines.events)])}
    last = {place: n for n, place in enumerate(lines.events)}
    for n in sorted({*first.values(), *last.values()}):
        begin(sensors, path)
        assert Lines(n).watch(lambda: CALLS[call](sensors, path))
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
