"""Tables of pandas, given to Sensors: forecasts, scores and progress."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors
from edgefold.runtime.errors import ValueRefusedError
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.forecasts import BAND, Horizon
from edgefold.runtime.sensors.tables.table_runs import TerminalProgress
from tests.runtime.sensors.test_sensors_api import START, run, signal

pytestmark = pytest.mark.usefixtures("compiled_sensors")

FIGURES = ["value", *BAND, "log_density", "p_value"]


@pytest.fixture(scope="module")
def pandas() -> Any:
    return pytest.importorskip("pandas")


@pytest.fixture
def sensors() -> Iterator[Sensors]:
    with Sensors.open() as opened:
        yield opened


def test_a_series_comes_back_with_its_index(sensors: Sensors, pandas: Any) -> None:
    values = signal(40)
    index = pandas.date_range(START, periods=40, freq="h")
    table = sensors.run(pandas.Series(values, index=index))
    assert list(table.columns) == [*FIGURES, "alarm", "event"] and (table.index == index).all()
    assert (table["value"] == values).all()
    with Sensors.open() as other:
        expected = run(other, values)
    for name in (*BAND, "log_density", "p_value"):
        assert table[name].iloc[-1] == getattr(expected[-1], name)
    assert table["alarm"].dtype == bool and set(table["event"]) == {""}


def test_what_does_not_exist_is_nan(sensors: Sensors, pandas: Any) -> None:
    """As the fields of a CSV file are empty: before the first forecast, and without a value."""
    values = signal(40)
    values[30] = math.nan
    table = sensors.run(pandas.Series(values))
    assert table[FIGURES[1:]].iloc[:11].isna().all(axis=None)
    assert table[[*BAND]].iloc[11:].notna().all(axis=None)
    scores = table[["log_density", "p_value"]]
    assert list(np.flatnonzero(scores.isna().all(axis=1))) == [*range(11), 30]


def test_each_column_of_a_data_frame_is_a_sensor(sensors: Sensors, pandas: Any) -> None:
    when = pandas.date_range(START, periods=30, freq="h").insert(30, START)  # the last comes late
    frame = pandas.DataFrame({"ds": when, "a": signal(31), 7: 1.5, "c": "x"})
    with pytest.warns(UserWarning, match=r"2 of 62 rows were refused.*\n*.*a, row 30"):
        table = sensors.run(frame)
    assert list(table.columns) == ["series", "time", *FIGURES, "alarm", "event"]
    assert list(table["series"]) == ["a"] * 31 + ["7"] * 31
    assert list(table["time"]) == [*when] * 2
    assert list(np.flatnonzero(table["event"] == "refused")) == [30, 61]
    assert table["value"].iloc[30] == frame["a"].iloc[30] and math.isnan(table["mean"].iloc[30])
    with Sensors.open() as other:
        assert table["mean"].iloc[29] == run(other, signal(30))[-1].mean


def test_a_frame_turns_to_each_sensor_once(pandas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanging states takes as long as the model, so it must not happen at each row."""
    with Sensors.open(compiled=False) as sensors:
        n_exchanged, put = 0, sensors._stream.put

        def counted(*arguments: Any) -> None:
            nonlocal n_exchanged
            n_exchanged += 1
            put(*arguments)

        monkeypatch.setattr(sensors._stream, "put", counted)
        sensors.run(pandas.DataFrame({name: signal(20) for name in "abc"}))
        assert n_exchanged == 2 and sensors.names == ("a", "b", "c")


