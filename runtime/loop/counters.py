"""The counts of a loop since its first start, and the score of a row that adds to them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class RowScore:
    """How good the prediction of one row was.

    Attributes:
        errors: The true value less the predicted one, for each output; empty where there are none.
        n_within_90: Values inside the central 90 % band.
        is_anomaly: Whether a value lies outside the band.
    """

    errors: list[float] = field(default_factory=list)
    n_within_90: int = 0
    is_anomaly: bool = False


@dataclass(slots=True)
class Counters:
    """Counts over every restart of a loop, of one sensor or of all.

    Attributes:
        lines: Number of the last line of the input that was processed.
        rows: Rows that were taken: all of them updated the model but those of `not_learned`.
        predicted: Rows that were predicted.
        malformed: Rows that were skipped.
        missing: Rows that were passed over, because a cell holds no value.
        not_learned: Rows that were only predicted, because the state holds no more points.
        refused_in_a_row: Rows skipped since the last one that was taken.
        anomalies: Predicted rows with a value outside the band.
        within_90: Values inside the central 90 % band.
        squared_error: Sum over predicted rows for each output; empty where there are no errors.
    """

    lines: int = 0
    rows: int = 0
    predicted: int = 0
    malformed: int = 0
    missing: int = 0
    not_learned: int = 0
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

    def add(self, score: RowScore) -> None:
        """Count a row that was predicted."""
        self.predicted += 1
        for index, error in enumerate(score.errors):
            self.squared_error[index] += error * error
        self.within_90 += score.n_within_90
        self.anomalies += score.is_anomaly

    def skip(self) -> None:
        """Count a row that was skipped."""
        self.malformed += 1
        self.refused_in_a_row += 1

    def plus(self, others: Iterable[Counters]) -> Counters:
        """Return the sum of these and others; lines stay, and of rows in a row the most count."""
        every = [self, *others]
        total = {f.name: sum(getattr(one, f.name) for one in every) for f in fields(self)[:-1]}
        most = max(one.refused_in_a_row for one in every)
        errors = zip(*(one.squared_error for one in every), strict=True)
        return Counters(
            **{**total, "lines": self.lines, "refused_in_a_row": most},
            squared_error=[sum(of_one_output) for of_one_output in errors],
        )
