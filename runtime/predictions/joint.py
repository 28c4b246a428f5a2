"""Predict one normal distribution of all targets of a query together.

The covariance of the M targets, (M*Y, M*Y), is made of rows P_i of R numbers, one for each target
and output i, in the order of the targets. There are two forms (Nguyen and Grover 2022):

    "cholesky"    C = tril(P P^T), its diagonal positive           no units
                  covariance = L L^T with L_i = std_i C_i / |C_i|  units of y squared
    "low-rank"    covariance = F F^T + diag(own^2) with F_i = std_i P_i

So `std` is the deviation of each target in units of y, and P holds only the correlations, which
have no units. Models that give C itself as the factor in scaled units, as TNP-ND does, set std_i =
|C_i|; C_i depends only on the targets up to i. Models that give F and own^2 set std_i^2 = |F_i|^2 +
own_i^2 and P_i = F_i / std_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor

LEAST = 1e-4
"""This number is added to the diagonal of C unless a model chooses another: its log is finite."""

Covariance = Literal["cholesky", "low-rank"]
"""Form of the covariance of targets that are predicted jointly."""


@dataclass(frozen=True)
class JointGaussian(PredictionKind):
    """Predicts one normal distribution of all M targets of a query, with three or four tensors.

    The tensors are `mean` and `std`, each (..., M, Y), and `factor` (..., M, Y, R), which has no
    units: a row P_i of R numbers for each target and output i. C is the lower triangle of P P^T;
    with each row divided by its length, C C^T is the matrix of the targets' correlations. Where the
    covariance is "low-rank", there is also `own` (..., M, Y), the deviation of each target that it
    shares with no other, in units of y: the covariance is F F^T + diag(own^2), where F_i is std_i
    P_i.

    Attributes:
        rank: R, the length of a row P_i.
        bounded: Whether the diagonal of C is 0.05 + 0.95 tanh(|P_i|^2), which keeps it between 0.05
            and 1. Otherwise it is |P_i|^2 + least.
        block: Number of targets that one query predicts where a stream predicts some targets,
            learns them and then predicts the next ones; 0 stands for as many as a query takes.
        least: Number that is added to the diagonal of C where `bounded` is False; 0 as published.
        covariance: Form of the covariance, "cholesky" or "low-rank"; `bounded` and `least` belong
            to the first.
    """

    rank: int
    bounded: bool = False
    block: int = 0
    least: float = LEAST
    covariance: Covariance = "cholesky"
    name: ClassVar[str] = "joint"
    joint: ClassVar[bool] = True
    stored_if_changed: ClassVar[tuple[str, ...]] = ("least", "covariance")

    def __post_init__(self) -> None:
        for name, least in (("rank", 1), ("block", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least {least}")
        if not 0 <= self.least < math.inf:
            raise ValueError(f"least is {self.least}, must be a finite number from 0 on")
        if self.covariance not in get_args(Covariance):
            raise ValueError(f"covariance is {self.covariance!r}; take 'cholesky' or 'low-rank'")
        if self.bounded and self.covariance == "low-rank":
            raise ValueError("bounded is of covariance 'cholesky'; set it to false for 'low-rank'")

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        own = PredictionTensor("own", (n_outputs,), "scale")
        return (
            PredictionTensor("mean", (n_outputs,), "affine"),
            PredictionTensor("std", (n_outputs,), "scale"),
            PredictionTensor("factor", (n_outputs, self.rank), "none"),
            *((own,) if self.covariance == "low-rank" else ()),
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
        diagonal = 0.05 + 0.95 * xp.tanh(squares) if self.bounded else squares + self.least
        products = rows @ xp.swapaxes(rows, -1, -2)
        ones = xp.ones_like(products)
        below = xp.tril(ones, -1)
        return products * below + diagonal * (xp.tril(ones) - below)

    def covariance_factor(self, prediction: Mapping[str, Any], xp: Any) -> Any:
        """Compute the lower triangular L (..., M*Y, M*Y) in units of y; the covariance is L L^T.

        A low-rank covariance is factored in float64: its condition is the square of its factor's.
        """
        factor = prediction["factor"]
        if self.covariance == "low-rank":
            rows, own = (self._wide(prediction[name], xp) for name in ("factor", "own"))
            rows = rows * self._wide(prediction["std"], xp)[..., None]
            rows = rows.reshape(*rows.shape[:-3], -1, self.rank)
            variances = (own * own).reshape(*rows.shape[:-1])[..., None]
            covariance = rows @ xp.swapaxes(rows, -1, -2)
            triangular = xp.linalg.cholesky(covariance + variances * self._eye(covariance, xp))
            return triangular.astype(factor.dtype) if xp is np else triangular.to(factor.dtype)
        lower = self.lower(factor, xp)
        std = prediction["std"].reshape(*lower.shape[:-1])
        return lower * (std / (lower * lower).sum(-1) ** 0.5)[..., None]

    @staticmethod
    def _wide(values: Any, xp: Any) -> Any:
        return values.astype(np.float64) if xp is np else values.double()

    @staticmethod
    def _eye(square: Any, xp: Any) -> Any:
        ones = xp.ones_like(square)
        return xp.tril(ones) - xp.tril(ones, -1)

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
        mean = prediction["mean"]
        drawn: FloatArray
        if self.covariance == "low-rank":  # needs no triangle: R shared numbers, one of each target
            shared = random.standard_normal((*mean.shape[:-2], 1, self.rank, 1))
            common = (prediction["factor"] @ shared)[..., 0]  # (..., M, Y)
            own = prediction["own"] * random.standard_normal(mean.shape)
            drawn = mean + prediction["std"] * common + own
            return drawn
        factor = self.covariance_factor(prediction, np)
        noise = random.standard_normal(factor.shape[:-1])[..., None]
        drawn = mean + (factor @ noise).reshape(mean.shape)
        return drawn

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"mean": prediction["mean"], "std": prediction["std"]}
