"""A Kalman filter: a level with a trend, and the weights of optional inputs, from noisy values.

The model is linear and Gaussian, so that mean and covariance are exact and nothing is trained:

    level' = level + trend + noise       trend' = trend + noise       weights' = weights + noise
    y      = level + weights . x + noise

Kalman, "A New Approach to Linear Filtering and Prediction Problems", 1960. The covariance is
updated in Joseph's form, A P A' + r k k' (Bucy and Joseph, 1968), a sum of two positive parts: it
stays positive where the shorter P - k h' P loses its digits in float32.

    edgefold verify examples/kalman.py:Kalman
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Kalman(StreamingModel):
    """The filter; its hidden values are level, trend and one weight for each input: S = 2 + X.

    Every standard deviation is in scaled units of y.

    Args:
        level_std: Of the level's noise in one step.
        trend_std: Of the trend's noise in one step.
        weight_std: Of each weight's noise in one step.
        noise_std: Of the noise on y.
        first_std: Of each hidden value before the first point; the means are 0.
        n_inputs: X; 0 for a sequence of y alone.
    """

    transition: Tensor
    drift: Tensor
    first: Tensor

    def __init__(
        self,
        level_std: float = 0.1,
        trend_std: float = 0.003,
        weight_std: float = 0.0,
        noise_std: float = 0.1,
        first_std: float = 1.0,
        n_inputs: int = 0,
    ):
        super().__init__()
        self.n_inputs, self.noise_variance = n_inputs, noise_std**2
        n_hidden = 2 + n_inputs
        transition = torch.eye(n_hidden)
        transition[0, 1] = 1.0  # the trend moves the level
        stds = torch.tensor([level_std, trend_std, *[weight_std] * n_inputs])
        self.register_buffer("transition", transition)
        self.register_buffer("drift", torch.diag(stds**2))
        self.register_buffer("first", first_std**2 * torch.eye(n_hidden))

    def initial_state(self, n_streams: int = 1) -> State:
        """Mean (B, S) and covariance (B, S, S) of the hidden values at the next point."""
        covariance = self.first.repeat(n_streams, 1, 1)
        return {"mean": covariance.new_zeros(covariance.shape[:2]), "covariance": covariance}

    def _observed(self, x: Tensor) -> Tensor:
        """h = (1, 0, x), by which y = h . hidden + noise: (..., S) for x (..., X)."""
        return F.pad(F.pad(x, (1, 0)), (1, 0), value=1.0)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, 1): correct by the point, then go one step ahead."""
        mean, covariance = state["mean"][..., None], state["covariance"]  # (B, S, 1), (B, S, S)
        h = self._observed(x)[..., None]
        reach = covariance @ h
        gain = self.transition @ reach / (h.mT @ reach + self.noise_variance)  # (B, S, 1)
        keep = self.transition - gain @ h.mT  # A = F - k h', (B, S, S)
        covariance = keep @ covariance @ keep.mT + self.noise_variance * (gain @ gain.mT)
        mean = keep @ mean + gain * y[..., None]
        return {"mean": mean[..., 0], "covariance": covariance + self.drift}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, 1) of y at the next step."""
        h = self._observed(x)
        variance = ((h @ cache["covariance"]) * h).sum(-1, keepdim=True) + self.noise_variance
        return {"mean": h @ cache["mean"][..., None], "std": torch.sqrt(variance)}
