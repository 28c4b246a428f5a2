"""Read a stream's past as the experts need it: values, seasons and regressors.

They are read at several horizons. A stream keeps its last values in a ring; slot n of the stream
lies at n % length. From a position n, which has seen the slots up to n - 1, an expert of horizon h
forecasts slot n + h - 1:

    n - 1 - mL ........ n + h - 1 - mL .......... n - 1 | n ........ n + h - 1
    then, m seasons ago  what came h slots later   newest position   what is forecast

m is the least number of seasons of L slots after which that slot is known: m = ceil(h / L).

Letters of shapes: B streams, R values in the ring, H horizons, P positions, F regressors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.models.sensors.slot import Slot

N_RECENT = 33
N_CHANGES = 6
N_LEVELS = 12
N_HARMONICS = 3
N_REGRESSORS = N_LEVELS + 3
CHANGE_BOUND, LEVEL_BOUND = 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Past:
    """Holds what experts read of the past, to forecast at H horizons (numbers of slots ahead).

    Attributes:
        simple: Four forecasts, (B, H, 4): the newest value, `ahead`, the newest value plus the
            season's change, and the mean of the last 32 values. `ahead` is the value one season
            before the one forecast; without a season it is the newest value.
        season: True where `ahead` is from a season, (B, H, 1).
        bases: Number to which each of the three least squares adds its forecast, (B, H, 3).
        regressors: Regressors of each least squares, in scales of the stream, bounded, (B, H, 3,
            F): changes for the first two, levels for the third.
    """

    simple: Tensor
    season: Tensor
    bases: Tensor
    regressors: Tensor


def read_values(ring: Tensor, slot: Slot) -> tuple[Tensor, Tensor]:
    """Return the values for forecasts of a slot, and those for forecasts of the slots after it.

    Args:
        ring: The last values, (B, R); it need not have the slot's own yet.
        slot: The newest slot.

    Returns:
        Values (B, 2 H, N_RECENT + 2) and a mask (B, 2 H, 1). The first H rows are for forecasts of
            the slot, one for each horizon, as the past was when they were made; the last H rows are
            for forecasts of later slots. A row has the last `N_RECENT` values, newest first, then
            the value some seasons before the newest one, and that some seasons before the forecast
            one. The mask is True where the stream has such a season.
    """
    late = -slot.horizon % slot.season.length[..., None]  # m L - h
    back = torch.cat([slot.horizon + late, late], -1)  # (B, H, 2)
    newest = slot.n[..., None] - torch.cat([slot.horizon, torch.zeros_like(slot.horizon)], 1)
    far = newest - torch.cat([back, back], 1)  # slots of `then` and `ahead`
    known = (far[..., :1] >= N_RECENT) & (slot.season.length > 1)[..., None]
    recent = newest - torch.arange(N_RECENT)
    at = torch.cat([recent, torch.where(known, far, newest)], -1).clamp(min=0)
    return values_at(ring, at, slot)[0], known


def values_at(ring: Tensor, at: Tensor, slot: Slot) -> tuple[Tensor, Tensor]:
    """Return the values of slots by their numbers, and 1.0 where the ring still has them.

    Args:
        ring: The last values, (B, R); it need not have the slot's own yet.
        at: Numbers of slots, (B, P, N), up to that of `slot`.
        slot: The newest slot.

    Returns:
        Values and 1.0 or 0.0, both of the shape of `at`.
    """
    newest, kept = slot.n[..., None], ring.shape[1]
    held = ring.gather(1, (at.clamp(min=0) % kept).flatten(1)).view(at.shape)
    is_there = (at >= 0) & (at > newest - kept)
    return torch.where(at == newest, slot.value[..., None], held), is_there.float()


def past_of(held: Tensor, known: Tensor, slot: Slot, scale: Tensor) -> tuple[Past, Past]:
    """Return the past from which a slot was forecast, and that for forecasts of later slots.

    Args:
        held: Values read, (B, 2 H, N_RECENT + 2): H rows for forecasts of the slot, then H for
            later slots. A row has the last values, newest first, then the value some seasons before
            the newest one, and that some seasons before the forecast one.
        known: True where the two values of earlier seasons exist, (B, 2 H, 1).
        slot: The newest slot.
        scale: Scale of the stream (its mean absolute change) after the slot, (B, 1).
    """
    newest, (then, ahead) = held[..., :1], held[..., N_RECENT:].split(1, -1)
    level, seasonal = held[..., :32].mean(-1, keepdim=True), known.float()
    around = torch.cat([ahead, then], -1) - level
    differences = torch.cat(
        [
            held[..., :N_CHANGES] - held[..., 1 : N_CHANGES + 1],
            ahead - then,
            newest - torch.where(known, then, level),
            held[..., :N_LEVELS] - level,
            around * seasonal,
        ],
        -1,
    )
    both = torch.arange(2).repeat_interleave(slot.horizon.shape[1])
    scales = torch.cat([slot.scale, scale], 1).index_select(1, both)
    changes, levels = (differences / scales[..., None]).split([N_CHANGES + 2, N_LEVELS + 2], -1)
    phase = torch.cat([slot.season.phase[:, None].expand_as(slot.phase), slot.phase], 1)
    waves, one = _waves(phase, slot.season.length[..., None]) * seasonal, torch.ones_like(level)
    changes = changes.clamp(-CHANGE_BOUND, CHANGE_BOUND)
    levels = levels.clamp(-LEVEL_BOUND, LEVEL_BOUND)
    regressors = torch.cat([changes, waves, one, changes, waves, one, levels, one], -1)
    regressors = regressors.unflatten(-1, (3, N_REGRESSORS))
    simple = torch.cat([newest, ahead, newest + ahead - then, level], -1)
    bases = torch.cat([newest, newest, level], -1)
    parts = (part.chunk(2, 1) for part in (simple, known, bases, regressors))
    first, second = zip(*parts, strict=True)
    return Past(*first), Past(*second)


def _waves(phase: Tensor, length: Tensor) -> Tensor:
    """Return sines and cosines at phases (B, P, 1) of a season of `length`: (B, P, 2 N_HARMONICS).

    Phases and length are in slots.
    """
    turns = phase.float() / length.float()
    angle = turns * (2 * math.pi * torch.arange(1.0, N_HARMONICS + 1))
    return torch.cat([angle.sin(), angle.cos()], -1)
