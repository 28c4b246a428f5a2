"""Tables of polars and Arrow, given to Sensors: the forecasts are those of tables of pandas."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import DataError, Sensors
from edgefold.runtime.sensors.forecasts import BAND
from edgefold.runtime.sensors.tables import arrow_tables, pandas_tables, polars_tables
from edgefold.runtime.sensors.tables.sensor_table import seconds_since_1970
from tests.runtime.sensors.test_sensors_api import signal

pytestmark = pytest.mark.usefixtures("compiled_sensors")

START, N = datetime(2024, 1, 1), 60
TIMES = [START + at * timedelta(minutes=5) for at in range(N)]
VALUES = [None if at == 40 else value for at, value in enumerate(signal(N))]
FIGURES = ["value", *BAND, "log_density", "p_value"]


@pytest.fixture
def sensors() -> Iterator[Sensors]:
    with Sensors.open() as opened:
        yield opened


def polars_frame(unit: str = "us", zone: str | None = "Asia/Tokyo") -> Any:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    when = polars.Series(TIMES).dt.cast_time_unit(unit).dt.replace_time_zone(zone)
    return polars.DataFrame({"when": when, "a": VALUES, "name": ["x"] * N, "b": [1] * N})


def arrow_table(unit: str = "us", zone: str | None = "Asia/Tokyo") -> Any:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    when = arrow.array(TIMES, arrow.timestamp(unit, zone))
    chunks = arrow.chunked_array([VALUES[:25], VALUES[25:]], arrow.float64())
    return arrow.table({"when": when, "a": chunks, "name": ["x"] * N, "b": [1] * N})


MAKERS: dict[str, Callable[..., Any]] = {"polars": polars_frame, "arrow": arrow_table}


def numbers(table: Any, name: str) -> Any:
    """A column as numbers, NaN where it is null."""
    listed = table[name].to_pylist() if hasattr(table[name], "to_pylist") else [*table[name]]
    return np.array([math.nan if each is None else each for each in listed], float)


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_table_comes_back_as_one_of_its_library(
    library: str, unit: str, sensors: Sensors
) -> None:
    frame = MAKERS[library](unit)
    table = sensors.run(frame)
    assert type(table) is type(frame)
    assert list(getattr(table, "column_names", None) or table.columns) == [
        *("series", "time", *FIGURES, "alarm", "event")
    ]
    of_time = [
        each.schema.field(name).type if library == "arrow" else each.schema[name]
        for each, name in ((frame, "when"), (table, "time"))
    ]
    assert of_time[0] == of_time[1]
    in_python = "to_pylist" if library == "arrow" else "to_list"
    assert getattr(table["time"], in_python)() == getattr(frame["when"], in_python)() * 2
    assert getattr(table["series"], in_python)() == ["a"] * N + ["b"] * N
    assert getattr(table["value"], in_python)()[40] is None
    assert getattr(table["mean"], in_python)()[0] is None
    assert set(getattr(table["event"], in_python)()) == {""}
    assert set(getattr(table["alarm"], in_python)()) == {False}
    zone = -timedelta(hours=9) if library == "polars" else timedelta()  # Arrow's array is in UTC
    with Sensors.open() as other:
        rows = [other.step(t + zone, v) for t, v in zip(TIMES, VALUES, strict=True)]
    assert sensors.feed("a").pace == other_pace(rows) == 300.0
    for name in BAND:
        expected = np.array([getattr(row, name) for row in rows])
        assert np.array_equal(numbers(table, name)[:N], expected, equal_nan=True)


def other_pace(rows: list[Any]) -> float:
    pace: float = rows[-1].time - rows[-2].time
    return pace


@pytest.mark.parametrize("library", MAKERS)
def test_one_column_is_the_sensor_without_a_name(library: str, sensors: Sensors) -> None:
    table = sensors.run(MAKERS[library]()["a"])
    assert sensors.names == ("",) and len(table) == N
    assert "time" not in (getattr(table, "column_names", None) or table.columns)
    with Sensors.open() as other:
        rows = [other.step(None, value) for value in VALUES]
    assert np.array_equal(
        numbers(table, "q50"), np.array([row.q50 for row in rows]), equal_nan=True
    )


@pytest.mark.parametrize("library", MAKERS)
def test_the_scores_are_those_of_pandas(library: str, sensors: Sensors) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    found = sensors.backtest(MAKERS[library](zone=None), skip=20)
    frame = pandas.DataFrame({"a": VALUES, "b": 1}, index=pandas.DatetimeIndex(TIMES), dtype=float)
    with Sensors.open() as other:
        expected = other.backtest(frame, skip=20)
    for name in ("n", "mae", "persistence", "ratio", "coverage_90", "crps"):
        assert np.array_equal(numbers(found, name), expected[name], equal_nan=True)
    listed = found["horizon"]
    horizons = listed.to_pylist() if library == "arrow" else listed.to_list()
    assert horizons == [*map(str, expected["horizon"])]


@pytest.mark.parametrize("library", MAKERS)
def test_times_may_be_days_or_texts_and_some_may_lack(library: str, sensors: Sensors) -> None:
    days = [(START + at * timedelta(days=1)).date() for at in range(30)]
    texts: list[Any] = [str(day) for day in days]
    missing: list[Any] = [*days[:20], None, *days[21:]]
    for number, times in enumerate((days, texts, missing)):
        table = as_table(library, {"d": times, f"v{number}": signal(30)})
        if times is missing:
            with pytest.warns(UserWarning, match="1 of 30 rows"):
                table = sensors.run(table)
            assert table["event"][20] in ("refused", pyarrow_text("refused"))
        else:
            sensors.run(table)
        assert sensors.feed(f"v{number}").pace == 86400.0


def as_table(library: str, columns: dict[str, Any]) -> Any:
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    return pytest.importorskip("pyarrow").table(columns)


def pyarrow_text(text: str) -> Any:
    arrow = sys.modules.get("pyarrow")
    return text if arrow is None else arrow.scalar(text)


@pytest.mark.parametrize("library", MAKERS)
def test_tables_that_cannot_be_forecast_are_refused(library: str, sensors: Sensors) -> None:
    for columns, reason in (
        ({"d": TIMES[::-1], "v": [1.0] * N}, "new to old"),
        ({"d": TIMES, "v": ["x"] * N}, "no column of numbers"),
    ):
        with pytest.raises(DataError, match=reason):
            sensors.run(as_table(library, columns))
    with pytest.raises(DataError, match="numbers"):
        sensors.run(as_table(library, {"v": ["x"]})["v"])


def test_two_columns_of_arrow_with_one_name_are_refused(sensors: Sensors) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(DataError, match="one name"):
        sensors.run(arrow.Table.from_arrays([arrow.array([1.0])] * 2, ["a", "a"]))


def test_dates_are_rounded_as_those_of_datetime() -> None:
    """So a row of Parquet and the same row of CSV have the same time."""
    random = np.random.default_rng(1)
    microseconds = random.integers(0, 4_000_000_000_000_000, 2000)
    epoch = datetime(1970, 1, 1)
    expected = [
        (timedelta(microseconds=int(n)) + epoch - epoch).total_seconds() for n in microseconds
    ]
    for unit, counts in (("us", microseconds), ("ns", microseconds * 1000)):
        assert seconds_since_1970(counts, unit).tolist() == expected


def test_no_library_of_tables_is_imported_without_a_table() -> None:
    """A board has none of them."""
    assert {pandas_tables.__name__, polars_tables.__name__, arrow_tables.__name__} <= {*sys.modules}
    code = (
        "import sys; from edgefold.runtime import Sensors\n"
        "with Sensors.open() as sensors: sensors.step_rows(None, [1.0])\n"
        "assert not {'pandas', 'polars', 'pyarrow'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
