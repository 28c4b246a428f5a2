from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.series.series_file import Series, SeriesReport, _longest_order, read_series

DATA = Path(__file__).parents[3] / "data"
DAYS = [f"2001-01-{day:02},{day}" for day in range(1, 31)]


def read(tmp_path: Path, lines: list[str], **options: object) -> Series:
    path = tmp_path / "series.csv"
    path.write_text("\n".join(["time,value", *lines]) + "\n")
    return read_series(path, **options)  # type: ignore[arg-type]


def mend(tmp_path: Path, lines: list[str]) -> Series:
    return read(tmp_path, lines, gaps="interpolate", duplicates="keep-first", bad_rows="skip")


def test_shipped_series_are_clean_and_whole() -> None:
    co2 = read_series(DATA / "co2_weekly.csv")
    assert (len(co2.values), co2.clock, co2.report) == (2284, "date", SeriesReport())
    assert co2.values[[0, -1]].tolist() == [316.1, 371.5]
    assert len(read_series(DATA / "sea_surface_monthly.csv").values) == 732
    sunspots = read_series(DATA / "sunspots_yearly.csv")
    assert (len(sunspots.values), sunspots.clock, sunspots.times[0]) == (309, "number", 1700)


def test_held_out_co2_has_the_stated_baselines() -> None:
    values = read_series(DATA / "co2_weekly.csv").values
    held_out = np.arange(int(0.8 * len(values)), len(values))
    persistence = values[held_out] - values[held_out - 1]
    last_year = values[held_out - 52] + values[held_out - 1] - values[held_out - 53]
    assert np.sqrt(np.mean(persistence**2)) == pytest.approx(0.513, abs=5e-4)
    assert np.sqrt(np.mean((values[held_out] - last_year) ** 2)) == pytest.approx(0.664, abs=6e-4)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1,1", "2,2", "3,text", "4,4"], "line 4: column value is 'text'"),
        (["1,1", "2,2", "2,3", "3,3"], "line 4: the time 2 is also that of line 3"),
        (["1,1", "3,2", "2,3", "4,4", "5,5"], "line 3: the time 3 is 2 in units"),
        (["1,1", "2,2", "3,3", "6,4"], "line 5: 2 rows are missing between 3 and 6"),
        (["1,1", "2,2", "3,NA", "4,4", "5,5"], "line 4: column value holds no value but 'NA'"),
        (["1,1", "2,2", "3,3", "3.1,4"], "line 5: the time 3.1 comes 0.1 of a usual step"),
        (["1,1"], "holds 1 rows"),
        ([], "holds 0 rows"),
    ],
)
def test_a_series_that_is_not_clean_is_refused_at_its_line(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, lines)
    message = str(error.value)
    assert words in message and str(tmp_path) in message and "\n" not in message


def test_the_first_ten_bad_lines_come_at_once_and_the_rest_is_counted(tmp_path: Path) -> None:
    lines = [f"{i},{'bad' if i % 3 == 0 else i}" for i in range(45)]
    with pytest.raises(DataError) as error:
        read(tmp_path, lines, gaps="interpolate")
    message = str(error.value)
    assert [f"line {line}:" in message for line in (2, 5, 29, 32)] == [True, True, True, False]
    assert "15 places" in message and "and 5 more" in message and "--bad-rows skip" in message


def test_several_kinds_of_faults_are_mended_by_one_option(tmp_path: Path) -> None:
    lines = [*DAYS[:5], "2001-01-05,77", "2001-01-06,", "oops", *DAYS[6:], DAYS[3]]
    with pytest.raises(DataError, match="--mend"):
        read(tmp_path, lines)
    series = mend(tmp_path, lines)
    assert series.values.tolist() == [n for n in range(1, 31) if n != 6]
    assert series.report == SeriesReport(
        n_gaps=1, n_missing=1, n_empty=1, n_repeats=1, n_duplicates=1, n_skipped=1
    )


def test_no_row_is_made_up_in_a_gap(tmp_path: Path) -> None:
    lines = ["2001-01-01,1", "2001-01-02,2", "2001-01-03,3", "2001-01-06,9"]
    series = read(tmp_path, lines, gaps="interpolate")
    assert series.values.tolist() == [1, 2, 3, 9]
    assert np.diff(series.times).tolist() == [86400.0, 86400.0, 3 * 86400.0]
    assert (series.report.n_gaps, series.report.n_missing) == (1, 2)


@pytest.mark.parametrize(("year", "counts"), [("2003", (1, 700, 0)), ("2009", (0, 0, 1))])
def test_a_long_pause_is_no_reason_to_refuse(
    tmp_path: Path, year: str, counts: tuple[int, int, int]
) -> None:
    lines = [*DAYS, *(line.replace("2001", year) for line in DAYS)]
    report = read(tmp_path, lines, gaps="interpolate").report
    assert (report.n_gaps, report.n_missing, report.n_pauses) == counts


def test_rows_that_come_again_are_dropped_and_counted_without_an_option(tmp_path: Path) -> None:
    series = read(tmp_path, [*DAYS[:20], *DAYS[10:]])
    assert series.values.tolist() == list(range(1, 31))
    assert series.report == SeriesReport(n_repeats=10)


@pytest.mark.parametrize(("which", "value"), [("keep-first", 5.0), ("keep-last", 55.0)])
def test_one_of_two_rows_of_a_time_is_kept(tmp_path: Path, which: str, value: float) -> None:
    series = read(tmp_path, [*DAYS[:5], "2001-01-05,55", *DAYS[5:]], duplicates=which)
    assert series.values[4] == value and len(series.values) == 30


