"""New sensors that start by the states of their siblings."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors, Stream
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.forecasts import Forecast
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sensors.warm.mixture import OWN, SHARE
from edgefold.runtime.sensors.warm.siblings import LEAST_SLOTS, MOST, read_siblings, slots_of
from edgefold.runtime.sensors.warm.warm_start import N_ROWS, RowForecast, forecast_of
from edgefold.runtime.stream.snapshot import read_snapshot, write_snapshot
from tests.runtime.stream.interruptions import Lines

pytestmark = pytest.mark.usefixtures("compiled_sensors")

HOUR = 3600.0
N_SIBLING = 320


def signal(n: int, seed: int) -> list[float]:
    """Values of hours with a season of a day, rounded, with some that repeat."""
    draw = random.Random(seed)
    values = [10 + 3 * math.sin(2 * math.pi * i / 24) + draw.gauss(0, 0.2) for i in range(n)]
    return [round(value, 1) for value in values]


def run(sensors: Sensors, values: list[float], first: int = 0, name: str = "") -> list[Forecast]:
    rows = enumerate(values[first:], first)
    return [sensors.step(HOUR * i, value, name) for i, value in rows]


def numbers(found: Forecast) -> list[Any]:
    row = (found.mean, *found.quantiles.values(), found.log_density, found.p_value)
    later = found.ahead(4), found.ahead("season")
    told = [*row, found.alarm, found.event, *(n for d in later for n in (d.mean, d.q05, d.q95))]
    return [None if number != number else number for number in told]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, compiled_sensors: None) -> Path:
    """A folder with a snapshot of one sensor, and one of two, of which one is too young."""
    folder = tmp_path_factory.mktemp("fleet")
    with Sensors.open() as sensors:
        run(sensors, signal(N_SIBLING, 1))
        sensors.save(folder / "one.npz")
    with Sensors.open() as sensors:
        run(sensors, signal(N_SIBLING + 5, 2), name="roof")
        run(sensors, signal(20, 3), name="young")
        sensors.save(folder / "two.npz")
    return folder


@pytest.fixture
def warm(fleet: Path) -> Iterator[Sensors]:
    with Sensors.open(siblings=fleet) as sensors:
        yield sensors


def snapshot_of(sensors: Sensors, path: Path) -> dict[str, bytes]:
    sensors.save(path)
    manifest = sensors._stream.manifest
    extra = read_snapshot(path, manifest, [t.name for t in manifest.state])[2]
    return {name: array.tobytes() for name, array in extra.items()}


def test_the_longest_learned_siblings_come_first(fleet: Path, warm: Sensors) -> None:
    assert [Path(name).name for name in warm.siblings] == ["two.npz roof", "one.npz"]
    with Sensors.open() as cold:
        assert cold.siblings == ()


def test_a_fleet_lends_its_longest_learned_sensors(tmp_path: Path) -> None:
    with Sensors.open() as sensors:
        for number in range(MOST + 2):
            run(sensors, signal(LEAST_SLOTS + number, number), name=str(number))
        sensors.save(tmp_path / "many.npz")
        manifest = sensors._stream.manifest
    found = read_siblings(tmp_path, manifest)
    assert [one.n_slots - LEAST_SLOTS for one in found] == list(range(MOST + 1, 1, -1))


def test_rows_are_mixed_as_their_states_forecast_them(fleet: Path) -> None:
    """Each state takes the rows by itself; density, p-value and mean are computed from these."""
    values = signal(80, 9)
    with Sensors.open(siblings=fleet) as warm:
        mixed = run(warm, values)
    with Stream.open(shipped_bundle()) as stream:
        siblings = read_siblings(fleet, stream.manifest)
        slots = slots_of(siblings, stream.manifest)
        each = [by_itself(stream, values)]
        for index in range(2):
            stream.put(slots, index)
            each.append(by_itself(stream, values))
    prior = [OWN, (1 - OWN) / 2, (1 - OWN) / 2]
    weights = prior
    for row, found in enumerate(mixed):
        own, *_ = states = [one[row] for one in each]
        if not found.is_known:
            assert found.log_density == own.log_density == 0.0
            continue
        total = sum(weights)
        weights = [(1 - SHARE) * w / total + SHARE * p for w, p in zip(weights, prior, strict=True)]
        densities = [math.exp(state.log_density) for state in states]
        assert found.log_density == pytest.approx(
            math.log(sum(w * d for w, d in zip(weights, densities, strict=True))), abs=1e-9
        )
        means = sum(w * state.mean for w, state in zip(weights, states, strict=True))
        assert found.mean == pytest.approx(means, abs=1e-9)
        sides = [
            1 - state.p_value / 2 if values[row] >= state.quantiles[3] else state.p_value / 2
            for state in states
        ]
        below = sum(w * side for w, side in zip(weights, sides, strict=True))
        assert found.p_value == pytest.approx(2 * min(below, 1 - below), abs=1e-9)
        weights = [w * d for w, d in zip(weights, densities, strict=True)]


def by_itself(stream: Stream, values: list[float]) -> list[RowForecast]:
    """The forecasts of rows by the state that a stream has."""
    kind = stream.manifest.prediction
    assert isinstance(kind, SensorForecast)
    feed, rows = SensorFeed(kind.longest_season), []
    for at, value in enumerate(values):
        (x,) = feed.rows(HOUR * at, value, False)
        rows.append(forecast_of(stream.step(x)))
        feed.commit()
    return rows


def test_a_sensor_after_its_first_rows_is_as_if_it_had_started_cold(
    warm: Sensors, tmp_path: Path
) -> None:
    values = signal(N_ROWS + 30, 7)
    with Sensors.open() as cold:
        expected = run(cold, values)
        whole = snapshot_of(cold, tmp_path / "cold.npz")
    found = run(warm, values)
    assert [numbers(f) for f in found[:10]] == [numbers(f) for f in expected[:10]]
    assert [numbers(f) for f in found[20:N_ROWS]] != [numbers(f) for f in expected[20:N_ROWS]]
    assert [numbers(f) for f in found[N_ROWS:]] == [numbers(f) for f in expected[N_ROWS:]]
    assert snapshot_of(warm, tmp_path / "warm.npz") == whole
    gains = [a.log_density - b.log_density for a, b in zip(found, expected, strict=True)]
    assert np.mean(gains[11:N_ROWS]) > 0.0  # these are true siblings


@pytest.mark.one_case
@pytest.mark.parametrize("compiled", [True, False])
def test_stopped_and_resumed_is_as_run_through(fleet: Path, tmp_path: Path, compiled: bool) -> None:
    values = {"roof": signal(90, 11), "wall": signal(90, 12)}
    with Sensors.open(siblings=fleet) as sensors:
        whole = {name: run(sensors, rows, name=name) for name, rows in values.items()}
        paths = {name: sensors.path(30, name) for name in values}
        end = snapshot_of(sensors, tmp_path / "whole.npz")
    with Sensors.open(siblings=fleet, compiled=compiled) as sensors:
        for name, rows in values.items():
            run(sensors, rows[:50], name=name)
        sensors.save(tmp_path / "half.npz")
    with Sensors.open(siblings=fleet / "one.npz", compiled=compiled) as sensors:
        sensors.restore(tmp_path / "half.npz")  # with its own two siblings, not the one given here
        for name, rows in values.items():
            found = run(sensors, rows, 50, name)
            assert [numbers(f) for f in found] == [numbers(f) for f in whole[name][50:]]
            path = sensors.path(30, name)
            np.testing.assert_array_equal(path.mean, paths[name].mean)
            np.testing.assert_array_equal(path.quantiles, paths[name].quantiles)
        assert snapshot_of(sensors, tmp_path / "again.npz") == end


def test_rows_without_values_and_refused_ones_change_no_evidence(warm: Sensors) -> None:
    values = signal(40, 4)
    run(warm, values)
    with pytest.raises(DataError):
        warm.step(0.0, 1.0)
    empty = warm.step(HOUR * 40, None)
    assert (empty.log_density, empty.p_value, empty.alarm) == (0.0, 1.0, False)
    assert empty.is_known and empty.q05 < empty.q95
    later = warm.step(HOUR * 45, 10.0)  # four rows are missing
    assert later.n_missing == 4 and later.is_known and 0.0 < later.p_value <= 1.0
    path = warm.path(48)
    assert np.isfinite(path.mean).all() and (np.diff(path.quantiles) >= 0).all()
    assert warm.ahead(1).mean == path.mean[0]


def test_values_that_repeat_have_quantiles_that_rise_and_p_values(warm: Sensors) -> None:
    found = [warm.step(HOUR * i, 10.0 if i % 7 else 11.0) for i in range(80)]
    for row in found[20:]:
        quantiles = list(row.quantiles.values())
        assert quantiles == sorted(quantiles)
        assert 0.0 <= row.p_value <= 1.0 and math.isfinite(row.log_density)
        # A value is between its quantiles or far out in the p-values, as of any forecast.
        assert row.q05 <= row.value <= row.q95 or row.p_value < 0.2


@pytest.mark.long
@pytest.mark.parametrize("compiled", [True, False])
def test_an_interrupted_row_is_learned_as_a_whole_or_not_at_all(
    fleet: Path, tmp_path: Path, compiled: bool
) -> None:
    values, path = signal(31, 6), tmp_path / "at.npz"

    def state_of(sensors: Sensors) -> dict[str, bytes]:
        return {name: a.tobytes() for name, a in sensors._all.in_python().arrays().items()}

    with Sensors.open(siblings=fleet, compiled=compiled) as sensors:
        run(sensors, values[:30])
        sensors.save(path)
        before, lines = state_of(sensors), Lines()
        lines.watch(lambda: run(sensors, values, 30))
        after = state_of(sensors)
        last = sorted({place: n for n, place in enumerate(lines.events)}.values())
        for n in last[:: max(len(last) // 60, 1)]:
            sensors.restore(path)
            assert Lines(n).watch(lambda: run(sensors, values, 30))
            assert state_of(sensors) in (before, after), lines.events[n]
            sensors.step(HOUR * 31, 10.0)  # the memory between rows is sound
            sensors.restore(path)
            run(sensors, values, 30)
            assert state_of(sensors) == after


def test_siblings_are_refused_with_a_reason(tmp_path: Path, fleet: Path) -> None:
    with pytest.raises(SnapshotError, match="holds no snapshots"):
        Sensors.open(siblings=tmp_path)
    with pytest.raises(SnapshotError, match="does not exist"):
        Sensors.open(siblings=tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no snapshot")
    with pytest.raises(SnapshotError, match="is not a snapshot"):
        Sensors.open(siblings=tmp_path)
    with Sensors.open() as sensors:
        run(sensors, signal(20, 1))
        sensors.save(tmp_path / "young.npz")
    with pytest.raises(SnapshotError, match="no sibling with 300 rows"):
        Sensors.open(siblings=tmp_path / "young.npz")


def test_snapshots_of_another_bundle_in_a_folder_are_left_out(tmp_path: Path, fleet: Path) -> None:
    with Sensors.open() as sensors:
        manifest = sensors._stream.manifest
    record, state, extra = read_snapshot(fleet / "one.npz", manifest)
    other = replace(record, bundle_hash="0" * 64)
    write_snapshot(tmp_path / "other.npz", other, state, extra)
    write_snapshot(tmp_path / "own.npz", record, state, extra)
    with pytest.warns(UserWarning, match=r"left out: other\.npz"):
        siblings = read_siblings(tmp_path, manifest)
    assert siblings and all("own.npz" in sibling.name for sibling in siblings)
    with pytest.raises(SnapshotError, match="another bundle"):
        read_siblings(tmp_path / "other.npz", manifest)
    with pytest.raises(SnapshotError, match="folder of siblings"):
        read_siblings(tmp_path / "missing", manifest)


def test_damaged_siblings_are_refused(tmp_path: Path, fleet: Path) -> None:
    with Sensors.open() as sensors:
        manifest = sensors._stream.manifest
    record, state, extra = read_snapshot(fleet / "one.npz", manifest)
    for name, array in (
        ("streams.watch_watch", np.zeros((1, 2))),
        ("streams.state.values", np.full_like(extra["streams.state.values"], np.nan)),
        ("streams.watch_tails", np.zeros((1, 3, 2))),
        ("sensors", np.zeros(3, np.uint8)),
    ):
        write_snapshot(tmp_path / "bad.npz", record, state, {**extra, name: array})
        with pytest.raises(SnapshotError):
            Sensors.open(siblings=tmp_path)


def test_a_snapshot_of_warm_sensors_needs_siblings_and_sound_arrays(
    fleet: Path, tmp_path: Path
) -> None:
    path = tmp_path / "half.npz"
    with Sensors.open(siblings=fleet) as sensors:
        run(sensors, signal(30, 1))
        sensors.save(path)
        manifest = sensors._stream.manifest
    with Sensors.open() as cold, pytest.raises(SnapshotError, match="give the siblings again"):
        cold.restore(path)
    record, state, extra = read_snapshot(path, manifest)
    damages = {
        "warm.weights": np.full(3, np.nan),
        "warm.rows": np.array([N_ROWS]),
        "warm.sensors": np.array([1]),
        "warm.n_siblings": np.array([MOST + 1]),
        "warm.errors": np.array([[1.0, np.inf]]),
        "warm.state.values": extra["warm.state.values"][:1],
        "warm.watch_tails": np.concatenate([extra["warm.watch_tails"]] * 2),
    }
    with Sensors.open(siblings=fleet) as sensors:
        for name, array in damages.items():
            write_snapshot(path, record, state, {**extra, name: array})
            with pytest.raises(SnapshotError):
                sensors.restore(path)
