"""The sensors' engine in C answers as Python's `Sensors`, whatever rows come."""

from __future__ import annotations

import ctypes
import io
import math
import struct
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from edgefold.export.native.toolchain.compilers import compile_library
from edgefold.runtime import Sensors
from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.clock.seasons import SeasonNews
from edgefold.runtime.sensors.clock.slot_clock import Leap, Refusal
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.sensors.c_sensors import (
    BAD_SNAPSHOT,
    BAD_VALUE,
    IO,
    NO_SNAPSHOT,
    Answer,
    CSensor,
    PySensor,
    Row,
    load_library,
    require_near,
    require_same,
)
from tests.export.native.sensors.streams_of_rows import STREAMS
from tests.made_once import made_once
from tests.native_builds import (
    QUICK,
    SANITIZERS,
    STRICT,
    c_files,
    compiler_or_skip,
)

DRIVER = Path(__file__).parent / "two_sensors.c"
N_AHEAD = 200
FLOAT = "-DEDGEFOLD_REAL=float"


@pytest.fixture(scope="session")
def library(built: tuple[Path, EngineOptions]) -> ctypes.CDLL:
    return load_library(built[0])


@pytest.fixture(scope="session")
def expected(built: tuple[Path, EngineOptions]) -> Iterator[dict[str, list[Answer]]]:
    """Python's `Sensors` answer all streams, with the same compiled steps."""
    with Sensors.open(None, "native", engine=built[1], compiled=False) as sensors:
        yield {
            name: [PySensor(sensors, name).push(row) for row in rows]
            for name, rows in STREAMS.items()
        }


def other_library(factory: pytest.TempPathFactory, name: str | None, *flags: str) -> ctypes.CDLL:
    """The library as another compiler makes it, or with other flags."""

    def make(folder: Path) -> None:
        compiler = compiler_or_skip(name, (*QUICK, *STRICT, *flags))
        compile_library(c_files(shipped_bundle()), compiler, folder)

    folder = made_once(factory, "c-sensors-other", make, (name, flags))
    return load_library(folder / "edgefold_sensors.so")


def pushed(sensor: CSensor | PySensor, rows: list[Row]) -> list[Answer]:
    return [sensor.push(row) for row in rows]


def known_path(sensor: CSensor) -> Array:
    path = sensor.path(N_AHEAD)
    return np.full((N_AHEAD, 8), np.nan) if path is None else path


@pytest.mark.parametrize("stream", STREAMS)
def test_c_answers_each_row_as_python_to_the_bit(
    stream: str, library: ctypes.CDLL, expected: dict[str, list[Answer]]
) -> None:
    require_same(pushed(CSensor(library), STREAMS[stream]), expected[stream])


@pytest.mark.parametrize("stream", ["faults", "a found season"])
def test_c_stays_with_onnxruntime(stream: str, library: ctypes.CDLL) -> None:
    rows = STREAMS[stream]
    with Sensors.open(None, "onnxruntime") as sensors:
        require_near(pushed(CSensor(library), rows), pushed(PySensor(sensors), rows))


def test_the_streams_bring_every_event_refusal_and_note(library: ctypes.CDLL) -> None:
    events, refusals, news, leaps = set[str](), set[str](), set[str](), set[str]()
    names = set[str]()
    for rows in STREAMS.values():
        sensor = CSensor(library)
        for row in rows:
            answer = sensor.push(row)
            refusals.add(answer.refusal)
            if not answer.refusal:
                events.add(answer.decisions[1])
                news.add(sensor.name(sensor.row.season_news))
                leaps.add(sensor.name(sensor.row.clock_leap))
        names.add(sensor.season[1])
    assert events == set(get_args(Event))
    assert refusals == set(get_args(Refusal))
    assert news == set(get_args(SeasonNews))
    assert leaps == set(get_args(Leap))
    assert names == {"", "day", "week"}


@pytest.mark.parametrize("stream", ["faults", "weekly", "a found season"])
def test_pace_season_and_coverage_are_those_of_python(
    stream: str, library: ctypes.CDLL, built: tuple[Path, EngineOptions]
) -> None:
    sensor, rows = CSensor(library), STREAMS[stream][:700]
    with Sensors.open(None, "native", engine=built[1], compiled=False) as sensors:
        for row in rows:
            sensor.push(row)
            other = PySensor(sensors)
            if not other.push(row).refusal:
                feed = sensors.feed()
                assert sensor.season == (feed.season, feed.season_name)
                assert np.array_equal(sensor.pace, feed.pace, equal_nan=True)
                assert sensor.newest_time == feed.newest_time
        scores = sensors._all.in_python().engines[""].scores
    assert sensor.coverage == scores.n_within_90 / scores.n_forecast


