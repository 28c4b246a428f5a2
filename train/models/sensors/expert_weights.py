"""Weigh the densities of experts (simple forecasters) and of the network by their past scores.

    P = w_0 F + w_1 G(Phi^-1(F))        log w <- 0.995 log w + log score

Here F is the experts' distribution, G the network's correction of it. With each row a share of the
weights is set back to the first weights, so that neither is ever lost: the portfolio can fall below
the experts by little, whatever the network says. (Herbster and Warmuth 1998 call it fixed share.)

Letters of shapes: B streams, Q levels, V values, A likely values.
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
"""First weights of the experts and of the network, to which a share is set back."""
GAIN_BOUND = 30.0
N_GRID, GRID_BOUND = 129, 4.0
"""Number of points, and bound, of the grid of z on which quantiles are computed."""
NARROW, FARTHEST = 0.1, 1e30
"""Standard deviation below which a normal holds its value exactly; and a value that bounds
nothing."""


def first_weights(n_streams: int) -> Tensor:
    """Return the logarithms of the first weights of the experts and the network, (B, 2)."""
    return torch.log(torch.tensor(FIRST)).repeat(n_streams, 1)


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Holds the weighted sum of two densities of a value, the experts' and the network's.

    Attributes:
        weight: Weights of the experts' density and of the network's, (B, 2).
        normals: The network's density, in the coordinate z: the normal quantile of the value under
            the experts' density.
    """

    weight: Tensor
    normals: Normals

    @classmethod
    def of(cls, log_weight: Tensor, normals: Normals) -> Portfolio:
        """Build the portfolio from logarithms of weights, (B, 2), and the network's density of z.

        `SHARE` of the weights is set back to the first weights.
        """
        shared = (1 - SHARE) * log_weight.exp() + SHARE * torch.tensor(FIRST)
        return cls(shared, normals)

    def tails(self, below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """Return the portfolio's masses below and above V values, each (B, V).

        The arguments are the masses `below` and `above` in the experts' density, (B, V).
        """
        first, second = self.weight.split(1, -1)
        lower, upper = self.normals.tails(normal_score(below, above))
        return first * below + second * lower, first * above + second * upper

    def floor_masses(self, levels: Tensor) -> Tensor:
        """Return the experts' mass below the portfolio's quantiles at levels (Q,): (B, Q)."""
        grid = torch.linspace(-GRID_BOUND, GRID_BOUND, N_GRID)
        own = torch.special.ndtr(grid)
        first, second = self.weight.split(1, -1)
        mass = first * own + second * self.normals.tails(grid[None])[0]
        passed = parts(mass[:, None], levels[:, None])  # of each cell, (B, Q, N_GRID - 1)
        return own[0] + (passed * (own[1:] - own[:-1])).sum(-1)

    def exact(self, quantiles: Tensor, levels: Tensor, likely: Tensor) -> Tensor:
        """Move quantiles (B, Q) at levels (Q,) to `likely` values (B, A) with a mass of their own.

        The last A normals of the network stand at these values, which the sensor may show exactly.
        If such a normal is narrower than `NARROW`, all its weight counts as mass at its value: each
        quantile whose level is within half this weight of the mass below the value becomes it.
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
        """Return log densities at z (B, 1) minus that of the experts, in nats, (B, 2).

        z is the normal quantile of a value under the experts' density. The two columns are for the
        experts' density, thus 0, and for the network's.
        """
        network = self.normals.gain(z).clamp(-GAIN_BOUND, GAIN_BOUND)
        return torch.cat([torch.zeros_like(z), network], -1)

    def gain(self, gains: Tensor) -> Tensor:
        """Return the portfolio's log density minus that of the experts, in nats, (B, 1).

        `gains` (B, 2) are those of `Portfolio.gains`.
        """
        return torch.logsumexp(gains + torch.log(self.weight), -1, keepdim=True)


def following(log_weight: Tensor, gains: Tensor, counts: Tensor) -> Tensor:
    """Return the logarithms of the two densities' weights, (B, 2), after a value.

    Args:
        log_weight: Logarithms of the weights before the value, (B, 2).
        gains: Result of `Portfolio.gains` at the value, (B, 2).
        counts: 1.0 where the value changes the weights, else 0.0, (B, 1).
    """
    updated = (MEMORY * log_weight + gains).log_softmax(-1)
    return torch.where(counts > 0, updated, log_weight)
