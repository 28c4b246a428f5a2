from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.dates import END_S, FIRST_S, parse_date, require_time_format

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1958-03", datetime(1958, 3, 1)),
        ("1958-03-29", datetime(1958, 3, 29)),
        ("2001-12-29T06:30", datetime(2001, 12, 29, 6, 30)),
        ("2001-12-29 06:30:15", datetime(2001, 12, 29, 6, 30, 15)),
        ("2001-12-29T06:30:15.5Z", datetime(2001, 12, 29, 6, 30, 15, 500000)),
        ("2001-12-29T06:30:15.123456789", datetime(2001, 12, 29, 6, 30, 15, 123456)),
        ("2001-12-29T06:30:00+02:00", datetime(2001, 12, 29, 4, 30)),
        ("2001-12-29t06:30-0230", datetime(2001, 12, 29, 9, 0)),
        ("2001-12-29 06:30+02", datetime(2001, 12, 29, 4, 30)),
        ("2001/12/29", datetime(2001, 12, 29)),
        ("2001/12/29 06:30z", datetime(2001, 12, 29, 6, 30)),
        ("29.12.2001", datetime(2001, 12, 29)),
        ("29.12.2001 06:30:15", datetime(2001, 12, 29, 6, 30, 15)),
    ],
)
def test_dates_are_seconds_since_1970_in_utc(text: str, moment: datetime) -> None:
    assert parse_date(text) == moment.replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "20200105",
        "2020-W05-3",
        "2020W053",
        "20200105T101112",
        "2020-01-01T10.5",
        "2020-01-01T10:00.5",
        "2020-01-01.123",
        "2020-01-01T10:00:00,5",
        "2020-01-01,12:30",
        "2020-01-01\r12:30",
        "2020-01-01\x1b12:30",
        "2020-01-01  12:30",
        "2020-01-01T12",
        "2020-01-01Z",
        "2020-13-01",
        "2020-02-30",
        "2020-01-01T24:00",
        "2020-01-01T10:00:60",
        "2020-01-01T10:00+25:00",
        "0000-01-01",
        "1/2/2020",
        "01/02/2020",
        "1.2.2020",
        "2020-1-1",
        "\u0662\u0660\u0662\u0660-01-01",
        "1958-03T10:00",
        "noon",
    ],
)
def test_what_is_no_documented_date_is_refused_on_every_python(text: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_date(text)
    assert str(error.value).isprintable()


@given(st.datetimes(timezones=ZONES), st.sampled_from(["T", "t", " "]))
def test_dates_come_back_as_they_were_written(moment: datetime, between: str) -> None:
    text = moment.isoformat(between)
    expected = moment.timestamp()
    if FIRST_S <= expected < END_S:  # its offset may lead out of the years 1 to 9999
        assert parse_date(text) == expected
    assert parse_date(f"{moment:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")) == (
        moment.replace(tzinfo=timezone.utc).timestamp()
    )


@given(st.text("0123456789-/.:TtZz+ ,\x1b\r W", max_size=24))
def test_a_text_is_a_date_or_refused_with_a_printable_reason(text: str) -> None:
    try:
        seconds = parse_date(text)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert FIRST_S <= seconds < END_S


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("253402300800", "unix"),
        ("1700000000000", "unix"),
        ("-62135596801", "unix"),
        ("253402300800000", "unix-ms"),
        ("1e90", "unix-ms"),
        ("9999-12-31T23:59:59-02:00", None),
        ("0001-01-01T00:00:00+02:00", None),
    ],
)
def test_a_time_beyond_the_years_that_a_date_can_have_is_refused(
    text: str, form: str | None
) -> None:
    with pytest.raises(ValueError):
        parse_date(text, form)


def test_the_last_second_that_a_date_can_have_is_read() -> None:
    assert parse_date("253402300799", "unix") == parse_date("9999-12-31T23:59:59")
    assert parse_date("-62135596800000", "unix-ms") == parse_date("0001-01-01")


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("01/02/2024", ["'%d/%m/%Y'", "'%m/%d/%Y'"]),
        ("13/02/2024 9:05", ["'%d/%m/%Y %H:%M'"]),
        ("2/13/24 9:05 PM", ["'%m/%d/%y %I:%M %p'"]),
        ("01-02-2024T10:00:00.5+0200", ["'%d-%m-%YT%H:%M:%S.%f%z'", "'%m-%d-%YT%H:%M:%S.%f%z'"]),
        ("2024-1-2 10:00", ["'%Y-%m-%d %H:%M'"]),
        ("20240102", ["'%Y%m%d'"]),
    ],
)
def test_a_refusal_names_the_form_that_reads_the_text(text: str, forms: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        parse_date(text)
    assert [form in str(error.value) for form in forms] == [True] * len(forms)
    assert str(error.value).count("--time-format") == len(forms)
    for form in forms:
        assert parse_date(text, form.strip("'")) > 0


@pytest.mark.parametrize(
    ("text", "form"), [("1580000000", "unix"), ("1580000000.0", "unix"), ("1.58e12", "unix-ms")]
)
def test_a_count_since_1970_is_a_date_where_asked(text: str, form: str) -> None:
    assert parse_date(text, form) == 1.58e9
    with pytest.raises(ValueError, match=f"--time-format {form} reads"):
        parse_date(text)
    require_time_format(form)


@pytest.mark.parametrize("form", ["%d/%m", "%H:%M", "%Q", "%", "%Y-%Y", "%d.%m.%Y %I:%M", "%Y %Z"])
def test_a_form_that_tells_no_moment_is_refused(form: str) -> None:
    with pytest.raises(DataError):
        require_time_format(form)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y", "%y%j %H", "%b %d, %Y %I:%M %p", "%Y-%m-%d%z"])
def test_a_form_that_tells_a_moment_is_taken(form: str) -> None:
    require_time_format(form)
