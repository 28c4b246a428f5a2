"""Predict an independent normal distribution for each target and output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor

BAND_90 = 1.6448536269514722
"""Half the width, in standard deviations, of the band that holds the central 90 % of a normal
distribution."""


@dataclass(frozen=True)
class Gaussian(PredictionKind):
    """Predicts normal distributions with two tensors, `mean` and `std`, each (..., Y); std > 0.

    Attributes:
        permuted: Whether each draw of `Stream.sample` takes the targets in a random order. The
            distribution of all targets together depends on their order where a drawn value is
            learned before the next is predicted.
    """

    permuted: bool = False
    name: ClassVar[str] = "gaussian"
    stored_if_changed: ClassVar[tuple[str, ...]] = ("permuted",)

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        shape = (n_outputs,)
        return PredictionTensor("mean", shape, "affine"), PredictionTensor("std", shape, "scale")

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        mean, std = prediction["mean"], prediction["std"]
        densities = -0.5 * ((y - mean) / std) ** 2 - xp.log(std) - 0.5 * math.log(2 * math.pi)
        return densities.sum(-1)

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return prediction["mean"]

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        return prediction["std"]

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        mean, std = prediction["mean"], prediction["std"]
        drawn: FloatArray = mean + std * random.standard_normal(mean.shape)
        return drawn
