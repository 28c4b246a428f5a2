"""Recursive least squares: a linear map from x to y, fitted anew with every point.

    weights' = weights + k (y - weights . x)        k = P x / (forget + x' P x)

P is the inverse of the points' weighted Gram matrix. Older points weigh less by a factor `forget` a
point. Plackett, "Some Theorems in Least Squares", 1950; it is the baseline of
`edgefold.runtime.baselines` as a model.

In float32 the textbook's P turns negative after some thousand points that leave a direction of x
unexcited. So the state holds a root S of P = S S', updated as by Potter (1963), and P cannot. In
such directions P would also grow without end; a ridge that is never forgotten bounds it by
1 / floor:

    inverse of P' = forget * inverse of P + x x' + (1 - forget) * floor * identity

    edgefold verify examples/rls.py:Rls
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Rls(StreamingModel):
    """A linear map with a constant, S = X + 1 weights for each output.

    Args:
        forget: A point's weight after one further point; 0.998 remembers about 500 points.
        ridge: The start's pull towards weights of 0, in points' worth of unit inputs.
        floor: The part of that pull that is never forgotten.
        n_inputs: X.
        n_outputs: Y.
    """

    start: Tensor

    def __init__(
        self,
        forget: float = 0.998,
        ridge: float = 1.0,
        floor: float = 1e-6,
        n_inputs: int = 10,
        n_outputs: int = 1,
    ):
        super().__init__()
        if not (0 < forget <= 1 and 0 < floor <= ridge):
            raise ValueError(
                f"forget is {forget}, ridge {ridge} and floor {floor}; forget must be in (0, 1], "
                "floor positive and not above ridge."
            )
        self.forget, self.floor = forget, floor
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        self.ordered = forget < 1
        self.register_buffer("start", torch.eye(n_inputs + 1) / ridge**0.5)

    def initial_state(self, n_streams: int = 1) -> State:
        """The root S (B, S, S), weights (B, S, Y), points remembered and the noise's variance."""
        root, n_outputs = self.start.repeat(n_streams, 1, 1), self.n_outputs
        return {
            "root": root,
            "weights": root.new_zeros(n_streams, root.shape[1], n_outputs),
            "remembered": root.new_zeros(n_streams, 1),
            "variance": root.new_ones(n_streams, n_outputs),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y)."""
        forget, root = self.forget, state["root"]
        features = F.pad(x, (0, 1), value=1.0)[:, None]  # (B, 1, S)
        seen = features @ root  # x' S, (B, 1, S)
        leverage = (seen * seen).sum(-1, keepdim=True)  # x' P x, (B, 1, 1)
        reach = root @ seen.mT / (forget + leverage)  # the gain k, (B, S, 1)
        error = y[:, None] - features @ state["weights"]  # (B, 1, Y)
        # S - shrink k (x' S) is a root of (identity - k x') P. All that changes is summed first: S
        # times a number near 1 would round the same way at every point.
        shrink = 1 / (1 + torch.sqrt(forget / (forget + leverage)))
        grow = forget**-0.5 - 1
        change = grow * root - (1 + grow) * shrink * reach @ seen
        if forget < 1:  # P - e P P, to first order in e
            change = change - 0.5 * (1 - forget) * self.floor * (root @ (root.mT @ root))
        # An error before learning is larger than the noise by its leverage.
        old = forget * state["remembered"]
        squared = error[:, 0] ** 2 / (1 + leverage[:, 0])
        variance = (old * state["variance"] + squared) / (old + 1)
        return {
            "root": root + change,
            "weights": state["weights"] + reach @ error,
            "remembered": old + 1,
            "variance": variance,
        }

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        features = F.pad(x, (0, 1), value=1.0)  # (B, M, S)
        widened = 1 + ((features @ cache["root"]) ** 2).sum(-1, keepdim=True)
        variance = cache["variance"][:, None] * widened
        return {"mean": features @ cache["weights"], "std": torch.sqrt(variance.clamp(min=1e-24))}
