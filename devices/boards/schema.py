"""A profile's JSON as a form: its fields handed out checked, and those nobody asked for refused.

What the fields mean is `boards`' part.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

CONFIRMED, DERIVED, UNCONFIRMED, UNKNOWN = "confirmed", "derived", "unconfirmed", "unknown"
STATUSES = (CONFIRMED, DERIVED, UNCONFIRMED)
"""Of what is known: read in the source; follows from such by the formula; recalled."""
EXACT = 1e-9  # relative: a formula and its value are the same number, both in double precision
SMALLEST, LARGEST = 1e-3, 1e24
"""Of any figure: what lies beyond is a slip of units or of the keyboard."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, where it comes from and how sure that is; the value is None where it is unknown."""

    value: float | None
    source: str | None
    status: str = UNCONFIRMED
    formula: str | None = None


class FieldError(Exception):
    """What is wrong with a field, in words; the file's name comes on top."""


class Form:
    """An object of a profile: hands out its fields checked, and refuses those nobody asked for."""

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise FieldError(f"{place} is {shown(value)}, not an object")
        self._left = dict(value)
        self._place = place

    def path(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place != "the profile" else name

    def take(self, name: str) -> Any:
        if name not in self._left:
            raise FieldError(f"{self.path(name)} is missing")
        return self._left.pop(name)

    def text(self, name: str) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not value.strip():
            raise FieldError(f"{self.path(name)} is {shown(value)}, not a text")
        return value

    def flag(self, name: str) -> bool:
        value = self.take(name)
        if not isinstance(value, bool):
            raise FieldError(f"{self.path(name)} is {shown(value)}, neither true nor false")
        return value

    def number(self, name: str) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not SMALLEST <= value <= LARGEST:
            raise FieldError(
                f"{self.path(name)} is {shown(value)}, neither a positive number nor null "
                f"({SMALLEST:g} to {LARGEST:g} is believed)"
            )
        return float(value)

    def figure(self, name: str) -> Figure:
        form = self.inner(name)
        value, source, formula = form.number("value"), form.take("source"), None
        if value is None:
            if form.take("status") != UNKNOWN:
                raise FieldError(f'{self.path(name)}.status of a null value is "{UNKNOWN}"')
            form.end()
            return Figure(None, source, UNKNOWN)
        if not (isinstance(source, str) and source.strip()):
            raise FieldError(
                f"{self.path(name)}.source is {shown(source)}: say where the value comes from, or "
                "make the value null"
            )
        status = form.status()
        if status == DERIVED or (status == UNCONFIRMED and form.holds("formula")):
            formula = form.text("formula")
            result = computed(formula, form.path("formula"))
            if not math.isclose(result, value, rel_tol=EXACT):
                raise FieldError(
                    f"{self.path(name)}.value is {value:.12g}, but its formula {formula} gives "
                    f"{result:.12g}"
                )
        form.end()
        return Figure(value, source, status, formula)

    def status(self) -> str:
        value = self.take("status")
        if value not in STATUSES:
            raise FieldError(
                f"{self.path('status')} is {shown(value)}, none of {', '.join(STATUSES)}"
            )
        return str(value)

    def holds(self, name: str) -> bool:
        return name in self._left

    def inner(self, name: str) -> Form:
        return Form(self.take(name), self.path(name))

    def items(self, name: str) -> list[Any]:
        value = self.take(name)
        if not isinstance(value, list):
            raise FieldError(f"{self.path(name)} is {shown(value)}, not a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise FieldError(f"{self.path(name)} is not a list of texts")
        return tuple(values)

    def inners(self, name: str) -> list[Form]:
        return [Form(v, f"{self.path(name)}[{i}]") for i, v in enumerate(self.items(name))]

    def end(self) -> None:
        if self._left:
            raise FieldError(f"{self.path(sorted(self._left)[0])} is no field of a profile")


def computed(formula: str, place: str) -> float:
    """Of numbers joined by * and /, from the left."""
    result = 1.0
    try:
        for factor in formula.split("*"):
            first, *divisors = map(float, factor.split("/"))
            result *= first
            for divisor in divisors:
                result /= divisor
    except (ValueError, ZeroDivisionError):
        raise FieldError(f"{place} is {shown(formula)}: write numbers joined by * and /") from None
    return result


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    return json.dumps(value)[:40]
