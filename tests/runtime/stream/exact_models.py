"""A model whose joint distribution is known: Bayesian linear regression with known noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.runtime import Gaussian, JointGaussian
from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from tests.contract import Array

NOISE = 0.3
"""Standard deviation of y around the line; the weights' is 1 before the first point."""
STEEP = 1e3
"""Length of the first row of a pair's factor: the second row can then tell any correlation."""
LEAST = 1e-4  # the diagonal that JointGaussian adds


class Line(StreamingModel):
    """y = w . (x, 1) + noise; predicts each target alone."""

    ordered = False

    def __init__(self, n_inputs: int = 1) -> None:
        super().__init__()
        self.n_inputs = n_inputs

    def initial_state(self, n_streams: int = 1) -> State:
        size = self.n_inputs + 1
        return {
            "weights": torch.zeros(n_streams, size, 1),
            "spread": torch.eye(size).repeat(n_streams, 1, 1),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        features = F.pad(x, (0, 1), value=1.0)[..., None]  # (B, X + 1, 1)
        reach = state["spread"] @ features
        gain = reach / (features.mT @ reach + NOISE**2)
        error = y[..., None] - features.mT @ state["weights"]
        return {
            "weights": state["weights"] + gain * error,
            "spread": state["spread"] - gain @ reach.mT,
        }

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        features = F.pad(x, (0, 1), value=1.0)
        variance = ((features @ cache["spread"]) * features).sum(-1, keepdim=True) + NOISE**2
        return {"mean": features @ cache["weights"], "std": variance.sqrt()}


class Pairs(Line):
    """The same, but two targets of one query are predicted jointly, and exactly."""

    prediction = JointGaussian(2, block=2)

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        told = super().query(cache, x)
        features, std = F.pad(x, (0, 1), value=1.0), told["std"]
        first = torch.full_like(std[:, :1], STEEP)
        rows = [torch.cat([first, torch.zeros_like(first)], -1)]
        if x.shape[1] == 2:
            shared = (features[:, :1] @ cache["spread"] @ features[:, 1:].mT)[..., 0]
            below = shared / std[:, 0]  # L_21
            ratio = below / (std[:, 1] ** 2 - below**2).sqrt()  # L_21 / L_22
            one = 1 + LEAST
            u = 2 * ratio * one / (STEEP + (STEEP**2 - 4 * ratio**2 * one).sqrt())
            rows.append(torch.cat([u, torch.ones_like(u)], -1)[:, None])
        return {**told, "factor": torch.cat(rows, 1)[:, :, None]}


class Permuted(Line):
    """The same, whose draws take the targets in a random order, which changes no distribution."""

    prediction = Gaussian(permuted=True)


class LowRank(Line):
    """The same, but two targets are predicted jointly, by F F^T + n^2, the covariance they have.

    F is the features times a root of the weights' covariance, and n the noise.
    """

    prediction = JointGaussian(2, block=2, covariance="low-rank")

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        told = super().query(cache, x)
        spread = cache["spread"]
        first = spread[:, :1, :1].sqrt()
        below = spread[:, 1:, :1] / first
        last = (spread[:, 1:, 1:] - below**2).sqrt()
        top = torch.cat([first, torch.zeros_like(first)], -1)
        root = torch.cat([top, torch.cat([below, last], -1)], 1)
        factor = F.pad(x, (0, 1), value=1.0) @ root / told["std"]
        return {**told, "factor": factor[:, :, None], "own": 0 * told["std"] + NOISE}


def exact_joint(x: Array, y: Array, targets: Array) -> tuple[Array, Array]:
    """Mean (M,) and covariance (M, M) of y at targets (M, X), given x (N, X) and y (N, 1)."""
    x, targets = (np.hstack([rows, np.ones((len(rows), 1))]) for rows in (x, targets))
    spread = np.linalg.inv(np.eye(x.shape[1]) + x.T @ x / NOISE**2)
    weights = spread @ x.T @ y[:, 0] / NOISE**2
    return targets @ weights, targets @ spread @ targets.T + NOISE**2 * np.eye(len(targets))
