"""Base of the rules that exist once, as typed Python, and from which C is generated.

    class Runs(KeptNumbers):            struct runs {              the array of a snapshot
        KEPT = ("rows", "tried")            double rows;               [rows, tried[0], ...]
        rows: float = 100.0                 double tried[12];
        tried: list[float] = filled(0.0, 12)
                                        };

A rule's memory has a fixed size: its fields are numbers, lists whose length never changes, and
other rules. A rule replaces its lists and never changes them in place, so that copies share them.
`edgefold.export.typed_python` defines the subset of Python in which rules are written, and makes C
of them; the functions of this module exist in C, too (`export/typed_python/c/scalars.h`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from edgefold.runtime.arrays import Array

Rule = TypeVar("Rule", bound="KeptNumbers")
Number = TypeVar("Number", bound=float)


class KeptNumbers:
    """Gives a class fields with default values, copies, and an array of its numbers for snapshots.

    The fields are the annotated names of the class, with their default values: a number, a text of
    a `Literal` type, a list of numbers, or another `KeptNumbers`, of which each object has its own.
    `KEPT` names the fields that a snapshot keeps, in the order of its array: numbers, lists and
    other `KeptNumbers`. All other fields are computed from these by `restored`, or last for one
    call only.
    """

    KEPT: ClassVar[Sequence[str]] = ()
    _DEFAULTS: ClassVar[dict[str, Any]] = {}
    _PARTS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = {name: cls.__dict__[name] for name in cls.__annotations__ if name in cls.__dict__}
        cls._DEFAULTS = {**cls._DEFAULTS, **own}
        parts = (name for name, value in cls._DEFAULTS.items() if isinstance(value, KeptNumbers))
        cls._PARTS = tuple(parts)

    def __init__(self) -> None:
        self.__dict__.update(self._DEFAULTS)
        for name in self._PARTS:
            self.__dict__[name] = self.__dict__[name].copy()
        self.restored()

    def copy(self: Rule) -> Rule:
        """Return a copy; a change of one of the two does not change the other."""
        other = object.__new__(type(self))
        other.__dict__ = copied = self.__dict__.copy()
        for name in self._PARTS:
            copied[name] = copied[name].copy()
        return other

    def numbers(self) -> Array:
        """Return the kept numbers in the order of `KEPT`, as float64 of shape (n,)."""
        return np.array(list(self._each()), np.float64)

    def take(self, numbers: Array) -> None:
        """Set the fields from an array that `numbers` returned before.

        A restored number has the type of the field's default: an int stays an int. After an error
        the object is half restored and must not be used.

        Raises:
            ValueError, OverflowError: The array holds more or fewer numbers than the fields, or a
                number cannot be of its field's type.
        """
        n = len(self.numbers())
        if len(numbers) != n:
            raise ValueError(f"{len(numbers)} numbers stand for {n}")
        self._take(iter(numbers.tolist()))

    def restored(self) -> None:
        """Compute the fields that are not kept from those that are; a class may override this."""

    def _each(self) -> Iterator[float]:
        for name in self.KEPT:
            value = getattr(self, name)
            if isinstance(value, KeptNumbers):
                yield from value._each()
            else:
                yield from map(float, value if isinstance(value, list) else [value])

    def _take(self, numbers: Iterator[float]) -> None:
        for name in self.KEPT:
            value: Any = getattr(self, name)
            if isinstance(value, KeptNumbers):
                value._take(numbers)
            elif isinstance(value, list):
                setattr(self, name, [type(item)(next(numbers)) for item in value])
            else:
                setattr(self, name, type(value)(next(numbers)))
        self.restored()


def filled(number: Number, n: int) -> list[Number]:
    """Return a list of n equal numbers: the default value of a field."""
    return [number] * n


def replaced(numbers: list[Number], at: int, number: Number) -> list[Number]:
    """Return a copy of a list with another number at one place."""
    copied = [*numbers]
    copied[at] = number
    return copied


def shifted(numbers: list[Number], number: Number) -> list[Number]:
    """Return a copy of a list without its first number and with another one at its end."""
    return [*numbers[1:], number]


def ordered(numbers: list[Number], n: int) -> list[Number]:
    """Return a copy of a list of which the first n numbers are sorted, the smallest first."""
    return [*sorted(numbers[:n]), *numbers[n:]]