def test_before_its_first_rows_a_sensor_has_no_numbers(library: ctypes.CDLL) -> None:
    sensor = CSensor(library)
    assert math.isnan(sensor.pace) and math.isnan(sensor.coverage)
    assert math.isnan(sensor.newest_time)
    assert sensor.season == (0, "")
    assert sensor.path(3) is None
    answer = sensor.push(Row(0.0, 1.0, False))
    assert all(math.isnan(number) for number in answer.numbers[:8])
    assert not answer.decisions[-1]


@pytest.mark.parametrize("stream", STREAMS)
def test_paths_are_those_of_python_to_the_bit(
    stream: str, library: ctypes.CDLL, built: tuple[Path, EngineOptions]
) -> None:
    sensor, rows = CSensor(library), STREAMS[stream]
    with Sensors.open(None, "native", engine=built[1], compiled=False) as sensors:
        other = PySensor(sensors)
        for at, row in enumerate(rows):
            sensor.push(row)
            other.push(row)
            if at % 90 == 0 or at == len(rows) - 1:
                assert np.array_equal(known_path(sensor), other.path(N_AHEAD), equal_nan=True)


def test_two_sensors_in_turn_answer_as_each_alone(library: ctypes.CDLL) -> None:
    streams = [STREAMS["clocks"], STREAMS["a found season"]]
    alone = [pushed(CSensor(library), rows) for rows in streams]
    sensors = [CSensor(library), CSensor(library)]
    for at in range(max(map(len, streams))):
        for sensor, rows, answers in zip(sensors, streams, alone, strict=True):
            if at < len(rows):
                require_same([sensor.push(rows[at])], [answers[at]])


# Snapshots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
def test_a_snapshot_goes_on_to_the_bit_wherever_it_was_saved(
    stream: str, library: ctypes.CDLL, expected: dict[str, list[Answer]]
) -> None:
    sensor, answers = CSensor(library), list[Answer]()
    for at, row in enumerate(STREAMS[stream]):
        if at % 61 == 0:
            snapshot, path = sensor.save(), known_path(sensor)
            assert isinstance(snapshot, bytes)
            sensor = CSensor(library)
            assert sensor.load(snapshot) == 0
            assert sensor.save() == snapshot
            assert np.array_equal(known_path(sensor), path, equal_nan=True)
        answers.append(sensor.push(row))
    # Times of refused rows are kept too, so a clock that is set leaps at the same row.
    require_same(answers, expected[stream])


@pytest.mark.parametrize("stream", STREAMS)
def test_a_snapshot_has_the_arrays_of_python(
    stream: str, library: ctypes.CDLL, built: tuple[Path, EngineOptions]
) -> None:
    sensor = CSensor(library)
    with Sensors.open(None, "native", engine=built[1], compiled=False) as sensors:
        other = PySensor(sensors)
        for at, row in enumerate(STREAMS[stream]):
            sensor.push(row)
            other.push(row)
            if at % 150 == 0:
                snapshot, arrays = sensor.save(), other.arrays
                assert isinstance(snapshot, bytes)
                with np.load(io.BytesIO(snapshot)) as archive:
                    kept = {n.removeprefix("extra."): archive[n] for n in archive.files
                            if n.startswith("extra.")}  # fmt: skip
                assert kept.keys() == arrays.keys()
                for name, array in arrays.items():
                    assert kept[name].dtype == array.dtype, name
                    assert np.array_equal(kept[name], array, equal_nan=True), name


def test_a_load_keeps_the_rate_of_false_alarms(library: ctypes.CDLL) -> None:
    rows = STREAMS["noisy"]
    strict, careful = CSensor(library, 1e-6), CSensor(library, 0.1)
    snapshot = strict.save()
    assert isinstance(snapshot, bytes)
    assert careful.load(snapshot) == 0
    require_same(pushed(careful, rows), pushed(CSensor(library, 0.1), rows))


@pytest.mark.parametrize("rate", [0.0, -1.0, 0.100001, 1.0, math.inf, math.nan])
def test_a_rate_that_no_alarm_can_have_is_refused_and_starts_with_the_default(
    rate: float, library: ctypes.CDLL
) -> None:
    rows = STREAMS["faults"][:400]
    sensor = CSensor(library, rate)
    assert sensor.started == BAD_VALUE
    require_same(pushed(sensor, rows), pushed(CSensor(library), rows))


@pytest.mark.parametrize("rate", [1e-4, 0.1])
def test_a_rate_up_to_a_tenth_is_taken(rate: float, library: ctypes.CDLL) -> None:
    assert CSensor(library, rate).started == 0


