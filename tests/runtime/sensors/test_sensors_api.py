"""The class Sensors: one row at a time, several sensors, files, and tables of pandas."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors
from edgefold.runtime.errors import BundleError, SnapshotError, ValueRefusedError
from edgefold.runtime.sensors.forecasts import Forecast
from edgefold.runtime.stream.named_states import NamedStates
from edgefold.runtime.stream.snapshot import read_snapshot, write_snapshot

pytestmark = pytest.mark.usefixtures("compiled_sensors")

START = datetime(2024, 1, 1)
HOUR = timedelta(hours=1)


@pytest.fixture
def sensors() -> Iterator[Sensors]:
    with Sensors.open() as opened:
        yield opened


def signal(n: int, seed: int = 0) -> list[float]:
    """Values of hours with a season of a day."""
    draw = random.Random(seed)
    return [10 + 3 * math.sin(2 * math.pi * i / 24) + draw.gauss(0, 0.3) for i in range(n)]


def run(sensors: Sensors, values: list[float], first: int = 0, name: str = "") -> list[Forecast]:
    rows = enumerate(values, first)
    return [sensors.step(START + i * HOUR, value, name) for i, value in rows]


def numbers(found: Forecast) -> tuple[Any, ...]:
    return (found.mean, *found.quantiles.values(), found.p_value, found.alarm, found.ahead(4))


def test_a_row_is_forecast_before_its_value_is_seen(sensors: Sensors) -> None:
    found = run(sensors, signal(200))
    assert not found[0].is_known and found[0].p_value == 1
    late = found[100:]
    assert all(list(f.quantiles.values()) == sorted(f.quantiles.values()) for f in late)
    assert all(f.q05 < f.mean < f.q95 for f in late)
    inside = sum(f.q05 <= f.value <= f.q95 for f in late)
    assert 75 <= inside <= 100  # of 100; 90 are expected
    assert [f.ahead(1).mean for f in late[:-1]] == [f.mean for f in late[1:]]


def test_a_value_far_out_is_an_alarm(sensors: Sensors) -> None:
    run(sensors, signal(200))
    found = sensors.step(START + 200 * HOUR, 40.0)
    assert found.alarm and found.event == "value" and found.p_value < 1e-4
    after = sensors.step(START + 201 * HOUR, signal(202)[201])
    assert not after.alarm


def test_two_sensors_are_as_if_each_were_alone(sensors: Sensors) -> None:
    values = {"roof": signal(60, 1), "wall": signal(60, 2)}
    both = {name: [] for name in values}  # type: dict[str, list[Forecast]]
    for i in range(60):
        for name in values:
            both[name].append(sensors.step(START + i * HOUR, values[name][i], name))
    assert sensors.names == ("roof", "wall")
    for name in values:
        with Sensors.open() as alone:
            found = run(alone, values[name])
        assert [numbers(f) for f in found[20:]] == [numbers(f) for f in both[name][20:]]


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((START, 1.0), DataError),  # comes late
        ((None, 1.0), DataError),
        (("yesterday", 1.0), DataError),
        ((START + 65 * HOUR, math.inf), DataError),
        ((START + 65 * HOUR, -2e31), DataError),
    ],
)
def test_a_refused_row_changes_nothing(
    row: tuple[Any, float], error: type[Exception], sensors: Sensors
) -> None:
    values = signal(61)
    run(sensors, values[:60])
    with pytest.raises(error):
        sensors.step(*row)
    after = run(sensors, values[60:], 60)
    with Sensors.open() as other:
        assert numbers(run(other, values)[-1]) == numbers(after[0])


@pytest.mark.parametrize("name", [5, ("a", "b"), b"roof", None, math.nan])
def test_a_name_that_is_no_text_is_refused_by_every_call(name: Any, sensors: Sensors) -> None:
    for call in (
        lambda: sensors.step(START, 1.0, name),
        lambda: sensors.learn_one(1.0, START, name),
        lambda: sensors.ahead(1, name),
        lambda: sensors.path(1, name),
        lambda: sensors.feed(name),
    ):
        with pytest.raises(DataError, match="give a text"):
            call()
    assert sensors.names == ()


@pytest.mark.parametrize("horizon", ["season", "4", 1.5, True, None, [4], 0, 10**6, np.ones(2)])
def test_a_horizon_that_is_no_number_of_slots_is_refused(horizon: Any, sensors: Sensors) -> None:
    run(sensors, signal(1))
    calls: list[Callable[[Any], object]] = [sensors.path, sensors.predict_one, sensors.forecast]
    if not isinstance(horizon, str) or horizon != "season":
        calls.append(sensors.ahead)
    for call in calls:
        with pytest.raises(ValueRefusedError, match="give"):
            call(horizon)


def test_a_horizon_may_be_a_number_of_numpy(sensors: Sensors) -> None:
    run(sensors, signal(30))
    assert sensors.ahead(np.int64(4)) == sensors.ahead(4)  # type: ignore[arg-type]
    assert (sensors.path(np.int32(3)).mean == sensors.path(3).mean).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [10**400, -(10**400), 1 << 20_000], ids="abc")
def test_a_number_that_no_float_holds_is_refused(number: int, sensors: Sensors) -> None:
    for row in ((number, 1.0), (START, number)):
        with pytest.raises(DataError, match="beyond 1e308"):
            sensors.step(*row)
    assert sensors.names == ()


def test_a_clock_never_overflows(sensors: Sensors, tmp_path: FilePath) -> None:
    """Times of any size are taken or refused, and what was taken can be saved and restored."""
    for name, times in {
        "small steps": [*(i * 1e-300 for i in range(39)), 1e99, 2e99, 3e99, 4e99],
        "smallest steps": [*(i * 5e-324 for i in range(39)), 1e299, 2e299, 3e299],
        "far apart": [-1.7e308, 1.7e308, -1e300, 1e300, 1.7e308],
        "large steps": [i * 1e298 for i in range(-20, 20)],
    }.items():
        for time in times:
            try:
                sensors.step(time, 1.0, name)
            except DataError as error:
                assert abs(time) > 1e300 or "follow it" in str(error)
    assert sensors.feed("far apart").pace == 2e300
    sensors.save(tmp_path / "s.npz")
    sensors.restore(tmp_path / "s.npz")
    assert len(sensors.names) == 4


def test_a_time_may_be_a_number_in_a_text(sensors: Sensors) -> None:
    values = signal(20)
    for i, value in enumerate(values):
        sensors.step(0.015 * i, value, "numbers")
        sensors.step(str(0.015 * i), value, "texts")
        sensors.step(1.7e9 + 60 * i, value, "seconds")
        sensors.step(f" {1_700_000_000 + 60 * i} ", value, "seconds in texts")
    assert sensors.ahead(1, "texts") == sensors.ahead(1, "numbers")
    assert sensors.ahead(1, "seconds in texts") == sensors.ahead(1, "seconds")
    with pytest.raises(DataError, match="without dashes or a number"):
        sensors.step("20240131", 1.0, "either")
    with pytest.raises(DataError, match="times of the rows before it are numbers"):
        sensors.step("2024-01-31", 1.0, "texts")


@pytest.mark.parametrize(
    "row", [("noon", 1.0), (object(), 1.0), (math.nan, 1.0), (5.0, "warm"), (5.0, math.inf)]
)
def test_a_refused_first_row_makes_no_sensor(row: tuple[Any, Any], sensors: Sensors) -> None:
    with pytest.raises(DataError):
        sensors.step(*row, sensor="roof")
    assert sensors.names == ()


def test_a_gap_is_passed_and_counted(sensors: Sensors) -> None:
    run(sensors, signal(60))
    found = sensors.step(START + 65 * HOUR, 10.0)
    assert found.n_missing == 5
    assert sensors.feed().season == 24


def test_a_missing_value_is_forecast_and_not_judged(sensors: Sensors) -> None:
    run(sensors, signal(60))
    for value in (None, math.nan):
        found = sensors.step(START + (60 + (value is not None)) * HOUR, value)
        assert found.is_known and math.isnan(found.value)
        assert (found.log_density, found.p_value, found.alarm) == (0, 1, False)


@pytest.mark.one_case
@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.replace(tzinfo=timezone.utc),
        lambda t: np.datetime64(t),
        lambda t: t.replace(tzinfo=timezone.utc).timestamp(),
        lambda t: f"{t:%Y-%m-%dT%H:%M:%S}Z",
        lambda t: t.replace(tzinfo=timezone.utc).astimezone(timezone(2 * HOUR)),
    ],
)
def test_times_may_be_written_in_many_ways(form: Any, sensors: Sensors) -> None:
    values = signal(40)
    found = [sensors.step(form(START + i * HOUR), v) for i, v in enumerate(values)]
    with Sensors.open() as other:
        assert numbers(run(other, values)[-1]) == numbers(found[-1])
    assert sensors.feed().pace == 3600


def test_rows_without_times_come_evenly(sensors: Sensors) -> None:
    found = [sensors.step(None, value) for value in signal(40)]
    assert [f.time for f in found] == list(range(40))
    assert found[-1].is_known
    with pytest.raises(DataError):
        sensors.step(START, 1.0)


def test_a_path_leads_through_the_forecasts_of_each_horizon(sensors: Sensors) -> None:
    last = run(sensors, signal(200))[-1]
    path = sensors.path(60)
    for horizon, slots in (*((h, h) for h in sensors.horizons), ("season", 24)):
        made = last.ahead(horizon)  # type: ignore[arg-type]
        assert path.mean[slots - 1] == pytest.approx(made.mean, rel=1e-5)  # float32
        expected = list(made.quantiles.values())
        assert path.quantiles[slots - 1].tolist() == pytest.approx(expected, rel=1e-5)
    assert (np.diff(path.quantiles, axis=1) >= 0).all()
    again = run(sensors, [10.0], 200)[0]
    assert again.mean == last.ahead().mean  # the path has changed nothing


def test_behind_one_season_the_next_forecast_counts_at_once(sensors: Sensors) -> None:
    """Row 24, a season ahead, is forecast better than row 25, whose season has not come yet."""
    run(sensors, signal(200))
    assert sensors.feed().season == 24
    widths = np.ptp(sensors.path(48).quantiles, axis=1)
    assert widths[24:31] == pytest.approx(widths[31], rel=1e-9)
    between = np.diff(widths[15:24])
    assert abs(between).max() > 0 and ((between <= 0).all() or (between >= 0).all())


def test_bands_grow_over_slots_without_values(sensors: Sensors, tmp_path: FilePath) -> None:
    """While no value comes, each slot is forecast as it was after the last value."""
    run(sensors, signal(200))
    path = sensors.path(60).quantiles
    missing = run(sensors, [math.nan] * 3, 200)[-1]
    run(sensors, [math.nan] * 2, 205)  # two slots without a row before
    assert sensors.path(50).quantiles == pytest.approx(path[7:57], rel=1e-5)
    assert missing.ahead(4).q95 == pytest.approx(path[6, -1], rel=1e-5)
    assert sensors.ahead(8).q05 == pytest.approx(path[14, 0], rel=1e-5)
    assert sensors.ahead("season").q50 == pytest.approx(sensors.path(24).quantiles[-1, 3])
    sensors.save(tmp_path / "s.npz")
    with Sensors.open() as other:
        other.restore(tmp_path / "s.npz")
        assert (other.path(50).quantiles == sensors.path(50).quantiles).all()
    run(sensors, [math.nan] * 2_000, 207)  # longer than any season that is kept
    assert np.isfinite(sensors.path(30).quantiles).all()
    run(sensors, [20.0], 2207)
    assert sensors.path(1).quantiles[0, 3] == pytest.approx(sensors.ahead().q50)


def test_a_snapshot_that_kept_no_age_of_its_forecasts_goes_on(
    sensors: Sensors, tmp_path: FilePath
) -> None:
    run(sensors, signal(100))
    path = tmp_path / "s.npz"
    sensors.save(path)
    record, state, extra = read_snapshot(path, sensors._stream.manifest)
    (name,) = (name for name in extra if "ahead_numbers" in name)
    write_snapshot(path, record, state, {**extra, name: extra[name][..., :2]})
    with Sensors.open() as other:
        other.restore(path)
        assert (other.path(30).quantiles == sensors.path(30).quantiles).all()


def test_a_bundle_without_weights_of_a_shape_has_straight_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present = NamedStates.present
    monkeypatch.setattr(
        NamedStates, "present", lambda states: {"values": present(states)["values"]}
    )
    with Sensors.open(compiled=False) as sensors:
        run(sensors, signal(200))
        path = sensors.path(24)
    part = math.log(20 / 16) / math.log(24 / 16)
    expected = path.mean[15] + part * (path.mean[23] - path.mean[15])
    assert path.mean[19] == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
def test_a_path_keeps_the_shape_of_a_season(sensors: Sensors) -> None:
    """Nights of 72 slots without sun are forecast as such, as rolling on would not."""
    day = [100.0 * max(0.0, math.sin(2 * math.pi * i / 144)) for i in range(144)]
    draw = random.Random(1)
    for i in range(144 * 5 + 36):  # until noon
        value = day[i % 144] * draw.uniform(0.8, 1.2)
        sensors.step(START + i * HOUR / 6, value)
    path = sensors.path(144)
    assert abs(path.mean[60:100]).max() < 5
    assert path.mean[130] > 60


def test_forecasts_respect_a_limit_that_the_sensor_has_shown(sensors: Sensors) -> None:
    """Power that is zero by night: no forecast is negative, though bands by day reach below it."""
    draw = random.Random(2)
    for i in range(24 * 12 + 10):
        sun = max(0.0, math.sin(2 * math.pi * i / 24))
        sensors.step(START + i * HOUR, 100.0 * sun * draw.uniform(0.1, 1.0))
    path = sensors.path(48)
    state = sensors._all.in_python().arrays()
    assert state["streams.state.limits_without"].min() < -1  # as it would be without limits
    assert path.quantiles.min() >= -1e-3 and path.mean.min() >= -1e-3
    for horizon in sensors.horizons:
        assert min(sensors.ahead(horizon).quantiles.values()) >= -1e-3
    direct = list(sensors.ahead(16).quantiles.values())
    assert path.quantiles[15].tolist() == pytest.approx(direct, rel=1e-5, abs=1e-5)


def test_it_is_a_forecaster_as_river_has_them(sensors: Sensors) -> None:
    assert math.isnan(sensors.learn_one(10.0).predict_one())
    for value in signal(60):
        assert sensors.learn_one(value) is sensors
    found = sensors.forecast(6)
    assert len(found) == 6 and found[0] == pytest.approx(sensors.predict_one())
    assert sensors.predict_one(6) == found[-1]
    with pytest.raises(ValueRefusedError):
        sensors.forecast(0)


def test_a_restored_file_goes_on_where_it_was_saved(sensors: Sensors, tmp_path: FilePath) -> None:
    values = signal(90)
    for name in ("roof", "wall"):
        run(sensors, values[:60], name=name)
    sensors.save(tmp_path / "state.npz")
    whole = [run(sensors, values[60:], 60, name) for name in ("roof", "wall")]
    with Sensors.open() as other:
        other.restore(tmp_path / "state.npz")
        assert other.names == ("roof", "wall")
        assert other.ahead(1, "roof").mean == whole[0][0].mean
        found = [run(other, values[60:], 60, name) for name in ("roof", "wall")]
    for mine, theirs in zip(whole, found, strict=True):
        assert [numbers(f) for f in mine] == [numbers(f) for f in theirs]


def test_a_foreign_file_is_refused_and_changes_nothing(
    sensors: Sensors, tmp_path: FilePath
) -> None:
    run(sensors, signal(60))
    ahead = sensors.ahead()
    sensors._stream.save(tmp_path / "other.npz", {"mine": np.zeros(3)})
    for path in (tmp_path / "other.npz", tmp_path / "none.npz"):
        with pytest.raises(SnapshotError):
            sensors.restore(path)
    assert sensors.ahead() == ahead
    assert run(sensors, [10.0], 60)[0].mean == ahead.mean


def test_sensors_of_an_earlier_bundle_go_on_without_its_forecasts_of_later_slots(
    sensors: Sensors, tmp_path: FilePath
) -> None:
    run(sensors, signal(100))
    path = tmp_path / "s.npz"
    sensors.save(path)
    manifest = sensors._stream.manifest
    record, state, extra = read_snapshot(path, manifest)
    kept = {n: a for n, a in extra.items() if "further_" not in n and "ahead_numbers" not in n}
    kept["streams.state.experts_root"] = np.repeat(extra["streams.state.experts_root"], 4, 2)
    earlier = replace(record, bundle_hash=manifest.resumes[0])
    write_snapshot(path, earlier, state, kept)
    with Sensors.open() as other:
        other.restore(path)
        assert np.isnan(other.path(3).mean).all()
        expected, found = (run(of, signal(120)[100:], 100) for of in (sensors, other))
        assert [row.mean for row in found] == [row.mean for row in expected]
        assert np.isfinite(other.path(60).mean).all()


@pytest.mark.parametrize("path", [5, None, b"x.npz", [], "", "\0"])
def test_what_is_no_path_is_refused(path: Any, sensors: Sensors) -> None:
    for call in (sensors.save, sensors.restore, sensors._stream.save, sensors._stream.restore):
        with pytest.raises(SnapshotError):
            call(path)


def test_another_model_is_refused(tiny_bundle: FilePath) -> None:
    with pytest.raises(BundleError):
        Sensors.open(tiny_bundle)


@pytest.mark.parametrize("rate", [0.0, -1.0, 0.5, math.nan, "1e-4", None])
def test_an_absurd_rate_of_false_alarms_is_refused(rate: Any) -> None:
    with pytest.raises(ValueRefusedError, match="1e-4"):
        Sensors.open(false_alarms=rate)


@pytest.mark.parametrize("compiled", [True, False])
def test_reset_forgets_all_sensors(compiled: bool) -> None:
    with Sensors.open(compiled=compiled) as sensors:
        run(sensors, signal(30))
        first = sensors.ahead(4)
        sensors.reset()
        assert sensors.names == ()
        with pytest.raises(DataError, match="no row"):
            sensors.ahead(4)
        run(sensors, signal(30))
        assert sensors.ahead(4) == first and len(sensors.bundle_hash) == 64
