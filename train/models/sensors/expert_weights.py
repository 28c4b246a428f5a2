"""The experts' density and the network's together, weighted by how well each has told the past.

    P = w_0 F + w_1 G(Phi^-1(F))        log w <- 0.995 log w + log score

A share goes back to the first weights with each row, so that neither is ever lost: the portfolio
can fall below the experts by little, whatever the network says. (Herbster and Warmuth 1998 call it
fixed share.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.models.sensors.features import normal_score
from edgefold.train.models.sensors.mixture import parts
from edgefold.train.models.sensors.network import Normals

MEMORY, SHARE = 0.995, 0.03
FIRST = (0.8, 0.2)
"""Weights of the experts and of the network, at first and of the share."""
GAIN_BOUND = 30.0
N_GRID, GRID_BOUND = 129, 4.0
"""Points and bound of the grid of z, for quantiles."""
NARROW, FARTHEST = 0.1, 1e30
"""Normals that are less wide hold their value exactly; a value that bounds nothing."""


def first_weights(n_streams: int) -> Tensor:
    """The logarithms of the first weights, (B, 2)."""
    return torch.log(torch.tensor(FIRST)).repeat(n_streams, 1)


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Weights (B, 2) of the experts' density and of the network's."""

    weight: Tensor
    normals: Normals

    @classmethod
    def of(cls, log_weight: Tensor, normals: Normals) -> Portfolio:
        """Make the portfolio from logarithms of weights, (B, 2)."""
        shared = (1 - SHARE) * log_weight.exp() + SHARE * torch.tensor(FIRST)
        return cls(shared, normals)

    def tails(self, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """Masses below and above values from those of the experts' density, all (B, V)."""
        first, second = self.weight.split(1, -1)
        lower, upper = self.normals.tails(normal_score(below, above))
        return first * below + second * lower, first * above + second * upper

    def floor_masses(self, levels: Tensor) -> Tensor:
        """Return the experts' mass below the quantiles at levels (Q,), (B, Q)."""
        grid = torch.linspace(-GRID_BOUND, GRID_BOUND, N_GRID)
        own = torch.special.ndtr(grid)
        first, second = self.weight.split(1, -1)
        mass = first * own + second * self.normals.tails(grid[None])[0]
        passed = parts(mass[:, None], levels[:, None])  # of each cell, (B, Q, N_GRID - 1)
        return own[0] + (passed * (own[1:] - own[:-1])).sum(-1)

    def exact(self, quantiles: Tensor, levels: Tensor, likely: Tensor) -> Tensor:
        """Quantiles (B, Q) at levels (Q,), where a value that comes exactly is one of them.

        A narrow normal that stands at such a value holds as many levels as it has weight: those
        around the mass below the value. `likely` (B, A) are the values of the last A normals.
        """
        n = likely.shape[1]
        z, log_std, log_weight = (part[:, -n:] for part in self.normals.parts)
        first, second = self.weight.split(1, -1)
        below = first * torch.special.ndtr(z) + second * self.normals.tails(z)[0]
        held = torch.where(log_std < math.log(NARROW), 0.5 * second * log_weight.exp(), -1.0)
        levels = levels[:, None]
        least = torch.where(levels >= (below - held)[:, None], likely[:, None], -FARTHEST)
        most = torch.where(levels <= (below + held)[:, None], likely[:, None], FARTHEST)
        return torch.minimum(torch.maximum(quantiles, least.amax(-1)), most.amin(-1))

    def gains(self, z: Tensor) -> Tensor:
        """Log density of each at z (B, 1) less that of the experts, in nats, (B, 2)."""
        network = self.normals.gain(z).clamp(-GAIN_BOUND, GAIN_BOUND)
        return torch.cat([torch.zeros_like(z), network], -1)

    def gain(self, gains: Tensor) -> Tensor:
        """Log density less that of the experts, in nats, (B, 1), from those of each."""
        return torch.logsumexp(gains + torch.log(self.weight), -1, keepdim=True)


def following(log_weight: Tensor, gains: Tensor, counts: Tensor) -> Tensor:
    """The kept logarithms of weights (B, 2) after a value, where that counts (B, 1).

    `gains` (B, 2) are those of each density at it, see `Portfolio.gains`.
    """
    updated = (MEMORY * log_weight + gains).log_softmax(-1)
    return torch.where(counts > 0, updated, log_weight)
