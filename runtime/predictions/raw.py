"""Pass on the tensors that a user's own model predicts and that Edgefold does not interpret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor


@dataclass(frozen=True)
class Raw(PredictionKind):
    """Predicts tensors of any meaning: `shapes` maps their names to their shapes for one target."""

    shapes: Mapping[str, tuple[int, ...]]
    name: ClassVar[str] = "raw"

    def __post_init__(self) -> None:
        shapes = {name: tuple(shape) for name, shape in self.shapes.items()}
        object.__setattr__(self, "shapes", shapes)

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return tuple(PredictionTensor(name, shape, "none") for name, shape in self.shapes.items())

    def settings(self) -> dict[str, Any]:
        return {"shapes": {name: list(shape) for name, shape in self.shapes.items()}}
