"""Describe one slot of a stream, as all parts of the model of sensors see it.

A slot is one place in the even sequence of times in which a sensor's rows come. B is the number of
streams, H of horizons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgefold.runtime.predictions.sensor_forecast import NO_SEASON


@dataclass(frozen=True, slots=True)
class SlotSeason:
    """Describes a stream's season, the period after which it repeats, and a slot's place in it.

    Attributes:
        length: Length of the season in slots, (B, 1), int64; 1 where there is none.
        phase: Place of a slot in the season, (B, 1), int64, from 0 to length - 1.
        known: 1.0 where there is a season, else 0.0, (B, 1).
    """

    length: Tensor
    phase: Tensor
    known: Tensor


@dataclass(frozen=True, slots=True)
class Slot:
    """Describes a slot (time step) of a stream that has come.

    Attributes:
        n: Number of slots before it, (B, 1), int64.
        value: Value that was measured, or was forecast where it is missing, (B, 1).
        measured: 1.0 where the value was measured, else 0.0, (B, 1).
        started: 0.0 before the first measured value, then 1.0, (B, 1).
        newest: Value of the slot before, (B, 1).
        scale: Scale of the stream's changes before the slot, (B, 1), positive.
        season: Season of the stream, with the slot's phase.
        age: Number of slots since the season was found, (B, 1).
        passed: 1.0 once a whole season has passed since it was found, else 0.0, (B, 1).
        horizon: Number of slots that each forecast looks ahead, (B, H, 1), int64.
        phase: Place in the season of the slot that each forecast is for, (B, H, 1), int64.
    """

    n: Tensor
    value: Tensor
    measured: Tensor
    started: Tensor
    newest: Tensor
    scale: Tensor
    season: SlotSeason
    age: Tensor
    passed: Tensor
    horizon: Tensor
    phase: Tensor

    def ahead(self, horizons: tuple[int, ...]) -> Slot:
        """Return the slot for forecasts at some horizons, and one season ahead as the last.

        The season of a stream without one is `NO_SEASON` slots.
        """
        known = self.season.known > 0
        season = torch.where(known, self.season.length, NO_SEASON)
        horizon = torch.cat([self.n.new_tensor(horizons).expand(len(self.n), -1), season], 1)
        phase = (self.season.phase + horizon) % self.season.length
        return replace(self, horizon=horizon[..., None], phase=phase[..., None])
