"""Predict one normal distribution of all targets of a query together.

The covariance of the targets is L L^T. Its factor L (M*Y, M*Y) is made of rows P_i of R numbers,
one for each target and output, in the order of the targets:

    C = tril(P P^T), its diagonal positive        no units
    L_i = std_i C_i / |C_i|                       units of y

So `std` is the deviation of each target in units of y, and P holds only the correlations, which
have no units. Models that give C itself as the factor in scaled units, as TNP-ND of Nguyen and
Grover (2022) does, set std_i = |C_i|. C_i depends only on the targets up to i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor

LEAST = 1e-4
"""This number is added to the diagonal of C where `bounded` is False, so that its log is finite."""


@dataclass(frozen=True)
class JointGaussian(PredictionKind):
    """Predicts one normal distribution of all M targets of a query, with three tensors.

    The tensors are `mean` and `std`, each (..., M, Y), and `factor` (..., M, Y, R), which has no
    units: a row P_i of R numbers for each target and output i. C is the lower triangle of P P^T;
    with each row divided by its length, C C^T is the matrix of the targets' correlations.

    Attributes:
        rank: R, the length of a row P_i.
        bounded: Whether the diagonal of C is 0.05 + 0.95 tanh(|P_i|^2), which keeps it between 0.05
            and 1. Otherwise it is |P_i|^2 + 1e-4.
        block: Number of targets that one query predicts where a stream predicts some targets,
            learns them and then predicts the next ones; 0 stands for as many as a query takes.
    """

    rank: int
    bounded: bool = False
    block: int = 0
    name: ClassVar[str] = "joint"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("rank", 1), ("block", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least {least}")

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        return (
            PredictionTensor("mean", (n_outputs,), "affine"),
            PredictionTensor("std", (n_outputs,), "scale"),
            PredictionTensor("factor", (n_outputs, self.rank), "none"),
        )

    def lower(self, factor: Any, xp: Any) -> Any:
        """Compute C (..., M*Y, M*Y), the lower triangle of P P^T; `bounded` sets its diagonal.

        Args:
            factor: P, (..., M, Y, R): a row of R numbers for each target and output.
            xp: numpy or torch.
        """
        *lead, m, n_outputs, rank = factor.shape
        rows = factor.reshape(*lead, m * n_outputs, rank)
        squares = (rows * rows).sum(-1)[..., None]
        diagonal = 0.05 + 0.95 * xp.tanh(squares) if self.bounded else squares + LEAST
        products = rows @ xp.swapaxes(rows, -1, -2)
        ones = xp.ones_like(products)
        below = xp.tril(ones, -1)
        return products * below + diagonal * (xp.tril(ones) - below)

    def covariance_factor(self, prediction: Mapping[str, Any], xp: Any) -> Any:
        """Compute the lower triangular L (..., M*Y, M*Y) in units of y; the covariance is L L^T."""
        lower = self.lower(prediction["factor"], xp)
        std = prediction["std"].reshape(*lower.shape[:-1])
        return lower * (std / (lower * lower).sum(-1) ** 0.5)[..., None]

    def log_likelihood(self, prediction: Mapping[str, Any], y: Any, xp: Any) -> Any:
        factor = self.covariance_factor(prediction, xp)
        *lead, m, n_outputs = y.shape
        errors = (y - prediction["mean"]).reshape(*lead, m * n_outputs, 1)
        if xp is np:
            whitened = np.linalg.solve(factor.astype(np.float64), errors.astype(np.float64))
        else:
            whitened = xp.linalg.solve_triangular(factor, errors, upper=False)
        log_diagonal = xp.log(xp.diagonal(factor, 0, -2, -1))
        total = -0.5 * (whitened * whitened).sum((-2, -1)) - log_diagonal.sum(-1)
        return total[..., None] / m - 0.5 * math.log(2 * math.pi) * n_outputs

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return prediction["mean"]

    def deviation(self, prediction: Mapping[str, Any]) -> Any:
        return prediction["std"]

    def sample(self, prediction: Mapping[str, Any], random: np.random.Generator) -> FloatArray:
        mean, factor = prediction["mean"], self.covariance_factor(prediction, np)
        noise = random.standard_normal(factor.shape[:-1])[..., None]
        drawn: FloatArray = mean + (factor @ noise).reshape(mean.shape)
        return drawn

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"mean": prediction["mean"], "std": prediction["std"]}
