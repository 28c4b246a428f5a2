"""Define the tensors, units and scores that every kind of prediction has, whatever the model.

Each kind is written once for devices and for training: its methods get numpy or torch as `xp`, and
use only functions that both libraries have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray

UNSCALE = ("affine", "scale", "log-density", "none")
"""Lists the ways in which a tensor returns from scaled to raw units. "affine" multiplies by the
scale and adds the shift; "scale" multiplies by the scale; "log-density" subtracts log(scale), as is
right for the logarithm of a density of y; "none" leaves the tensor unchanged."""


@dataclass(frozen=True, slots=True)
class PredictionTensor:
    """Describes one tensor of a prediction: its name, its shape and how it returns to raw units.

    Attributes:
        name: The tensor's name in the graphs and in the result.
        shape: Shape for one target. If `unscale` is not "none", the last axis is the outputs (Y).
        unscale: The way in which the tensor returns to raw units, one of `UNSCALE`.
        dtype: The type of the tensor's elements in the graph.
    """

    name: str
    shape: tuple[int, ...]
    unscale: str
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """Return the tensor's description as the JSON object that stands in the manifest."""
        return {**asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """Holds a prediction of any kind: its tensors by name, which can also be read as attributes.

    For M targets, each tensor has the shape (M, *shape), or (B, M, *shape) if there are B streams
    and B > 1. All tensors are views of fixed buffers that the next query overwrites; `copy` returns
    a prediction that stays as it is.
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
    """Defines a kind of prediction; each subclass is a dataclass whose fields are its settings.

    The argument `prediction` of the methods maps the names of tensors to arrays (..., *shape), in
    the same units as y (..., Y).

    Attributes:
        name: The kind's name in manifests.
        joint: Whether the M targets of one query are predicted jointly. The axis of the targets is
            then the one before `shape`, and a query gets a mask (B, M), true for real targets and
            false for those that only fill up its width.
        stored_if_changed: Names of the settings that a manifest holds only where they differ from
            their default. A bundle that does not use them is what it was before they existed, and
            older versions open it.
    """

    name: ClassVar[str]
    joint: ClassVar[bool] = False
    stored_if_changed: ClassVar[tuple[str, ...]] = ()

    @property
    def permuted(self) -> bool:
        """Return whether each draw of `Stream.sample` takes the targets in a random order."""
        return False

    @property
    def block(self) -> int:
        """Return how many targets `Stream.sample` predicts at once; 0: as many as a query takes."""
        return 1

    @property
    def input_range(self) -> tuple[float, float] | None:
        """Return the lowest and highest scaled input that models of the kind accept.

        None means that they accept any input up to `largest_input`.
        """
        return None

    @property
    def largest_input(self) -> float:
        """Return the largest scaled input that is accepted; its square fits float32 in models."""
        return 1e9

    @abstractmethod
    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        """Return the descriptions of the tensors that a prediction of Y = `n_outputs` has."""

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        """Return the log density or log probability of y (..., Y) in nats, summed over outputs.

        The result has the shape (...,). A joint kind returns the joint logarithm divided by M, with
        an axis M of length 1. `xp` is numpy or torch, the library of the arrays. A kind whose
        `has_score` is False raises NotImplementedError.
        """
        raise NotImplementedError(f"{self.name} predictions have no likelihood")

    @property
    def has_score(self) -> bool:
        """Return whether this kind defines `log_likelihood`."""
        return type(self).log_likelihood is not PredictionKind.log_likelihood

    def center(self, prediction: Mapping[str, Any]) -> Any:
        """Return the one value (..., Y) that represents the prediction; None if there is none."""
        return None

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        """Return the standard deviation (..., Y) around `center`; None if the kind has none."""
        return None

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        """Draw one value of every target with numpy and return them, of shape (..., Y).

        A kind whose `has_samples` is False raises NotImplementedError.
        """
        raise NotImplementedError(f"{self.name} predictions cannot be sampled")

    @property
    def has_samples(self) -> bool:
        """Return whether this kind defines `sample`."""
        return type(self).sample is not PredictionKind.sample

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns, by name, that a table shows of a prediction: by default its tensors.

        The prediction is that of one target.
        """
        return prediction

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments that make this instance again, as JSON values."""
        settings = asdict(self)  # type: ignore[call-overload]
        for name in self.stored_if_changed:
            if settings[name] == getattr(type(self), name):  # a field's default
                del settings[name]
        return settings  # type: ignore[no-any-return]
