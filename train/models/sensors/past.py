"""The stream's past as the experts need it: values, seasons and regressors at several horizons.

A stream keeps its last values in a ring; slot n of the stream lies at n % length. From a position
n, which has seen the slots up to n - 1, an expert of horizon h forecasts slot n + h - 1:

    n - 1 - mL ........ n + h - 1 - mL .......... n - 1 | n ........ n + h - 1
    then, m seasons ago  what came h slots later   newest position   what is forecast

m is the least number of seasons of L slots after which that slot is known: m = ceil(h / L).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.models.sensors.slot import Season

N_RECENT = 33
N_CHANGES = 6
N_LEVELS = 12
N_HARMONICS = 3
N_REGRESSORS = N_LEVELS + 3
CHANGE_BOUND, LEVEL_BOUND = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Past:
    """The past at H positions, each with a horizon.

    Attributes:
        newest: The last value, (B, H).
        level: The mean of the last 32 values, (B, H).
        then: The value m seasons before the newest, (B, H); the newest itself without a season.
        ahead: The value that came h slots after `then`, (B, H); likewise.
        season: 1.0 where `then` and `ahead` are of a season, (B, H).
        regressors: Of the least squares on changes and of that on levels, (B, H, 2, F), in scales
            of the stream, bounded.
    """

    newest: Tensor
    level: Tensor
    then: Tensor
    ahead: Tensor
    season: Tensor
    regressors: Tensor

    def split(self, n: int) -> tuple[Past, Past]:
        """The past at the first n positions, and at the others."""
        parts = (self.newest, self.level, self.then, self.ahead, self.season, self.regressors)
        first, others = zip(*(part.tensor_split([n], 1) for part in parts), strict=True)
        return Past(*first), Past(*others)


def read_past(
    values: Tensor, position: Tensor, horizon: Tensor, season: Season, scale: Tensor, coming: Tensor
) -> Past:
    """Read the past of streams from their rings.

    Args:
        values: The ring, (B, R).
        position: (B, P), int64.
        horizon: (B, P), int64, from 1 on.
        season: At the last of the positions.
        scale: Of the stream's changes, (B, P), positive.
        coming: The value of the slot before the last position, which the ring need not have yet,
            (B, 1).
    """
    latest, scale = position[:, -1:], scale[..., None]
    turn = season.length * ((horizon + season.length - 1) // season.length)  # m L, (B, H)
    known = (season.known > 0) & (position > turn + N_RECENT)
    far, near = torch.where(known, turn + 1, 1), torch.where(known, turn + 1 - horizon, 1)
    recent = torch.arange(1, N_RECENT + 1).expand(*position.shape, -1)
    back = torch.cat([recent, far[..., None], near[..., None]], -1)
    slot = position[..., None] - torch.minimum(back, position[..., None])  # (B, H, 35)
    held = values[:, None].expand(-1, position.shape[1], -1).gather(2, slot % values.shape[1])
    held = torch.where(slot == latest[..., None] - 1, coming[..., None], held)
    recent, then, ahead = held.split([N_RECENT, 1, 1], -1)
    level = recent[..., :32].mean(-1, keepdim=True)
    seasonal = known[..., None].float()
    phase = (season.phase + position + horizon - 1 - latest) % season.length
    regressors = torch.stack(
        [
            torch.cat([_changes(recent, level, then, ahead, seasonal, scale),
                       _waves(phase, season.length) * seasonal, torch.ones_like(level)], -1),
            torch.cat([_levels(recent, level, then, ahead, seasonal, scale),
                       torch.ones_like(level)], -1),
        ],
        -2,
    )  # fmt: skip
    newest, level, then, ahead = (part[..., 0] for part in (recent, level, then, ahead))
    return Past(newest, level, then, ahead, seasonal[..., 0], regressors)


def _changes(
    recent: Tensor, level: Tensor, then: Tensor, ahead: Tensor, season: Tensor, scale: Tensor
) -> Tensor:
    """The last changes, the season's coming change, and how far the newest value is from then."""
    newest = recent[..., :1]
    changes = recent[..., :N_CHANGES] - recent[..., 1 : N_CHANGES + 1]
    apart = newest - torch.where(season > 0, then, level)
    found = torch.cat([changes, (ahead - then) * season, apart], -1) / scale
    return found.clamp(-CHANGE_BOUND, CHANGE_BOUND)


def _levels(
    recent: Tensor, level: Tensor, then: Tensor, ahead: Tensor, season: Tensor, scale: Tensor
) -> Tensor:
    """The last values and the season's, around the level."""
    seasonal = (torch.cat([ahead, then], -1) - level) * season
    found = torch.cat([recent[..., :N_LEVELS] - level, seasonal], -1) / scale
    return found.clamp(-LEVEL_BOUND, LEVEL_BOUND)


def _waves(phase: Tensor, length: Tensor) -> Tensor:
    """Sines and cosines of a season at phases (B, H): (B, H, 2 N_HARMONICS)."""
    turns = 2 * math.pi * phase.float() / length.float()
    angle = turns[..., None] * torch.arange(1.0, N_HARMONICS + 1)
    return torch.cat([angle.sin(), angle.cos()], -1)
