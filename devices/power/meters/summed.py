"""Add up the energy counters of a machine's parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgefold.devices.power.sensor import EnergySensor


class Summed:
    """Adds up the counters of parts that do not overlap, as one `EnergySensor`.

    Args:
        counters: The counters, such as that of a processor and that of a GPU.
    """

    def __init__(self, counters: Sequence[EnergySensor]) -> None:
        self._counters = counters
        self.name = " + ".join(counter.name for counter in counters)
        self.rails = tuple(rail for counter in counters for rail in counter.rails)
        self.scope = f"the sum of {self.name}; boards, disks and fans are not in"
        self.period_s = max(counter.period_s for counter in counters)
        self.memory_s = max(counter.memory_s for counter in counters)
        self.step_j = math.hypot(*(counter.step_j for counter in counters))
        self.max_gap_s = min(counter.max_gap_s for counter in counters)

    def read_j(self) -> float:
        """Return the joules used since the counters were opened.

        Raises:
            MeterError: One of them cannot be read any more.
        """
        return sum(counter.read_j() for counter in self._counters)
