"""The next event of a stream of events, each of which has a mark, one of K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor
from edgefold.runtime.predictions.quantiles import median_of, require_levels


@dataclass(frozen=True)
class NextEvent(PredictionKind):
    """When the next event comes, which mark it has, and how likely the one was that just came.

    Tensors `gap_quantiles`, (..., Q, 1), of the time until the next event; `mark_probabilities`,
    (..., K); `log_likelihood`, (..., 1): log f(gap) + log P(mark | gap) in nats, of the event that
    the step was given, as it was predicted before. f is a density of time, so a stream that counts
    in other units has another one. A low one is an event that nobody would have expected.
    """

    n_marks: int
    levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    name: ClassVar[str] = "next-event"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", require_levels(self.levels))
        if self.n_marks < 1:
            raise ValueError(f"n_marks is {self.n_marks}, must be at least 1")

    @property
    def input_range(self) -> tuple[float, float]:
        """Gaps are not negative, and a number between is truncated to that of a mark."""
        return 0.0, float(self.n_marks)

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return (
            PredictionTensor("gap_quantiles", (len(self.levels), n_outputs), "scale"),
            PredictionTensor("mark_probabilities", (self.n_marks,), "none"),
            PredictionTensor("log_likelihood", (n_outputs,), "log-density"),
        )

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return median_of(prediction["gap_quantiles"], self.levels)

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Columns gap_q05, gap_q50, ..; the most probable mark, its number from 0 on."""
        gaps, probabilities = prediction["gap_quantiles"], prediction["mark_probabilities"]
        percents = [f"{100 * level:g}".zfill(2) for level in self.levels]
        return {
            **{f"gap_q{percent}": gaps[..., i, :] for i, percent in enumerate(percents)},
            "next_mark": np.argmax(probabilities, -1)[..., None],
            "next_mark_probability": np.max(probabilities, -1)[..., None],
            "log_likelihood": prediction["log_likelihood"],
        }
