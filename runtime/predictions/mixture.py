"""Predict a mixture of normal distributions of equal weight, independent for each target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor


@dataclass(frozen=True)
class GaussianMixture(PredictionKind):
    """Predicts a mixture of S = `n_components` normal distributions that have equal weight.

    Its tensors are `mean` and `std`, each (..., S, Y); std is positive. The outputs of one
    component are independent. Models that predict with S samples of a latent variable, or S
    bootstraps, are of this kind.
    """

    n_components: int
    name: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        if self.n_components < 1:
            raise ValueError(f"n_components is {self.n_components}, must be at least 1")

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        shape = (self.n_components, n_outputs)
        return PredictionTensor("mean", shape, "affine"), PredictionTensor("std", shape, "scale")

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        mean, std = prediction["mean"], prediction["std"]
        densities = -0.5 * ((y[..., None, :] - mean) / std) ** 2 - xp.log(std)
        of_component = densities.sum(-1)  # (..., S)
        top = xp.amax(of_component, -1)
        total = xp.log(xp.exp(of_component - top[..., None]).mean(-1)) + top
        return total - 0.5 * math.log(2 * math.pi) * y.shape[-1]

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return prediction["mean"].mean(-2)

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        mean, std = prediction["mean"], prediction["std"]
        apart = mean - mean.mean(-2)[..., None, :]
        return (std**2 + apart**2).mean(-2) ** 0.5

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        mean, std = prediction["mean"], prediction["std"]
        chosen = random.integers(self.n_components, size=mean.shape[:-2])[..., None, None]
        mean, std = (np.take_along_axis(part, chosen, -2)[..., 0, :] for part in (mean, std))
        drawn: FloatArray = mean + std * random.standard_normal(mean.shape)
        return drawn

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"mean": self.center(prediction), "std": self.deviation(prediction)}
