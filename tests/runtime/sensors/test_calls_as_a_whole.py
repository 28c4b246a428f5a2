"""Calls of Sensors that are interrupted, or made by several threads: all of a row, or nothing."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from edgefold.runtime import BusyError, ClosedError, DataError, Sensors
from edgefold.runtime.stream.snapshot import read_snapshot
from tests.runtime.stream.interruptions import Lines

# A file that is open where the exception comes is closed by the garbage collector, with a warning.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
START, HOUR = datetime(2024, 1, 1), timedelta(hours=1)
N_ROOF, N_CELLAR = 47, 14
"""Rows before the interrupted call. With the 48th slot a sensor looks for a season; with 14 rows it
has forecasts."""
State = dict[str, bytes]


def value(row: int, name: str) -> float:
    return round(len(name) + 3 * math.sin(row / 4) + 0.3 * math.sin(17.0 * row * row), 3)


def give(sensors: Sensors, name: str, row: int) -> None:
    sensors.step(START + row * HOUR, value(row, name), name)


def state_of(sensors: Sensors) -> State:
    """Return all that a snapshot would keep of the sensors."""
    arrays = sensors._all.in_python().arrays()
    kept = {name: array.tobytes() for name, array in arrays.items()}
    return {**kept, "names": repr(sensors.names).encode()}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sensors, Path]]:
    """Sensors with rows of a roof and a cellar, and the snapshot of this state."""
    path = tmp_path_factory.mktemp("sensors") / "two.npz"
    with Sensors.open(backend="onnxruntime") as sensors:
        for row in range(N_ROOF):
            give(sensors, "roof", row)
        for row in range(N_CELLAR):
            give(sensors, "cellar", row)
        sensors.save(path)
        yield sensors, path


def refused(sensors: Sensors) -> None:
    with pytest.raises(DataError):
        give(sensors, "cellar", N_CELLAR + 5000)


CALLS: dict[str, Callable[[Sensors, Path], object]] = {
    "a row with a look for a season": lambda sensors, _: give(sensors, "roof", N_ROOF),
    "a row after a gap": lambda sensors, _: give(sensors, "cellar", N_CELLAR + 1),
    "a new sensor": lambda sensors, _: give(sensors, "wall", 0),
    "a row that is refused": lambda sensors, _: refused(sensors),
    "a path": lambda sensors, _: sensors.path(2, "cellar"),
    "a forecast": lambda sensors, _: sensors.ahead("season", "cellar"),
    "a snapshot": lambda sensors, path: sensors.save(path.with_name("other.npz")),
    "a restored snapshot": lambda sensors, path: sensors.restore(path),
}


@pytest.mark.long
@pytest.mark.parametrize("every_time", [False, pytest.param(True, marks=pytest.mark.product)])
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_before_any_line_leaves_all_of_a_call_or_nothing(
    call: str,
    every_time: bool,
    opened: tuple[Sensors, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """State, clock, counts and names are those before the call or those after it, bit for bit."""
    sensors, path = opened
    # Reading the file changes nothing, and would take most of the time.
    manifest = sensors._stream.manifest
    kept = read_snapshot(path, manifest, [tensor.name for tensor in manifest.state])
    monkeypatch.setattr("edgefold.runtime.sensors.sensors.read_snapshot", lambda *_: kept)
    begin(sensors, path)
    before, lines = state_of(sensors), Lines()
    lines.watch(lambda: CALLS[call](sensors, path))
    after = state_of(sensors)
    first = {place: n for n, place in reversed([*enumerate(lines.events)])}
    last = {place: n for n, place in enumerate(lines.events)}
    places = {*first.values(), *last.values()}
    for n in range(len(lines.events)) if every_time else sorted(places):
        begin(sensors, path)
        assert Lines(n).watch(lambda: CALLS[call](sensors, path))
        assert state_of(sensors) in (before, after), f"before {lines.events[n]} of {call}"
    assert len(places) > 20


def begin(sensors: Sensors, path: Path) -> None:
    """Restore the state, and make the roof's the present one: other rows exchange it."""
    sensors.restore(path)
    sensors.ahead(1, "roof")


@pytest.mark.long
def test_sensors_of_several_threads_lose_no_row() -> None:
    """A call while another one runs is refused, and changes nothing."""
    n_rows, names = 30, [f"sensor {n}" for n in range(4)]
    taken: dict[str, list[int]] = {name: [] for name in names}
    n_busy = 0
    with Sensors.open(backend="onnxruntime") as sensors:

        def feed(name: str) -> None:
            nonlocal n_busy
            for row in range(n_rows):
                try:
                    give(sensors, name, row)
                    taken[name].append(row)
                    sensors.ahead(1, name)
                except BusyError:
                    n_busy += 1

        threads = [threading.Thread(target=feed, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, rows in taken.items():
            with Sensors.open(backend="onnxruntime") as alone:
                for row in rows:
                    give(alone, name, row)
                for each in (sensors, alone):
                    for row in range(n_rows, n_rows + 12):  # as many as a forecast needs
                        give(each, name, row)
                found, expected = (each.ahead(4, name) for each in (sensors, alone))
                assert found.is_known and found == expected, (name, rows)


def test_a_call_below_another_call_is_refused_and_changes_nothing(
    opened: tuple[Sensors, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sensors, path = opened
    sensors.restore(path)
    give(sensors, "cellar", N_CELLAR)
    expected = state_of(sensors)
    sensors.restore(path)
    true_step, n_refused = sensors._stream.step_with, 0

    def busy(*arguments: object) -> object:
        nonlocal n_refused
        for call in CALLS.values():
            with pytest.raises(BusyError):
                call(sensors, path)
            n_refused += 1
        return true_step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sensors._stream, "step_with", busy)
    give(sensors, "cellar", N_CELLAR)
    monkeypatch.undo()
    assert state_of(sensors) == expected and n_refused == len(CALLS)


def test_closed_sensors_refuse_every_call(tmp_path: Path) -> None:
    with Sensors.open(backend="onnxruntime") as sensors:
        give(sensors, "roof", 0)
    sensors.close()
    for call in CALLS.values():
        with pytest.raises(ClosedError):
            call(sensors, tmp_path / "x.npz")
