"""Mix the experts with learned tails: a density for the next value that calibrates itself.

f = pi_0 N(newest value, nearly 0)  +  sum_k w_k sum_j pi_j N(f_k, c_j s_k)

w    weights of the experts by their past log score, forgotten within some 50 values s    running
errors of each expert, bounded below by a part of the stream's scale, and above by
     their median
pi   shares of the widths c, by how well each has explained the past: the tails; pi_0 is the
     share of exact repeats, for sensors that quantise or sleep

Letters of shapes: B streams, H horizons, K experts, N components, Q masses, V values, G grid
points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgefold.train.models.sensors.experts import N_EXPERTS
from edgefold.train.models.sensors.scale import LEAST
from edgefold.train.models.sensors.slot import Slot

WIDTHS = (0.05, 0.25, 0.5, 1.0, 1.7, 3.5, 10.0)
SHARES = (0.02, 0.02, 0.06, 0.15, 0.47, 0.18, 0.08, 0.02)
"""First shares: of the repeats, then of each width."""
REPEAT_WIDTH = 0.01
LEAST_SHARE = (1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-4, 2e-5)
"""Least shares: of the repeats, then of each width. Outliers must teach what explains an
outlier."""
LEAST_WEIGHT = 1e-12
FIRST_TYPICAL = 1e30
FLOOR, FIRST_ERROR, MOST_ERROR = 0.02, 1.25, 30.0
"""Least running error of an expert, the one before the first value, and the largest, in scales."""
WEIGHT_MEMORY, ERROR_MEMORY = 0.98, 0.98
SHARE_RATE = (*(0.04,) * 6, 0.005, 0.005)
"""Rates at which shares are learned, for repeats and each width: the shares of the widest normals,
which are the tails, are remembered longest."""
MOST_TYPICAL, GROWTH = 30.0, 1.1
"""Largest running error, in typical errors, and the factor by which a typical error moves with each
value: it is the median of the errors, found step by step, which outliers cannot carry away."""
EARLY = 6.0
"""Exponent by which the bound of a running error tightens while it has seen few values."""
FULL_BOUND = MOST_TYPICAL * (1 - ERROR_MEMORY) ** -(0.5 + EARLY)
"""Bound of the root of a sum of squares: `MOST_TYPICAL` once the sum has all its weight."""
ERROR_BOUND, SCORE_BOUND = 6.0, 50.0
"""Largest error that counts, in running errors, and the largest loss of a score, in nats."""
FARTHEST = 1e4
"""Largest distance from the mean of a component, in its standard deviations, that still makes a
difference."""
LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
ROOT_HALF = math.sqrt(0.5)
N_GRID, N_FINE, GRID_BOUND = 33, 9, 5.0
GRID = torch.linspace(-GRID_BOUND, GRID_BOUND, N_GRID).sinh()
"""Points where masses are computed first: around the mean, in the mixture's mean absolute
deviations."""
PASSED = torch.arange(N_GRID + 1).clamp(1, N_GRID - 1)
"""Upper end of the cell to search, by the number of grid points that have less mass below."""
FINE_GRIDS = torch.lerp(GRID[PASSED - 1, None], GRID[PASSED, None], torch.linspace(0, 1, N_FINE))
"""Points within each cell of the grid, (N_GRID + 1, N_FINE)."""
N_WIDTHS = len(WIDTHS)
EXPERT_OF = (torch.arange(1 + N_EXPERTS * N_WIDTHS) + N_WIDTHS - 1) // N_WIDTHS
WIDTH_OF = (torch.arange(N_EXPERTS * N_WIDTHS + 1) - 1) % N_WIDTHS + 1
WIDTH_OF[0] = 0
"""Number of the expert (`EXPERT_OF`) and of the width of each component, from 1 on; the repeats
come first and have 0."""
WIDTH_OF_EACH = torch.tensor((REPEAT_WIDTH, *WIDTHS))[WIDTH_OF]
BY_WIDTH = torch.eye(1 + N_WIDTHS)[WIDTH_OF]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Holds N normal components for each stream and horizon.

    Attributes:
        mean, std: Mean and standard deviation of each component, (B, H, N).
        weight: Weights of the components, (B, H, N), of sum 1.
        expert: Weights of the experts, (B, H, K), of sum 1.
    """

    mean: Tensor
    std: Tensor
    weight: Tensor
    expert: Tensor

    def first(self) -> Mixture:
        """Return the mixture of only the first horizon."""
        return Mixture(*(part[:, :1] for part in self._parts))

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return self.mean, self.std, self.weight, self.expert

    def score(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compare values (B, 1) with the mixture.

        Returns:
            Masses below and above the value, each (B, H), and the log of each weighted component's
                density plus log root 2 pi, (B, H, N).
        """
        apart = ROOT_HALF * (value[..., None] - self.mean) / self.std
        half = 0.5 * (self.weight * torch.erf(apart)).sum(-1)
        far = ROOT_HALF * FARTHEST
        height = torch.log(self.weight.clamp(min=LEAST_WEIGHT) / self.std)
        return 0.5 + half, 0.5 - half, height - (apart.clamp(-far, far) ** 2)

    def tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the masses below and above values (B, H, V), each (B, H, V)."""
        apart = (value[..., None] - self.mean[..., None, :]) / self.std[..., None, :]
        half = 0.5 * torch.erf(ROOT_HALF * apart)
        weight = self.weight[..., None, :]
        apart = (weight * half).sum(-1)
        return 0.5 + apart, 0.5 - apart

    def middle(self) -> Tensor:
        """Return the mean of the mixture, (B, H, 1)."""
        return (self.weight * self.mean).sum(-1, keepdim=True)

    def quantiles(self, below: Tensor) -> Tensor:
        """Return the values below which the masses `below` (B, H, Q) lie, (B, H, Q).

        They are found by two grids, the second within a cell of the first, then a straight line:
        exact to some 1 % of the mixture's mean absolute deviation.
        """
        center = self.middle()
        reach = (self.weight * ((self.mean - center).abs() + self.std)).sum(-1, keepdim=True)
        narrow, weight = ROOT_HALF / self.std, self.weight[..., None]
        balance = 2 * below - 1  # mass below less that above

        def balance_at(value: Tensor) -> Tensor:  # (B, H, G) to (B, H, G, 1)
            apart = (value[..., None] - self.mean[..., None, :]) * narrow[..., None, :]
            return torch.erf(apart) @ weight

        cell = (balance_at(center + reach * GRID) < balance[..., None, :]).sum(-2)  # (B, H, Q)
        fine = nn.functional.embedding(cell, FINE_GRIDS).flatten(-2)
        fine = center + reach * fine  # (B, H, Q * N_FINE)
        balances, fine = (of.view(*cell.shape, N_FINE) for of in (balance_at(fine), fine))
        low, high = fine[..., 0], fine[..., -1]
        return low + parts(balances, balance[..., None]).mean(-1) * (high - low)


def parts(mass: Tensor, below: Tensor) -> Tensor:
    """Return the share of each cell of a grid that lies left of a quantile, (..., G - 1).

    A share is from 0 to 1. The quantile is where the mass is `below`; `mass` (..., G) are the
    rising masses at the grid's points, with a straight line within a cell.
    """
    less, more = mass[..., :-1], mass[..., 1:]
    return ((below - less) / (more - less).clamp(min=1e-9)).clamp(0.0, 1.0)


def initial_mixture(n_streams: int, n_horizons: int) -> dict[str, Tensor]:
    """Return the state of a mixture that has seen no value."""
    zeros = torch.zeros
    state = {
        "log_weight": torch.full((n_streams, n_horizons, N_EXPERTS), -math.log(N_EXPERTS)),
        "squared": zeros(n_streams, n_horizons, N_EXPERTS),
        "scored": zeros(n_streams, n_horizons, 1),
        "typical": torch.full((n_streams, n_horizons, N_EXPERTS), FIRST_TYPICAL),
        "share": torch.tensor(SHARES).repeat(n_streams, n_horizons, 1),
    }
    return state | shape(state, torch.full((n_streams, 1), LEAST))


def shape(state: dict[str, Tensor], scale: Tensor) -> dict[str, Tensor]:
    """Compute the tensors that a density needs in addition to forecasts, for a scale (B, 1).

    These are the running error of each expert, (B, H, K), and the standard deviation and the weight
    of each component, (B, H, N).
    """
    scored, scale = state["scored"], scale[..., None]
    running = torch.sqrt(state["squared"] / scored.clamp(min=1e-3)) / scale
    error = torch.where(scored > 0, running, FIRST_ERROR).clamp(FLOOR, MOST_ERROR)
    with_repeats = torch.cat([torch.ones_like(scored), error], -1)
    expert = torch.cat([torch.ones_like(scored), state["log_weight"].exp()], -1)
    return {
        "error": error * scale,
        "std": with_repeats.index_select(-1, EXPERT_OF) * WIDTH_OF_EACH * scale,
        "weight": expert.index_select(-1, EXPERT_OF) * state["share"].index_select(-1, WIDTH_OF),
    }


def mixture(state: dict[str, Tensor], forecast: Tensor, newest: Tensor) -> Mixture:
    """Return the density of the values to come, at each horizon.

    `forecast` (B, H, K) are the experts' forecasts of these values, made after the value `newest`
    (B, 1), around which the component for repeats lies.
    """
    repeat = newest[..., None].expand(-1, forecast.shape[1], -1)
    mean = torch.cat([repeat, forecast], -1).index_select(-1, EXPERT_OF)
    return Mixture(mean, state["std"], state["weight"], state["log_weight"].exp())


def learned(
    state: dict[str, Tensor], explained: Tensor, forecast: Tensor, slot: Slot, known: Tensor
) -> dict[str, Tensor]:
    """Return the mixture's state after a slot.

    Args:
        state: State of the mixture before the slot.
        explained: Log density of each weighted component at the slot's value, (B, H, N).
        forecast: Forecasts of the slot by the experts, (B, H, K).
        slot: The slot that came.
        known: 1.0 where there are a value and a forecast of it, (B, H, 1), else 0.0.
    """
    error = state["error"]
    apart = slot.value[..., None] - forecast
    score = -0.5 * ((apart / error) ** 2).clamp(max=SCORE_BOUND) - torch.log(error)
    log_weight = (WEIGHT_MEMORY * state["log_weight"] + score).log_softmax(-1)
    memory = 1 - (1 - ERROR_MEMORY) * known
    bounded = torch.minimum(apart.abs(), ERROR_BOUND * error)
    typical = _typical(state["typical"], apart, slot, known)
    scored = memory * state["scored"] + known
    most = typical * (FULL_BOUND * scored.clamp(min=1.0) ** -EARLY)
    # How well each width explains the value, whatever the expert.
    cause = explained.softmax(-1) @ BY_WIDTH.to(explained.dtype)
    rate = torch.tensor(SHARE_RATE) * known
    share = state["share"] + rate * (cause - state["share"])
    share = torch.maximum(share, torch.tensor(LEAST_SHARE))
    return {
        "log_weight": torch.where(known > 0, log_weight, state["log_weight"]),
        "squared": torch.minimum(memory * state["squared"] + known * bounded**2, most * most),
        "scored": scored,
        "typical": typical,
        "share": share / share.sum(-1, keepdim=True),
    }


def _typical(typical: Tensor, apart: Tensor, slot: Slot, known: Tensor) -> Tensor:
    """Return each expert's typical error, a running median of absolute errors, (B, H, K).

    `typical` (B, H, K) is the median before the slot, `apart` (B, H, K) the newest error, which
    counts where `known` (B, H, 1) is 1.0. Repeats of a value change nothing.
    """
    moved = typical * torch.where(apart.abs() > typical, GROWTH, 1 / GROWTH)
    change = (slot.value - slot.newest)[..., None] * known
    typical = torch.where(change == 0, typical, moved)
    scale = slot.scale[..., None]
    return torch.minimum(torch.maximum(typical, FLOOR * scale), MOST_ERROR * scale)
