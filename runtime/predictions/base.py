"""What a prediction consists of, apart from any model: its tensors, its units and its scores.

A kind is written once and serves both sides: `xp` is numpy on a device and torch in training, which
agree on the functions that the kinds use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray

UNSCALE = ("affine", "scale", "log-density", "none")
"""How a tensor returns to raw units: times scale plus shift; times scale; minus log(scale), as the
logarithm of a density of y; not at all."""


@dataclass(frozen=True, slots=True)
class PredictionTensor:
    """One tensor of a prediction.

    Attributes:
        name: Its name in the graphs and in the result.
        shape: Of one target. Where `unscale` is not "none", the last axis is the outputs (Y).
        unscale: One of `UNSCALE`.
        dtype: Element type in the graph.
    """

    name: str
    shape: tuple[int, ...]
    unscale: str
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {**asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of any kind: its tensors by name, also as attributes.

    Each tensor is (M, *shape), or (B, M, *shape) for more than one stream. All are views of fixed
    buffers that the next query overwrites: `copy` keeps them.
    """

    tensors: Mapping[str, FloatArray]

    def copy(self) -> Prediction:
        """The same prediction in memory of its own, which no later call overwrites."""
        return Prediction({name: tensor.copy() for name, tensor in self.tensors.items()})

    def __getattr__(self, name: str) -> FloatArray:
        try:
            return self.tensors[name]
        except KeyError:
            raise AttributeError(
                f"this prediction has no {name!r}; it has {', '.join(self.tensors)}"
            ) from None


class PredictionKind(ABC):
    """A kind of prediction; instances hold its settings and are dataclasses.

    `prediction` arguments are mappings from tensor names to arrays (..., *shape), in the same units
    as y (..., Y).

    Attributes:
        name: Of the kind, in manifests.
        joint: Whether the targets (M) of one query are predicted jointly. Their axis is then the
            one before `shape`, and a query is told by a mask which targets are real.
    """

    name: ClassVar[str]
    joint: ClassVar[bool] = False

    @property
    def block(self) -> int:
        """Targets that `Stream.sample` predicts at once, before it learns them; 0 for the most."""
        return 1

    @property
    def input_range(self) -> tuple[float, float] | None:
        """Scaled inputs lie between these, where models of the kind refuse others."""
        return None

    @property
    def largest_input(self) -> float:
        """Scaled values beyond this are refused: their squares still fit float32 inside models."""
        return 1e9

    @abstractmethod
    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        """The tensors of a prediction of Y outputs."""

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        """Log density or probability of y in nats, summed over outputs: (...,); see `has_score`.

        Of a joint kind it is each target's mean share of the joint one, with an axis M of length 1.
        """
        raise NotImplementedError(f"{self.name} predictions have no likelihood")

    @property
    def has_score(self) -> bool:
        """Whether `log_likelihood` is defined."""
        return type(self).log_likelihood is not PredictionKind.log_likelihood

    def center(self, prediction: Mapping[str, Any]) -> Any:
        """The single value that stands for the prediction, (..., Y); None where there is none."""
        return None

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        """The standard deviation around `center`, (..., Y); None where there is none."""
        return None

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        """One draw of all targets, (..., Y), in numpy; see `has_samples`."""
        raise NotImplementedError(f"{self.name} predictions cannot be sampled")

    @property
    def has_samples(self) -> bool:
        """Whether `sample` is defined."""
        return type(self).sample is not PredictionKind.sample

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a table tells of the prediction of one target, by column: its tensors by default."""
        return prediction

    def settings(self) -> dict[str, Any]:
        """What rebuilds this instance, as JSON."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]
