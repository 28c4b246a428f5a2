"""Predict the next event of a stream of events, each of which has one of K marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor
from edgefold.runtime.predictions.quantiles import level_names, median_of, require_levels


@dataclass(frozen=True)
class NextEvent(PredictionKind):
    """Predicts the time and mark of the next event, and scores the event that just came.

    It has three tensors. `gap_quantiles` (..., Q, 1) are quantiles of the time until the next
    event, at the Q `levels`. `mark_probabilities` (..., K) are the probabilities of the K =
    `n_marks` marks. `log_likelihood` (..., 1) scores the event that just came by the prediction
    made before it: log f(gap) + log P(mark | gap) in nats, where gap is the time since the event
    before. f is a density of time, so its value depends on the unit of time. A low likelihood marks
    an unexpected event.
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
        """Return the range of inputs, 0 to K: times between events are >= 0, marks 0 to K - 1."""
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
        """Return the columns, by name, that show the prediction in a table.

        They are gap_q05, gap_q50 and so on, one for each level; next_mark, the number of the most
        probable mark, from 0 on; next_mark_probability; and log_likelihood.
        """
        gaps, probabilities = prediction["gap_quantiles"], prediction["mark_probabilities"]
        names = level_names(self.levels)
        return {
            **{f"gap_{name}": gaps[..., i, :] for i, name in enumerate(names)},
            "next_mark": np.argmax(probabilities, -1)[..., None],
            "next_mark_probability": np.max(probabilities, -1)[..., None],
            "log_likelihood": prediction["log_likelihood"],
        }
