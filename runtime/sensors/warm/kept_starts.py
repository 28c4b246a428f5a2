"""Keep in a snapshot what siblings know of the sensors that still start warm.

The arrays of all these sensors are joined along their first axes. A snapshot without such sensors
has none of these arrays, and is as if there had never been any siblings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.siblings import MOST
from edgefold.runtime.sensors.warm.warm_start import WarmStart

WARM = "warm."
"""The prefix of the names of these arrays."""
SENSORS, SIZES = "sensors", "n_siblings"


def warm_arrays(starts: Sequence[WarmStart | None]) -> dict[str, Array]:
    """Return the arrays that a snapshot must keep of the sensors that still start warm.

    Args:
        starts: One for each sensor, in the order of their names; None for one that goes by itself.
    """
    numbers = [number for number, warm in enumerate(starts) if warm is not None]
    warming = [warm for warm in starts if warm is not None]
    if not warming:
        return {}
    parts = [warm.arrays() for warm in warming]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    joined[SENSORS] = np.array(numbers, np.int64)
    joined[SIZES] = np.array([warm.n_siblings for warm in warming], np.int64)
    return as_part(joined, WARM)


def restored_starts(
    arrays: Mapping[str, Array], n: int, fleet: Fleet | None, rate: float
) -> list[WarmStart | None]:
    """Return for each of n sensors what `warm_arrays` kept of it.

    Args:
        arrays: The arrays of the snapshot.
        n: The number of sensors.
        fleet: The siblings of this run; None if it has none.
        rate: The share of sound rows that may be alarms.

    Raises:
        SnapshotError: The arrays are damaged, or sensors start warm and this run has no siblings.
    """
    starts: list[WarmStart | None] = [None] * n
    own = part_of(arrays, WARM)
    if not own:
        return starts
    if fleet is None:
        raise SnapshotError(
            "the snapshot holds sensors that still start warm, beside their siblings; give the "
            "siblings again, as in the run that wrote it."
        )
    try:
        numbers, sizes = own[SENSORS].tolist(), own[SIZES].tolist()
        is_sound = sorted(set(numbers)) == numbers and 0 <= numbers[0] <= numbers[-1] < n
        if not is_sound or not all(1 <= size <= MOST for size in sizes):
            raise ValueError("its sensors are impossible")
        ends: Counter[str] = Counter()
        for number, size in zip(numbers, sizes, strict=True):
            part = {}
            for name, array in WarmStart.template(fleet, rate, size).arrays().items():
                first = ends[name]
                ends[name] += len(array)
                part[name] = own[name][first : ends[name]]
            starts[number] = WarmStart.restored(fleet, rate, size, part)
        if any(len(own[name]) != end for name, end in ends.items()):
            raise ValueError("its arrays are too long")
    except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise SnapshotError(
            f"the snapshot's sensors that start warm are damaged ({error}); use an older copy, or "
            "start without it."
        ) from None
    return starts
