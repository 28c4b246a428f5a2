"""Define the optimiser Muon (Jordan et al. 2024): it makes the momentum of matrices orthogonal.

Otherwise the few large singular values of a gradient decide the whole step. Five steps of a
Newton-Schulz iteration bring all singular values close to 1. That suits the matrices between a
model's hidden layers; embeddings, learned latents, biases and last layers stay with Adam.

A matrix moves as far in each step, however small its gradient, so that its norm grows as long as a
training lasts. Weight decay ends that (Liu et al. 2025, "Muon is Scalable for LLM Training").
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from edgefold.runtime.errors import TrainingError
from edgefold.train.layers.attention import Linear

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of the polynomial A s + B s^3 + C s^5 that each iteration applies to the singular
values s. It raises small ones fast and leaves all of them between 0.7 and 1.2, which is as good as
1 for a step's direction."""


def orthogonal(matrices: Tensor, n_steps: int = 5) -> Tensor:
    """Return matrices (..., m, n) with the same singular vectors and all singular values near 1."""
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide / (wide.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(n_steps):
        square = x @ x.mT
        x = A * x + (B * square + C * square @ square) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


def hidden_matrices(model: nn.Module) -> Iterator[Tensor]:
    """Yield the weights of all linear layers, single or stacked, in layers with `hidden = True`."""
    for layer in model.modules():
        if getattr(layer, "hidden", False) is not True:  # a method of this name says nothing
            continue
        for part in layer.modules():
            if isinstance(part, Linear | nn.Linear):
                yield part.weight


class Muon(torch.optim.Adam):
    """An optimiser that moves a model's hidden matrices by Muon and all other parameters by Adam.

    Args:
        model: The model that is trained.
        lr: Learning rate of Adam.
        factor: Learning rate of Muon divided by that of Adam. A matrix moves by about its learning
            rate in every singular direction.
        momentum: Factor of Nesterov's momentum for the gradients of the matrices.
        matrix_decay: Weight decay of the matrices: each step removes this share of them, times
            Muon's learning rate.
        of_adam: Further arguments of torch's Adam; "capturable" holds for the matrices, too.

    Raises:
        TrainingError: The model has no layer with `hidden = True`.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        factor: float = 5.0,
        momentum: float = 0.95,
        matrix_decay: float = 0.0,
        **of_adam: Any,
    ):
        matrices = list(hidden_matrices(model))
        if not matrices:
            raise TrainingError(
                "muon moves the matrices of hidden layers, and this model has none (no layer says "
                "hidden = True); train it with --optimizer adam."
            )
        chosen = {id(matrix) for matrix in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        groups: list[dict[str, Any]] = [
            {"params": rest},
            {"params": matrices, "rate_factor": factor},
        ]
        super().__init__(groups, lr=lr, **of_adam)
        self.momentum, self.matrix_decay = momentum, matrix_decay

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        groups = self.param_groups
        of_adam, of_muon = groups
        try:
            self.param_groups = [of_adam]
            super().step()
        finally:
            self.param_groups = groups
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in of_muon["params"]:
            if parameter.grad is not None:
                alike[parameter.shape[-2:]].append(parameter)
        for shape, parameters in alike.items():  # matrices of one shape as one batch
            self._move(parameters, shape, of_muon["lr"])

    def _move(self, parameters: list[Tensor], shape: torch.Size, lr: float | Tensor) -> None:
        directions = []
        for parameter in parameters:
            state, gradient = self.state[parameter], parameter.grad
            assert gradient is not None
            if not state:
                state["step"] = torch.zeros(())  # torch's Adam looks for it when it is restored
                state["momentum"] = torch.zeros_like(parameter)
            state["step"] += 1
            state["momentum"].lerp_(gradient, 1 - self.momentum)
            directions.append(gradient.lerp(state["momentum"], self.momentum).reshape(-1, *shape))
        moves = orthogonal(torch.cat(directions))
        # A matrix (n_in, n_out) that widens has fewer singular values than outputs.
        scale = lr * math.sqrt(max(1.0, shape[1] / shape[0]))
        for parameter, move in zip(
            parameters, moves.split([len(d) for d in directions]), strict=True
        ):
            if self.matrix_decay:
                parameter.mul_(1 - lr * self.matrix_decay)
            parameter.sub_(scale * move.view_as(parameter))
