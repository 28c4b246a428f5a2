"""What the benchmark of many sensors judges, and how it tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.native import many_sensors
from benchmarks.native.many_sensors_table import many_sensors as tables
from benchmarks.record import spread
from edgefold.export.native.toolchain.compilers import find_compiler
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.native_builds import compiler_or_skip

FLEET = {
    **{"n_sensors": 10_000, "n_rounds": 300, "longest_season": 168, "n_refused": 0},
    **{
        "row_us": 20.0,
        "mean_row_us": 21.0,
        "processor_row_us": 20.5,
        "slowest_round_s": 1.25,
        "slowest_round": 96,
    },
    **{"sensor_bytes": 74_000, "shared_bytes": 24_000, "resident_bytes": 745_000_000},
}


@pytest.fixture
def data() -> dict[str, Any]:
    def times(us: float, ratio: float) -> dict[str, float]:
        return {**spread([1000 * us] * 3), "ratio": ratio, "ratio_p10": 0.0, "ratio_p90": 1.0}

    streams = [
        {"n_streams": 1, "c": times(18, 1.0), "stream": times(25, 1.0)},
        {"n_streams": 16, "c": times(14.5, 0.8), "stream": times(19, 0.75)},
    ]
    return {"compiler": ["gcc 12", "-O2"], "streams": streams, "fleet": FLEET}


def test_the_most_streams_and_the_fleet_are_judged(data: dict[str, Any]) -> None:
    assert all(requirement.met for requirement in many_sensors.requirements(data))
    data["streams"][-1]["c"]["median_s"] = 16e-6
    data["fleet"] = {**FLEET, "n_refused": 1}
    met = [requirement.met for requirement in many_sensors.requirements(data)]
    assert met == [False, True, False]


def test_tables_have_a_line_for_each_number_of_streams_and_the_fleets_bytes(
    data: dict[str, Any],
) -> None:
    steps, fleet = tables(json.loads(json.dumps(data)))
    assert steps.rows[1] == ["16", "14.5 µs", "14.5 µs", "0.80", "19.0 µs", "19.0 µs", "0.75"]
    cells = {row[0]: row[1] for row in fleet.rows}
    assert cells["memory of a sensor"] == "74.0 kB"
    assert cells["the slowest round of all sensors"] == "1.25 s"


@pytest.mark.long
def test_the_fleet_takes_a_row_of_each_sensor_in_a_round(tmp_path: Path) -> None:
    compiler_or_skip()
    fleet = many_sensors.measure_fleet(find_compiler(extra=("-O1",)), tmp_path, 3, 5)
    assert fleet["n_refused"] == 0
    assert fleet["processor_row_us"] > 0
    assert fleet["sensor_bytes"] > fleet["shared_bytes"] > 0


def test_one_stream_is_the_shipped_bundle(tmp_path: Path) -> None:
    assert many_sensors.bundle_of(1, tmp_path) == shipped_bundle()
