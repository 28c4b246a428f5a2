"""Turn the attributes that an object keeps in a snapshot into arrays, and restore them from arrays.

attributes that are numbers, in a fixed order    <──>  one array of float64
arrays of a part, such as a history before a gap <──>  the same arrays, their names with a prefix
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError

Numbers = TypeVar("Numbers", bound="KeptNumbers")


class KeptNumbers:
    """Lets a class keep its numbers in a snapshot as one array, and restore them.

    A class lists the names of these attributes in `KEPT`. Each attribute is a number, a list of
    numbers whose length never changes, or another `KeptNumbers`. A restored number has the type
    that it has in a new object: an int stays an int.

    A class replaces its lists and never changes them in place, so that copies may share them.
    `PARTS` names the attributes that are `KeptNumbers`, which each copy has of its own.
    """

    KEPT: ClassVar[Sequence[str]] = ()
    PARTS: ClassVar[Sequence[str]] = ()

    def copy(self: Numbers) -> Numbers:
        """Return a copy; a change of one of the two does not change the other."""
        other = object.__new__(type(self))
        other.__dict__ = copied = self.__dict__.copy()
        for name in self.PARTS:
            copied[name] = copied[name].copy()
        return other

    def numbers(self) -> Array:
        """Return the attributes' numbers in the order of `KEPT`, as float64 of shape (n,)."""
        return np.array(list(self._each()), np.float64)

    def take(self, numbers: Array) -> None:
        """Set the attributes from an array that `numbers` returned before.

        After an error the object is half restored and must not be used.

        Raises:
            ValueError, OverflowError: The array holds more or fewer numbers than the attributes, or
                a number cannot be of its attribute's type.
        """
        n = len(self.numbers())
        if len(numbers) != n:
            raise ValueError(f"{len(numbers)} numbers stand for {n}")
        self._take(iter(numbers.tolist()))

    def restored(self) -> None:
        """Compute the other attributes from the restored numbers; a class may override this."""

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


def as_part(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the same arrays, with `prefix` put before each name."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def part_of(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin with the prefix, without the prefix in their names.

    This undoes `as_part`.
    """
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def require_same(
    arrays: Mapping[str, Array], mine: Mapping[str, Array], what: str = "sensor"
) -> None:
    """Refuse a snapshot that lacks an expected array, or has it with another shape or type.

    Args:
        arrays: The arrays of the snapshot by name; names that are not expected do no harm.
        mine: The expected arrays by name; their values do not matter.
        what: Word for the owner of the arrays, for the error message.

    Raises:
        SnapshotError: An array is missing, or has another shape or type.
    """
    for name, array in mine.items():
        kept = arrays.get(name)
        if kept is None or (kept.shape, kept.dtype) != (array.shape, array.dtype):
            shape = "nothing" if kept is None else f"{kept.dtype} of shape {kept.shape}"
            raise SnapshotError(
                f"the snapshot's {name} of the {what} is {shape}, needed is {array.dtype} of shape "
                f"{array.shape}; it is damaged or of another bundle: start without it."
            )