def test_rows_from_new_to_old_are_refused_as_a_table(sensors: Sensors, pandas: Any) -> None:
    index = pandas.date_range(START, periods=20, freq="h")
    series = pandas.Series(signal(20), index=index[::-1])
    with pytest.raises(DataError, match="sort_index"):
        sensors.run(series)
    with pytest.raises(DataError, match="sort_index"):
        sensors.run(pandas.DataFrame({"t": index[::-1], "a": 1.0}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sensors.run(series.sort_index())


def test_what_pandas_calls_missing_is_no_error(sensors: Sensors, pandas: Any) -> None:
    values = pandas.Series(signal(20), dtype="Float64")
    values[5] = pandas.NA
    index = pandas.date_range(START, periods=20, freq="h").to_list()
    index[9] = pandas.NaT
    with pytest.warns(UserWarning, match="1 of 20 rows"):
        table = sensors.run(values.set_axis(pandas.DatetimeIndex(index)))
    assert math.isnan(table["value"].iloc[5])
    assert list(np.flatnonzero(table["event"] == "refused")) == [9]


@pytest.mark.parametrize("form", ["aware", "periods", "texts", "seconds", "datetimes"])
def test_times_may_be_any_index_of_dates(form: str, sensors: Sensors, pandas: Any) -> None:
    plain = pandas.date_range(START, periods=30, freq="h")
    index = {
        "aware": plain.tz_localize("UTC").tz_convert("Asia/Tokyo"),
        "periods": plain.to_period("h"),
        "texts": pandas.Index([str(moment) for moment in plain]),
        "seconds": pandas.Index([moment.timestamp() for moment in plain]),
        "datetimes": pandas.Index([moment.to_pydatetime() for moment in plain], dtype=object),
    }[form]
    table = sensors.run(pandas.Series(signal(30), index=index))
    assert sensors.feed().pace == 3600
    with Sensors.open() as other:
        assert table["mean"].iloc[-1] == run(other, signal(30))[-1].mean


@pytest.mark.parametrize("names", [("a", "a"), (1, "1")])
def test_two_columns_of_one_name_are_refused(
    names: tuple[Any, Any], sensors: Sensors, pandas: Any
) -> None:
    with pytest.raises(DataError, match="one name"):
        sensors.run(pandas.DataFrame([[1.0, 2.0]], columns=list(names)))


def test_a_series_of_texts_is_refused(sensors: Sensors, pandas: Any) -> None:
    with pytest.raises(DataError, match="numbers"):
        sensors.run(pandas.Series(["x", "y"]))


def test_run_refuses_what_is_not_of_pandas(sensors: Sensors) -> None:
    for call in (sensors.run, sensors.backtest):
        with pytest.raises(DataError, match="list; give a Series"):
            call([1.0, 2.0])


def test_a_backtest_scores_each_horizon(sensors: Sensors, pandas: Any) -> None:
    """Its figures are those of the forecasts that `ahead` gave, row by row."""
    values = signal(120)
    index = pandas.date_range(START, periods=120, freq="h").delete(60)  # a gap of one slot
    del values[60]
    frame = pandas.DataFrame({"a": values, "b": 1.0}, index=index)
    table = sensors.backtest(frame, skip=20).set_index(["series", "horizon"])
    assert list(table.columns) == ["n", "mae", "persistence", "ratio", "coverage_90", "crps"]
    slots = [*range(60), *range(61, 120)]
    by_slot = dict(zip(slots, values, strict=True))
    steps: list[Horizon] = [*sensors.horizons, "season"]
    with Sensors.open() as other:
        made = {}
        for slot, value in by_slot.items():
            other.step(START + slot * (index[1] - index[0]), value)
            made[slot] = {h: other.ahead(h) for h in steps}
    for horizon in steps:
        step = 24 if horizon == "season" else horizon
        pairs = [
            (by_slot[slot], by_slot[slot - step], made[slot - step][horizon])
            for slot in slots[20:]
            if slot - step in made and made[slot - step][horizon].is_known
        ]
        value = np.array([v for v, *_ in pairs])
        before = np.array([b for _, b, _ in pairs])
        quantiles = np.array([list(f.quantiles.values()) for *_, f in pairs])
        found = table.loc["a", horizon]
        assert found["n"] == len(pairs) >= 60
        assert found["mae"] == pytest.approx(np.abs(value - quantiles[:, 3]).mean())
        assert found["persistence"] == pytest.approx(np.abs(value - before).mean())
        assert found["ratio"] == pytest.approx(found["mae"] / found["persistence"])
        inside = (quantiles[:, 0] <= value) & (value <= quantiles[:, 6])
        assert found["coverage_90"] == pytest.approx(inside.mean())
        away = value[:, None] - quantiles
        loss = np.where(away > 0, np.array(SENSOR_LEVELS) * away, 0)
        loss += np.where(away < 0, (np.array(SENSOR_LEVELS) - 1) * away, 0)
        assert found["crps"] == pytest.approx(2 * loss.mean())
    # The values are 1, and the model computes in float32.
    assert (table.loc["b", "mae"] < 1e-6).all() and table.loc["b", "ratio"].isna().all()


def test_a_backtest_without_forecasts_has_no_figures(sensors: Sensors, pandas: Any) -> None:
    table = sensors.backtest(pandas.Series(signal(5)))
    assert list(table["horizon"]) == [*sensors.horizons, "season"]
    assert (table["n"] == 0).all() and table["mae"].isna().all()
    for skip in (-1, 1.5, "2"):
        with pytest.raises(ValueRefusedError, match="skip"):
            sensors.backtest(pandas.Series(signal(5)), skip=skip)  # type: ignore[arg-type]


def test_progress_is_reported_to_the_end(sensors: Sensors, pandas: Any) -> None:
    reports: list[tuple[int, int]] = []
    sensors.run(
        pandas.DataFrame({"a": signal(7), "b": 1.0}), lambda *report: reports.append(report)
    )
    assert reports == [(14, 14)]


def test_a_terminal_gets_one_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        said = io.StringIO()
        monkeypatch.setattr(said, "isatty", [False, True][is_terminal].__bool__)
        monkeypatch.setattr("sys.stderr", said)
        progress = TerminalProgress(iter([0.0, 1.0, 4.0, 5.0]).__next__)
        for n in (1000, 2000, 3000, 4000):
            progress(n, 4000)
        expected = "\r3,000 of 4,000 rows, 2 s left \r4,000 of 4,000 rows, 0 s left \n"
        assert said.getvalue() == expected * is_terminal