@pytest.mark.parametrize("year", ["2018", "1984"])
def test_a_row_of_a_wrong_year_is_named_and_not_the_rows_after_it(
    tmp_path: Path, year: str
) -> None:
    lines = [*DAYS[:10], DAYS[10].replace("2001", year), *DAYS[11:]]
    with pytest.raises(DataError) as error:
        read(tmp_path, lines, gaps="interpolate")
    message = str(error.value)
    assert "line 12: " in message and "17 years" in message and "line 13" not in message
    series = mend(tmp_path, lines)
    assert series.values.tolist() == [n for n in range(1, 31) if n != 11]
    assert (series.report.n_skipped, series.report.n_missing) == (1, 1)


def test_a_file_from_newest_to_oldest_is_told_to_be_sorted(tmp_path: Path) -> None:
    for options in ({}, {"bad_rows": "skip", "gaps": "interpolate"}):
        with pytest.raises(DataError, match="holds 1 rows"):
            read(tmp_path, DAYS[::-1], **options)
    with pytest.raises(DataError, match="sort the rows"):
        read(tmp_path, [*DAYS[27:], *DAYS[:27][::-1]])


def test_skipped_lines_and_sentinels_leave_gaps_that_need_no_second_option(tmp_path: Path) -> None:
    lines = [*DAYS[:7], "2001-01-08,-999", *DAYS[8:]]
    series = read(tmp_path, lines, gaps="interpolate", format=RowFormat(missing=("-999",)))
    assert 8 not in series.values and series.report.n_empty == series.report.n_missing == 1
    series = read(tmp_path, [*DAYS[:7], "2001-01-08,broken", *DAYS[8:]], bad_rows="skip")
    assert 8 not in series.values and series.report.n_skipped == series.report.n_missing == 1


def test_lines_that_mostly_cannot_be_used_are_refused_even_when_skipped(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="more lines cannot be used"):
        read(tmp_path, [*DAYS[:10], *["?;?"] * 11], bad_rows="skip")


@given(st.lists(st.integers(0, 30), max_size=9))
def test_as_many_rows_as_possible_stay_in_order(times: list[int]) -> None:
    kept = _longest_order(times)
    chosen = [times[place] for place in kept]
    assert kept == sorted(set(kept)) and chosen == sorted(chosen)
    longest = 0
    for bits in range(2 ** len(times)):
        part = [time for place, time in enumerate(times) if bits >> place & 1]
        longest = max(longest, len(part) * (part == sorted(part)))
    assert len(kept) == longest


ROUGH: dict[str, tuple[str, Callable[[int, int], str], dict[str, str]]] = {
    "dots and a decimal comma": (
        "Zeit;Wert",
        lambda d, v: f"{d:02}.01.2001 10:00;{v},5",
        {"decimal": ","},
    ),
    "slashes": ("a,b", lambda d, v: f"2001/01/{d:02},{v}.5", {}),
    "months first": (
        "a,b",
        lambda d, v: f"01/{d:02}/2001 10:00,{v}.5",
        {"time_format": "%m/%d/%Y %H:%M"},
    ),
    "tabs": ("a\tb", lambda d, v: f"2001-01-{d:02}\t{v}.5", {}),
    "bars": ("a|b", lambda d, v: f"2001-01-{d:02}|{v}.5", {"delimiter": "|"}),
    "JSON": ("", lambda d, v: f'{{"value": {v}.5, "time": "2001-01-{d:02}", "x": [1]}}', {}),
}


@pytest.mark.parametrize("name", ROUGH)
def test_rough_files_are_read_with_one_option_at_most(tmp_path: Path, name: str) -> None:
    header, line, options = ROUGH[name]
    path = tmp_path / "rough"
    path.write_text("\n".join([header, *(line(d, d) for d in range(1, 31))]) + "\n")
    series = read_series(path, format=RowFormat(**options))  # type: ignore[arg-type]
    assert series.values.tolist() == [d + 0.5 for d in range(1, 31)]
    assert np.diff(series.times).tolist() == [86400.0] * 29 and series.clock == "date"


def test_a_date_that_can_be_read_in_two_ways_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, [f"{d:02}/01/2024,{d}" for d in range(1, 13)])
    assert "--time-format '%d/%m/%Y'" in str(error.value)
    assert "--time-format '%m/%d/%Y'" in str(error.value)


def test_a_date_without_signs_is_no_plain_number(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--time-format %Y%m%d"):
        read(tmp_path, [f"202001{d:02},{d}" for d in range(1, 31)])


def test_any_spoilt_file_is_mended_or_refused_with_one_line(tmp_path: Path) -> None:
    source = random.Random(5)
    spoil: list[Callable[[str], str]] = [
        lambda line: line.replace("2001", "2018"),
        lambda line: line.replace("2001", "1960"),
        lambda line: line[: source.randrange(len(line))],
        lambda line: line + "9",
        lambda line: line.rpartition(",")[0] + ",",
        lambda line: line + "\n" + line,
        lambda line: "",
        lambda line: "\x1b[31m" + line,
    ]
    n_read = 0
    for _ in range(300):
        lines = [source.choice(spoil)(d) if source.random() < 0.15 else d for d in DAYS]
        try:
            series = mend(tmp_path, lines)
        except DataError as error:
            assert str(error).isprintable()
            continue
        n_read += 1
        assert (np.diff(series.times) > 0).all() and np.isfinite(series.values).all()
    assert n_read > 250
