"""Describe how the fields of a file's rows are written, and define the options that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.runtime.rows.csv_fields import NUMBER, with_point
from edgefold.runtime.rows.dates import require_time_format

MISSING = ("", "na", "n/a", "#n/a", "null", "none", "nan", "-nan", "-", "?")
"""Lists the words, in small letters, that stand in a cell without a value."""
DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " "}
NAMES = ("delimiter", "decimal", "time_format", "missing")


@dataclass(frozen=True, slots=True)
class RowFormat:
    """Describes how the rows of an input are written.

    Attributes:
        delimiter: The character between the fields of a CSV line; None: it is found in the input.
        decimal: The character before a number's fraction. Numbers of JSON always have a point.
        time_format: How dates are written, as for `datetime.strptime`, or `unix` and `unix-ms` for
            seconds and thousandths of a second since 1970. None: plain numbers and the forms of
            dates that can be read in only one way are read.
        missing: Words that stand in a cell without a value, in addition to `MISSING`, which lists
            "", "na", "null", "nan", "-", "?" and similar ones.
    """

    delimiter: str | None = None
    decimal: Literal[".", ","] = "."
    time_format: str | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            require_delimiter(self.delimiter)
        if self.decimal not in (".", ","):
            raise DataError(f"the decimal sign is {self.decimal!r}; it must be . or a comma.")
        if self.time_format is not None:
            require_time_format(self.time_format)

    def is_missing(self, text: str) -> bool:
        """Return whether a cell, given without spaces around its text, holds no value.

        A word of `missing` that is a number stands for this number however it is written.
        """
        if text.lower() in MISSING or text in self.missing:
            return True
        if not self.missing or not NUMBER.fullmatch(with_point(text, self.decimal)):
            return False
        number = float(with_point(text, self.decimal))  # -999 stands for -999,0 as well
        return any(NUMBER.fullmatch(word) and float(word) == number for word in self.missing)

    def to_json(self) -> dict[str, Any]:
        """Return the settings by name as JSON values, for the description of a trained task."""
        return {**asdict(self), "missing": list(self.missing)}

    @classmethod
    def from_json(cls, form: object) -> RowFormat:
        """Rebuild the format from what `to_json` returned; a missing setting has its default.

        Raises:
            DataError: A setting is unknown or impossible.
        """
        if not isinstance(form, Mapping) or not set(form) <= set(NAMES):
            raise DataError(f"the format of rows must have the settings {', '.join(NAMES)} alone.")
        missing = form.get("missing", ())
        texts = [form.get(name) for name in NAMES[:3]]
        if not isinstance(missing, (list, tuple)) or not all(
            isinstance(text, str) for text in (*missing, *(t for t in texts if t is not None))
        ):
            raise DataError("the format of rows holds something else than texts; give texts.")
        return cls(**{**form, "missing": tuple(missing)})


def kept_format(task: Mapping[str, Any], given: Mapping[str, Any]) -> RowFormat:
    """Return the row format that a trained task keeps, changed by the settings that are given now.

    Args:
        task: The description of the task, from its bundle.
        given: The settings that replace those of the task, by name.

    Raises:
        DataError: The task's format is damaged.
    """
    kept = task.get("format", {})
    RowFormat.from_json(kept)
    return RowFormat.from_json({**kept, **given})


def kept_columns(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the two columns that a series was trained on; () if none are kept.

    Raises:
        DataError: The task holds something other than two names.
    """
    names = task.get("columns", ())
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise DataError("the task's columns are no names; export the bundle again.")
    if len(names) not in (0, 2):
        raise DataError(f"the task keeps {len(names)} columns and a series has 2; export it again.")
    return tuple(names)


def require_delimiter(delimiter: str) -> None:
    """Raise DataError unless a delimiter is one character that is in no number, date or word."""
    if len(delimiter) != 1 or delimiter.isalnum() or delimiter in "\"'\r\n\0.+-_:/{":
        raise DataError(
            f"the delimiter is {delimiter!r}; it must be one character that is in no number or "
            "date, such as ; or , (type tab and space as words)."
        )


def _delimiter(text: str) -> str:
    sign = DELIMITERS.get(text, text)
    require_delimiter(sign)
    return sign


def _time_format(text: str) -> str:
    require_time_format(text)
    return text


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Holds the settings of a `RowFormat` that a user gives; None means that one is not given."""

    delimiter: str | None = option(
        "what stands between the columns of a CSV file: a sign, tab or space (default: found in "
        "its first line, one of , ; tab |)",
        "SIGN",
        parse=_delimiter,
    )
    decimal: Literal[".", ","] | None = option(
        "what stands before a number's fraction (default .); the output always has a point",
    )
    time_format: str | None = option(
        "how dates are written, such as '%d/%m/%Y %H:%M' (default: 2024-02-01, 2024/02/01 or "
        "01.02.2024 for the 1st of February, with or without a time and an offset); unix and "
        "unix-ms are seconds and thousandths since 1970",
        "FORM",
        parse=_time_format,
    )
    missing: Sequence[str] | None = option(
        "what stands in a cell without a value besides nothing, NA, N/A, null, none, nan, - and ?, "
        "such as --missing=-999",
        "WORD,..",
        parse=lambda text: text.split(","),
    )

    @property
    def given(self) -> dict[str, Any]:
        """Return the settings that the user gave, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}
