"""The contract that every streaming model obeys: a fold over a stream with a state of fixed size.

It says what the model's steps take and give, so that tasks, training, export and the contract
tests work on any model. It does not say how a model computes, nor how a stream is run on a device
(that is `edgefold.runtime`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
"""Named tensors of fixed shape, streams (B) leading."""

Memory = dict[str, Tensor]
"""What a query reads; depends on the state alone."""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """An independent normal prediction per target and output.

    Attributes:
        mean: (B, M, Y), in the model's scaled units.
        std: (B, M, Y), positive.
    """

    mean: Tensor
    std: Tensor

    def log_likelihood(self, y: Tensor) -> Tensor:
        """Log density of y (B, M, Y) in nats, summed over outputs: (B, M)."""
        return torch.distributions.Normal(self.mean, self.std).log_prob(y).sum(-1)


class StreamingModel(nn.Module, ABC):
    """A fold: `update` folds points into a state, `query` reads what `refresh` derives of it.

    Shapes: x is (B, U, X) or (B, M, X), y is (B, U, Y), mask is (B, U) with True for real points.
    A masked row is invisible even when it holds NaN. The empty state is a valid state; querying it
    gives the prior prediction.
    """

    n_inputs: int
    n_outputs: int

    @abstractmethod
    def initial_state(self, n_streams: int = 1) -> State:
        """The state of B streams that have seen nothing."""

    @abstractmethod
    def update(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        """Fold U points in. Any U gives the same result as U single points, up to rounding."""

    @abstractmethod
    def refresh(self, state: State) -> Memory:
        """Derive what queries read. A step of its own: many updates may pass between queries."""

    @abstractmethod
    def query(self, memory: Memory, x: Tensor) -> Gaussian:
        """Predict at x (B, M, X). Neither memory nor state is written."""

    @abstractmethod
    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Gaussian:
        """The whole fold at once, batched for training; equal to update, refresh and query."""
