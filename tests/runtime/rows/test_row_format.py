from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from edgefold.cli.options.flags import add_flags, options_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.row_format import (
    FormatOptions,
    RowFormat,
    kept_columns,
    kept_format,
)


def parsed(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser, FormatOptions)
    options: FormatOptions = options_of(FormatOptions, parser.parse_args(words))
    return options.given


def test_a_format_survives_json() -> None:
    form = RowFormat(";", ",", "%d.%m.%Y %H:%M", ("-999",))
    assert RowFormat.from_json(json.loads(json.dumps(form.to_json()))) == form
    assert RowFormat.from_json({}) == RowFormat()


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        {"colour": 1},
        {"delimiter": 1},
        {"delimiter": ",,"},
        {"delimiter": "5"},
        {"decimal": "'"},
        {"decimal": None, "time_format": "%Q"},
        {"time_format": 3},
        {"missing": "NA"},
        {"missing": [1]},
    ],
)
def test_an_impossible_format_is_refused(form: object) -> None:
    with pytest.raises(DataError):
        RowFormat.from_json(form)


def test_an_option_overrides_what_the_task_keeps_and_the_rest_stays() -> None:
    task = {"format": RowFormat(";", ",").to_json()}
    assert kept_format(task, parsed()) == RowFormat(";", ",")
    assert kept_format(task, parsed("--decimal", ".")) == RowFormat(";", ".")
    words = ("--delimiter", "tab", "--time-format", "%d/%m/%Y", "--missing=-999,off")
    expected = RowFormat("\t", ".", "%d/%m/%Y", ("-999", "off"))
    assert kept_format({}, parsed(*words)) == expected


@pytest.mark.parametrize(
    "words",
    [("--delimiter", "::"), ("--delimiter", "7"), ("--decimal", "x"), ("--time-format", "%H:%M")],
)
def test_impossible_options_are_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(*words)


@pytest.mark.parametrize("names", [5, ["a"], ["a", 1], "ab", ["a", "b", "c"]])
def test_damaged_names_of_columns_are_refused(names: object) -> None:
    with pytest.raises(DataError):
        kept_columns({"columns": names})
    assert kept_columns({}) == () and kept_columns({"columns": ["a", "b"]}) == ("a", "b")


@pytest.mark.parametrize("text", ["-999", "-999,0", "-999,00", "-9,99e2"])
def test_a_missing_word_that_is_a_number_stands_for_this_number(text: str) -> None:
    format = RowFormat(decimal=",", missing=("-999", "x"))
    assert format.is_missing(text) and format.is_missing("x")
    assert not format.is_missing("-999,5") and not format.is_missing("-99")
    assert not RowFormat(missing=("-999",)).is_missing("-999,0")
