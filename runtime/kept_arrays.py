"""Name the arrays of the parts of a snapshot, and refuse those that do not fit.

arrays of a part, such as a history before a gap <──>  the same arrays, their names with a prefix
"""

from __future__ import annotations

from collections.abc import Mapping

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError


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
