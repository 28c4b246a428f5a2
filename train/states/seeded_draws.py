"""Draw what a stream's seed decides: the noise of latent variables, and bootstraps.

A bootstrap is a random resampling of the points, with replacement. B is the number of streams.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from edgefold.train.states.random_numbers import PRIME, mixed, normal, uniform

STRIDE = 1_597_334_677
"""Step between the numbers of two places, so that two seeds give the same draws only at places that
are a random number of points apart."""
CHANCES = [math.exp(-1) / math.factorial(n) for n in range(12)]
QUANTILES = [int(PRIME * sum(CHANCES[: n + 1])) for n in range(len(CHANCES))]
"""Residues that divide the Poisson distribution of mean 1: a residue above the n-th one stands for
a number greater than n."""


Counts = Literal["poisson", "drawn"]
"""How often a bootstrap counts each of N points: as a Poisson number of mean 1 says, or as often as
N points say that are drawn with replacement, as published (Lee et al. 2020). Given their sum, such
Poisson numbers are distributed like the drawn ones; the sum itself varies by sqrt(N)."""
FIRST_STAGE = 2**20
"""Distance between the numbers of bootstraps in the two stages of a resampling, so that both draw
independently."""


class SeededNoise(nn.Module):
    """Computes S x D standard normal numbers for each seed, at the price of D random numbers.

    A table holds a pair of numbers for each of the S x D. The pair is rotated by an angle that the
    seed and the column (1 of D) give: a random shift of the angle of Box and Muller (Cranley and
    Patterson 1976). So the numbers of one seed are as independent as the table's, and those of two
    seeds are uncorrelated.

    Args:
        n_samples: S, the number of samples.
        width: D, the width.
    """

    table: Tensor

    def __init__(self, n_samples: int, width: int):
        super().__init__()
        place = torch.arange(2 * n_samples * width).view(2, n_samples, width)
        self.register_buffer("table", normal(place), persistent=False)

    def forward(self, seed: Tensor) -> Tensor:
        """Return the standard normal numbers (B, S, D) that belong to the seeds (B,)."""
        column = torch.arange(self.table.shape[-1], device=seed.device)
        angle = 2 * math.pi * uniform(column, seed[:, None])[:, None]  # (B, 1, D)
        return torch.cos(angle) * self.table[0] + torch.sin(angle) * self.table[1]


def bootstrap_weights(place: Tensor, seed: Tensor, n_samples: int) -> Tensor:
    """Return how often each point enters the context and each bootstrap: integers (B, U, 1 + K).

    The first number is that of the context, always 1; then come those of K bootstraps.

    Args:
        place: Number of points before each point, (B, U).
        seed: Seed of each stream, (B,).
        n_samples: K, the number of bootstraps.
    """
    bootstrap = torch.arange(n_samples, device=seed.device)
    drawn = mixed(bootstrap, (seed[:, None] + STRIDE * place)[..., None])
    quantiles = torch.tensor(QUANTILES, device=seed.device)
    weights = (drawn[..., None] > quantiles).sum(-1)  # (B, U, K)
    return torch.cat([torch.ones_like(weights[..., :1]), weights], -1)


def bootstrap_counts(
    visible: Tensor, seed: Tensor, n_samples: int, counts: Counts = "poisson"
) -> Tensor:
    """Return how often each of K bootstraps draws the point in each slot: floats (B, K, N).

    The Poisson numbers are those of `bootstrap_weights`. A bootstrap that draws no point at all
    becomes the context itself.

    Args:
        visible: True where a slot holds a point, (B, N); these slots are the first ones.
        seed: Seed of each stream, (B,).
        n_samples: K, the number of bootstraps.
        counts: How often a bootstrap counts a point.
    """
    if counts == "drawn":
        return _counted(_places(visible, seed, n_samples, FIRST_STAGE), visible)
    slot = torch.arange(visible.shape[1], device=visible.device)[None]
    drawn = bootstrap_weights(slot, seed, n_samples)[..., 1:].mT * visible[:, None]
    return torch.where(drawn.sum(2, keepdim=True) > 0, drawn, visible[:, None].long()).float()


def bootstrap_places(visible: Tensor, seed: Tensor, n_samples: int) -> Tensor:
    """Draw a point with replacement for each of the N slots of K bootstraps: integers (B, K, N).

    The result is the number of the slot that holds the drawn point; points must lie in the first
    slots. The arguments are those of `bootstrap_counts`.
    """
    return _places(visible, seed, n_samples, 0)


def _places(visible: Tensor, seed: Tensor, n_samples: int, first: int) -> Tensor:
    """Draw as `bootstrap_places` does, for bootstraps that are numbered from `first` on."""
    bootstrap = torch.arange(first, first + n_samples, device=visible.device)[:, None]
    slot = torch.arange(visible.shape[1], device=visible.device)
    n_held = visible.sum(1).clamp(min=1)[:, None, None]
    return mixed(seed[:, None, None], bootstrap, slot) % n_held


def _counted(places: Tensor, visible: Tensor) -> Tensor:
    """Count how often each of N places occurs among places (B, K, N): floats (B, K, N).

    Only the draws of slots that hold a point count. A place is written as two digits to a base near
    sqrt(N), whose indicators are multiplied: no tensor of N^2 numbers is made.
    """
    n_slots = places.shape[-1]
    base = math.isqrt(max(n_slots - 1, 0)) + 1
    high = torch.div(places, base, rounding_mode="trunc")[..., None]
    digits = torch.arange(base, device=places.device)
    real = visible[:, None, :, None]
    rows = ((high == digits) & real).float()  # (B, K, N, base)
    columns = ((places[..., None] - base * high) == digits).float()
    return (rows.mT @ columns).flatten(2)[..., :n_slots]
