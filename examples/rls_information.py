"""Least squares in information form: sums over the points, of which two streams' simply add up.

    G = sum of [x 1 y]' [x 1 y]        weights = (G_xx + ridge)^-1 G_xy

With S = X + 1 the first S rows and columns of G are those of the inputs and the constant. `refresh`
sweeps them (Goodnight, "A Tutorial on the SWEEP Operator", 1979): by Gauss-Jordan steps in place,
after which G holds the inverse, the weights, and the sum of squared residuals.

Nothing is forgotten: each point weighs the same, so that the order of points does not matter and
what two streams have learned joins by `merge`. `rls.py` forgets, and cannot. The sums are those of
`edgefold.train.states.running_sums`, which stay exact over an endless stream. The square of the
inputs' condition number must fit float32: scale the columns, as training does.

    edgefold verify examples/rls_information.py:InformationRls
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    merged_sums,
    total_of,
)


class InformationRls(StreamingModel):
    """A linear map with a constant, S = X + 1 weights for each output.

    Args:
        ridge: The pull towards weights of 0, in points' worth of unit inputs; positive.
        n_inputs: X.
        n_outputs: Y.
    """

    ordered = False
    consolidate_every = CONSOLIDATE_EVERY
    places: Tensor
    prior: Tensor

    def __init__(self, ridge: float = 1.0, n_inputs: int = 10, n_outputs: int = 1):
        super().__init__()
        if not ridge > 0:
            raise ValueError(f"ridge is {ridge}, must be positive: it makes the sums invertible")
        self.ridge, self.n_inputs, self.n_outputs = ridge, n_inputs, n_outputs
        self.register_buffer("places", torch.eye(n_inputs + 1 + n_outputs))
        self.register_buffer("prior", self.places.clone())
        self.prior[n_inputs + 1 :] = 0

    def initial_state(self, n_streams: int = 1) -> State:
        """The sums G in two levels, (B, S + Y, S + Y) each."""
        return empty_sums(n_streams, *self.places.shape)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y)."""
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        """x (B, U, X), y (B, U, Y), mask (B, U)."""
        rows = torch.cat([F.pad(x, (0, 1), value=1.0), y], -1)  # (B, U, S + Y)
        if mask is not None:
            rows = torch.where(mask[..., None], rows, 0.0)
        return {RECENT: state[RECENT] + rows.mT @ rows}

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def merge(self, state: State, other: State) -> State:
        return merged_sums(state, other)

    def refresh(self, state: State) -> Cache:
        """Inverse (B, S, S), weights (B, S, Y) and the noise's variance (B, Y)."""
        n, total = self.n_inputs + 1, total_of(state)
        swept = total + self.ridge * self.prior
        for k in range(n):  # each step solves for one input
            here, place, others = slice(k, k + 1), self.places[k], 1 - self.places[k]
            column, row = (
                place[:, None] - others[:, None] * swept[:, :, here],
                others * swept[:, here],
            )
            kept = others[:, None] * swept * others
            swept = kept + column @ (row + place) / swept[:, here, here]
        n_points = total[:, n - 1, n - 1 : n]
        residual = (swept[:, n:, n:] * self.places[n:, n:]).sum(-1)  # (B, Y)
        return {
            "inverse": swept[:, :n, :n],
            "weights": swept[:, :n, n:],
            "variance": (residual.clamp(min=0.0) + 1) / (n_points + 1),  # 1 before any point
        }

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        features = F.pad(x, (0, 1), value=1.0)  # (B, M, S)
        unknown = ((features @ cache["inverse"]) * features).sum(-1, keepdim=True)
        variance = cache["variance"][:, None] * (1 + unknown.clamp(min=0.0))
        return {"mean": features @ cache["weights"], "std": torch.sqrt(variance)}
