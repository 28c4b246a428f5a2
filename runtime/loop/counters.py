"""Count what a loop has done since its first start, and sum the scores of its predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class RowScore:
    """Holds how good the prediction of one row was.

    Attributes:
        errors: True value minus predicted value, for each output; empty for a prediction that has
            no central value.
        n_within_90: Number of values inside the central 90 % band of their predictions.
        is_anomaly: Whether a value is further from its prediction than an anomaly's limit.
    """

    errors: list[float] = field(default_factory=list)
    n_within_90: int = 0
    is_anomaly: bool = False


@dataclass(slots=True)
class Counters:
    """Holds the counts of one sensor or of all sensors, since a loop's first start.

    A restart of the loop continues these counts.

    Attributes:
        lines: Number of the last line of the input that was processed.
        rows: Number of rows that were accepted; all but `not_learned` of them updated the model.
        predicted: Number of rows that were predicted.
        malformed: Number of rows that were skipped because they were bad.
        missing: Number of rows that were passed over because a cell holds no value.
        not_learned: Number of rows that were only predicted, because the state was full.
        refused_in_a_row: Number of rows that were skipped since the last accepted one.
        anomalies: Number of rows that were anomalies, or alarms with the general model.
        within_90: Number of values inside the central 90 % band of their predictions.
        squared_error: Sum of the squared errors of all predicted rows, for each output; empty for
            predictions without a central value.
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
        """Return the root mean squared error of each output; empty before the first prediction."""
        return [math.sqrt(total / self.predicted) for total in self.squared_error if self.predicted]

    @property
    def coverage_90(self) -> float:
        """Return the share of values inside the 90 % band; NaN before the first prediction."""
        n_values = self.predicted * len(self.squared_error)
        return self.within_90 / n_values if n_values else math.nan

    def add(self, score: RowScore) -> None:
        """Count a row that was predicted, and add its score to the sums."""
        self.predicted += 1
        for index, error in enumerate(score.errors):
            self.squared_error[index] += error * error
        self.within_90 += score.n_within_90
        self.anomalies += score.is_anomaly

    def skip(self) -> None:
        """Count a row that was skipped because it was bad."""
        self.malformed += 1
        self.refused_in_a_row += 1

    def plus(self, others: Iterable[Counters]) -> Counters:
        """Return the sums of these counts and others.

        Two fields are not summed: `lines` stays as it is here, and `refused_in_a_row` is the
        largest of all.
        """
        every = [self, *others]
        total = {f.name: sum(getattr(one, f.name) for one in every) for f in fields(self)[:-1]}
        most = max(one.refused_in_a_row for one in every)
        errors = zip(*(one.squared_error for one in every), strict=True)
        return Counters(
            **{**total, "lines": self.lines, "refused_in_a_row": most},
            squared_error=[sum(of_one_output) for of_one_output in errors],
        )
