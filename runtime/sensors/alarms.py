"""Which rows of a sensor are alarms, at a stated rate of false ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgefold.runtime.arrays import Array

RATE = 1e-4
"""Of false alarms among rows, unless another one is asked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a row.

    Attributes:
        alarm: Whether the row is an alarm.
        event: "value", "level shift", "stuck", "noisy", "gap", or empty.
    """

    alarm: bool
    event: str


QUIET, VALUE = Verdict(False, ""), Verdict(True, "value")


class Watch:
    """Judges the rows of one sensor by how they were forecast.

    Args:
        rate: Of false alarms.
    """

    def __init__(self, rate: float = RATE):
        self._rate = rate

    def see(
        self,
        value: float,
        p_value: float,
        quantiles: Sequence[float],
        log_density: float,
        n_missing: int,
    ) -> Verdict:
        """Judge a row.

        Args:
            value: As measured.
            p_value: Twice the smaller of the forecast's masses below and above it.
            quantiles: Of the forecast.
            log_density: Of the value.
            n_missing: Slots that are missing before the row.
        """
        return VALUE if p_value < self._rate else QUIET

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore what `arrays` returned."""
