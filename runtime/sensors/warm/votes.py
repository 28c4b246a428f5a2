"""Decide by the alarms of sibling sensors which rows of a new sensor are alarms.

A new sensor cannot know yet how large its errors become, so most of its first alarms are false.
Its siblings know. Each of them has two votes, of two copies of its `Watch`, which see the rows of
the new sensor and learn them:

    own units    how large errors and surprises of a sensor of this kind are
    new units    the same, with errors as many times as large as those of the new sensor are

A row is an alarm if the new sensor's own watch and a tenth of the votes alarm it, or most votes do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict, Event

FEW, MOST = 0.1, 0.5
"""The share of votes that confirms an alarm of the new sensor's own watch; and the share above
which the votes decide without it."""
N_ERRORS = 48
"""The number of errors whose mean shows how large those of the new sensor are."""
LEARNED = ("tails", "habits", "gaps")
"""The names of the arrays of a watch that say what a sensor usually does. The others say what
happens at present, or belong to the place of a row in a season."""
ERROR, LEVEL, MEAN = 0, 0, 1
"""The row of the array "tails" that holds the tail of errors, and the columns of its two numbers
that have the unit of the values."""
MOST_ERROR = 1e100
N_COUNTS = 2


class Votes:
    """Holds two watches of each of K siblings, for one new sensor.

    Args:
        watches: The watches, 2 K: first those that see errors in a sibling's own units, then those
            of the new sensor.
        n_errors: The number of errors of the new sensor so far, up to `N_ERRORS`.
        error_sum: Their sum.
    """

    def __init__(self, watches: Sequence[Watch], n_errors: int = 0, error_sum: float = 0.0):
        self._watches, self._n_errors, self._error_sum = [*watches], n_errors, error_sum

    @classmethod
    def of(cls, siblings: Sequence[Mapping[str, Array]], rate: float) -> Votes:
        """Begin with the arrays of K siblings' watches.

        Args:
            siblings: For each sibling, the arrays of its watch, by name.
            rate: The share of sound rows of the new sensor that may be alarms.
        """
        return cls([_begun(arrays, rate) for arrays in (*siblings, *siblings)])

    def copy(self) -> Votes:
        """Return a copy; a change of one of the two does not change the other."""
        return Votes([watch.copy() for watch in self._watches], self._n_errors, self._error_sum)

    def judged(
        self,
        own: AlarmVerdict,
        value: float,
        p_value: float,
        middle: float,
        log_density: float,
        n_missing: int,
        place: SlotPlace,
    ) -> AlarmVerdict:
        """Let all watches see a row, and return whether it is an alarm.

        Args:
            own: What the new sensor's own watch says of the row.
            value: The value; NaN if the row has none.
            p_value: The mixture's p-value; 1 if nothing was scored.
            middle: The mixture's median.
            log_density: The mixture's log density of the value; 0 if nothing was scored.
            n_missing: The number of missing slots just before the row.
            place: Where the row stands in the season and the day.
        """
        half = len(self._watches) // 2
        is_scored = value == value and (p_value < 1.0 or log_density != 0.0)
        if is_scored and self._n_errors < N_ERRORS:
            self._n_errors += 1
            self._error_sum += min(abs(value - middle), MOST_ERROR)
            if self._n_errors == N_ERRORS:
                mean = self._error_sum / N_ERRORS
                self._watches[half:] = [_scaled(watch, mean) for watch in self._watches[half:]]
        events: Counter[Event] = Counter()
        for at, watch in enumerate(self._watches):
            if at >= half and self._n_errors < N_ERRORS:
                break
            row = value, p_value, middle, log_density, n_missing
            verdict = watch.see(*row, place=place)
            if verdict.alarm:
                events[verdict.event] += 1
        n = sum(events.values())
        if own.alarm:
            return own._replace(alarm=n >= FEW * len(self._watches))
        if n > MOST * len(self._watches):
            return AlarmVerdict(True, events.most_common(1)[0][0])
        return own

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep, stacked along a first axis."""
        each = [watch.arrays() for watch in self._watches]
        stacked = {f"watch_{name}": np.stack([one[name] for one in each]) for name in each[0]}
        return {**stacked, "errors": np.array([[self._n_errors, self._error_sum]])}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""
        require_same(arrays, self.arrays())
        n_errors, error_sum = arrays["errors"][0].tolist()
        if n_errors not in range(N_ERRORS + 1) or not 0.0 <= error_sum <= N_ERRORS * MOST_ERROR:
            raise SnapshotError(
                "the snapshot's errors of a sensor that starts warm are damaged; use an older "
                "copy, or start without it."
            )
        for at, watch in enumerate(self._watches):
            names = watch.arrays()
            watch.load({name: arrays[f"watch_{name}"][at] for name in names})
        self._n_errors, self._error_sum = int(n_errors), error_sum


def _begun(arrays: Mapping[str, Array], rate: float) -> Watch:
    """Return a watch that has learned what a sibling's has, and has seen nothing happen yet.

    Raises:
        SnapshotError: The arrays are damaged.
    """
    watch = Watch(rate)
    own = watch.arrays()
    require_same(arrays, own, "sibling")
    numbers = own["watch"].copy()
    numbers[Watch.KEPT.index("_n")] = arrays["watch"][Watch.KEPT.index("_n")]
    watch.load({**own, **{name: arrays[name] for name in LEARNED}, "watch": numbers})
    return watch


def _scaled(watch: Watch, mean: float) -> Watch:
    """Return the same watch, for errors whose mean is another one."""
    arrays = watch.arrays()
    tails = arrays["tails"].copy()
    if tails[ERROR, MEAN] > 0.0 and mean > 0.0:
        tails[ERROR, LEVEL] *= mean / tails[ERROR, MEAN]
        tails[ERROR, MEAN] = mean
    scaled = Watch(watch.rate)
    scaled.load({**arrays, "tails": tails})
    return scaled
