"""What a loop has counted since its first start."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Counts over every restart of a loop.

    Attributes:
        lines: Number of the last line of the input that was processed.
        rows: Rows that updated the model.
        predicted: Rows that were predicted.
        malformed: Rows that were skipped.
        missing: Rows that were passed over, because a cell holds no value.
        refused_in_a_row: Rows skipped since the last one that updated the model.
        anomalies: Predicted rows with a value outside the band.
        within_90: Values inside the central 90 % band.
        squared_error: Sum over predicted rows for each output; empty where there are no errors.
    """

    lines: int = 0
    rows: int = 0
    predicted: int = 0
    malformed: int = 0
    missing: int = 0
    refused_in_a_row: int = 0
    anomalies: int = 0
    within_90: int = 0
    squared_error: list[float] = field(default_factory=list)

    @property
    def rmse(self) -> list[float]:
        """Root mean squared error of each output; empty before the first prediction."""
        return [math.sqrt(total / self.predicted) for total in self.squared_error if self.predicted]

    @property
    def coverage_90(self) -> float:
        """Fraction of values inside the 90 % band; NaN before the first prediction."""
        n_values = self.predicted * len(self.squared_error)
        return self.within_90 / n_values if n_values else math.nan