def test_a_load_into_a_sensor_that_was_not_started_is_refused(library: ctypes.CDLL) -> None:
    saved = CSensor(library)
    pushed(saved, STREAMS["faults"][:60])
    snapshot = saved.save()
    assert isinstance(snapshot, bytes)
    sensor = CSensor(library, rate=None)
    assert sensor.started is None
    assert sensor.load(snapshot) == BAD_VALUE
    sensor.start(1e-4)
    assert sensor.load(snapshot) == 0
    assert sensor.save() == snapshot


def test_every_answer_of_a_push_has_a_text(library: ctypes.CDLL) -> None:
    sensor = CSensor(library)
    assert sensor.name(-1) == "arithmetic failed"
    assert sensor.name(0) == sensor.name(-2) == sensor.name(10_000) == ""


def test_a_damaged_snapshot_leaves_a_sensor_that_has_just_started(library: ctypes.CDLL) -> None:
    rows = STREAMS["faults"][:300]
    sensor = CSensor(library)
    pushed(sensor, rows)
    snapshot = sensor.save()
    assert isinstance(snapshot, bytes)
    fresh, first = CSensor(library), pushed(CSensor(library), rows[:40])
    beginning = fresh.save()
    for at in range(0, len(snapshot), 4001):
        flipped = bytearray(snapshot)
        flipped[at] ^= 0x41
        for damaged in (bytes(flipped), snapshot[:at]):
            status = sensor.load(damaged)
            assert status in (0, NO_SNAPSHOT, BAD_SNAPSHOT)
            if status == 0:  # of a byte that means nothing
                assert sensor.save() == snapshot
            else:
                assert sensor.save() == beginning
    assert sensor.load(snapshot[: len(snapshot) // 2]) == BAD_SNAPSHOT
    require_same(pushed(sensor, rows[:40]), first)


def test_a_save_that_finds_no_room_is_told(library: ctypes.CDLL) -> None:
    sensor = CSensor(library)
    snapshot = sensor.save()
    assert isinstance(snapshot, bytes)
    assert sensor.save(len(snapshot) - 1) == IO
    assert sensor.save(len(snapshot)) == snapshot


# Other compilers and flags -----------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("stream", STREAMS)
def test_with_a_search_in_float32_decisions_are_the_same(
    stream: str, expected: dict[str, list[Answer]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    small = other_library(tmp_path_factory, None, FLOAT)
    # The seasons that are found are the same, and so are all forecasts.
    require_same(pushed(CSensor(small), STREAMS[stream]), expected[stream])


@pytest.mark.long
@pytest.mark.parametrize("stream", STREAMS)
def test_clang_decides_the_same(
    stream: str, expected: dict[str, list[Answer]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clang = other_library(tmp_path_factory, "clang")
    require_near(pushed(CSensor(clang), STREAMS[stream]), expected[stream])


def compiled(folder: Path, name: str, flags: tuple[str, ...]) -> Path:
    """The driver with the engine, as a program."""
    compiler = compiler_or_skip(name, flags)
    files = {**c_files(shipped_bundle()), DRIVER.name: DRIVER.read_text()}
    for file, text in files.items():
        (folder / file).write_text(text)
    sources = [file for file in files if file.endswith(".c")]
    command = [*compiler.command, *compiler.flags, *sources, "-lm", "-o", "two_sensors"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "two_sensors"


@pytest.mark.long
def test_no_sanitizer_finds_anything(tmp_path: Path) -> None:
    program = compiled(tmp_path, "gcc", ("-O0", *STRICT, *SANITIZERS))
    for stream in ("faults", "clocks", "a found season"):
        rows = tmp_path / "rows"
        rows.write_bytes(b"".join(struct.pack("<3d", *row) for row in STREAMS[stream]))
        done = subprocess.run([program, rows], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        assert math.isfinite(float(done.stdout))


@cache
def header() -> str:
    return next(text for name, text in c_files(shipped_bundle()).items() if name.endswith(".h"))


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("flags", [("-DEDGEFOLD_WITHOUT_SNAPSHOTS",), (FLOAT,)], ids=str)
def test_the_engine_compiles_without_a_warning(
    name: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    compiler = compiler_or_skip(name, (*STRICT, "-fsyntax-only", *flags))
    for file, text in c_files(shipped_bundle()).items():
        (tmp_path / file).write_text(text)
    command = [*compiler.command, *compiler.flags, "-c", "edgefold_sensors.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_header_is_cpp_too(tmp_path: Path) -> None:
    compiler_or_skip("g++", ())
    (tmp_path / "header.cpp").write_text(header())
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "header.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
