"""Define what all kinds of predictions have: tensors, units and scores, whatever the model.

A kind is written once for both sides: `xp` is numpy on a device and torch in training, which agree
on the functions that the kinds use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray

UNSCALE = ("affine", "scale", "log-density", "none")
"""Ways in which a tensor returns to raw units: times scale plus shift; times scale; minus
log(scale), as the logarithm of a density of y; unchanged."""


@dataclass(frozen=True, slots=True)
class PredictionTensor:
    """One tensor of a prediction.

    Attributes:
        name: The tensor's name in the graphs and in the result.
        shape: Shape for one target. If `unscale` is not "none", the last axis is the outputs (Y).
        unscale: One of `UNSCALE`.
        dtype: Element type in the graph.
    """

    name: str
    shape: tuple[int, ...]
    unscale: str
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as the manifest has it."""
        return {**asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of any kind: its tensors by name, also as attributes.

    Each tensor is (M, *shape), or (B, M, *shape) for more than one stream. All are views of fixed
    buffers that the next query overwrites: `copy` keeps them.
    """

    tensors: Mapping[str, FloatArray]

    def copy(self) -> Prediction:
        """Copy the prediction into new memory, which no later call overwrites."""
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
        name: The kind's name in manifests.
        joint: Whether the targets (M) of one query are predicted jointly. Their axis is then the
            one before `shape`, and a query gets a mask of the real targets.
    """

    name: ClassVar[str]
    joint: ClassVar[bool] = False

    @property
    def block(self) -> int:
        """Number of targets that `Stream.sample` predicts at once; 0 for a query's most."""
        return 1

    @property
    def input_range(self) -> tuple[float, float] | None:
        """Lowest and highest scaled input that models of the kind accept; None for any."""
        return None

    @property
    def largest_input(self) -> float:
        """The largest scaled value that is accepted: its square still fits float32 in models."""
        return 1e9

    @abstractmethod
    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        """List the tensors of a prediction of Y outputs."""

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        """Compute the log density or probability of y in nats, summed over outputs: (...,).

        A joint kind returns the joint logarithm divided by M, with an axis M of length 1. See
        `has_score`.
        """
        raise NotImplementedError(f"{self.name} predictions have no likelihood")

    @property
    def has_score(self) -> bool:
        """Whether `log_likelihood` is defined."""
        return type(self).log_likelihood is not PredictionKind.log_likelihood

    def center(self, prediction: Mapping[str, Any]) -> Any:
        """Return the single value that represents the prediction, (..., Y); None without one."""
        return None

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        """Return the standard deviation around `center`, (..., Y); None without one."""
        return None

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        """Draw a value of every target once, (..., Y), in numpy; see `has_samples`."""
        raise NotImplementedError(f"{self.name} predictions cannot be sampled")

    @property
    def has_samples(self) -> bool:
        """Whether `sample` is defined."""
        return type(self).sample is not PredictionKind.sample

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a table's columns for the prediction of one target: its tensors by default."""
        return prediction

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make this instance again, as JSON values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]
