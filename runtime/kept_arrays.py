"""Turn what a class keeps in a snapshot into arrays, and check and restore it again.

attributes that are numbers, in an order         <──>  one array of float64
arrays of a part, such as a history before a gap <──>  the same names with a prefix
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError


class KeptNumbers:
    """An object whose numbers are kept as one array.

    A class names the attributes in `KEPT`. Each is a number, a list of numbers whose length never
    changes, or another such object. It keeps the type that it has in a new object: an int stays
    one.
    """

    __slots__ = ()
    KEPT: ClassVar[Sequence[str]] = ()

    def numbers(self) -> Array:
        """Return the numbers in the order of `KEPT`, (n,)."""
        return np.array(list(self._each()), np.float64)

    def take(self, numbers: Array) -> None:
        """Restore what `numbers` returned; an object that refuses is then of no use.

        Raises:
            ValueError, OverflowError: There are more or fewer numbers, or one is not of its type.
        """
        n = len(self.numbers())
        if len(numbers) != n:
            raise ValueError(f"{len(numbers)} numbers stand for {n}")
        self._take(iter(numbers.tolist()))

    def restored(self) -> None:
        """Compute what follows from the numbers."""

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
    """Return arrays under names that begin with the prefix of their part."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def part_of(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays that `as_part` has named, under their own names."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def require_same(
    arrays: Mapping[str, Array], mine: Mapping[str, Array], what: str = "sensor"
) -> None:
    """Refuse arrays of a snapshot that have not the names, shapes and types of others.

    Args:
        arrays: The snapshot's; more of them do no harm.
        mine: The arrays that are expected.
        what: What they belong to, for the message.

    Raises:
        SnapshotError: One is missing, or is another one.
    """
    for name, array in mine.items():
        kept = arrays.get(name)
        if kept is None or (kept.shape, kept.dtype) != (array.shape, array.dtype):
            shape = "nothing" if kept is None else f"{kept.dtype} of shape {kept.shape}"
            raise SnapshotError(
                f"the snapshot's {name} of the {what} is {shape}, needed is {array.dtype} of shape "
                f"{array.shape}; it is damaged or of another bundle: start without it."
            )
