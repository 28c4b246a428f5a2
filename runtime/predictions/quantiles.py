"""Predict quantiles of each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor


@dataclass(frozen=True)
class Quantiles(PredictionKind):
    """Predicts a tensor `quantiles` (..., Q, Y) at Q rising `levels`, each between 0 and 1."""

    levels: tuple[float, ...]
    name: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", require_levels(self.levels))

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return (PredictionTensor("quantiles", (len(self.levels), n_outputs), "affine"),)

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return median_of(prediction["quantiles"], self.levels)


def require_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Return the levels as a tuple; raise ValueError unless they rise and lie between 0 and 1."""
    if not levels or list(levels) != sorted(set(levels)) or not all(0 < q < 1 for q in levels):
        raise ValueError(f"levels are {levels}; give rising numbers between 0 and 1")
    return tuple(levels)


def level_names(levels: Sequence[float]) -> list[str]:
    """Return the column name of each quantile from its level in percent, such as q05 or q97.5."""
    return [f"q{f'{100 * level:g}'.zfill(2)}" for level in levels]


def median_of(quantiles: Any, levels: Sequence[float]) -> Any:
    """Return the quantile (..., Y) whose level is nearest to 0.5, from quantiles (..., Q, Y)."""
    return quantiles[..., min(range(len(levels)), key=lambda i: abs(levels[i] - 0.5)), :]
