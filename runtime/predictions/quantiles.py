"""Quantiles of each output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor


@dataclass(frozen=True)
class Quantiles(PredictionKind):
    """Tensor `quantiles`, (..., Q, Y), one for each level between 0 and 1, rising."""

    levels: tuple[float, ...]
    name: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if list(self.levels) != sorted(set(self.levels)) or not all(0 < q < 1 for q in self.levels):
            raise ValueError(f"levels are {self.levels}; give rising numbers between 0 and 1")

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return (PredictionTensor("quantiles", (len(self.levels), n_outputs), "affine"),)

    def center(self, prediction: Mapping[str, Any]) -> Any:
        nearest = min(range(len(self.levels)), key=lambda i: abs(self.levels[i] - 0.5))
        return prediction["quantiles"][..., nearest, :]
