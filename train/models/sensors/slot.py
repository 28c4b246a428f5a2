"""One slot of a stream, as all parts of the model of sensors see it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SlotSeason:
    """A stream's season.

    Attributes:
        length: In slots, (B, 1), int64; 1 where there is none.
        phase: Of a slot, (B, 1), int64, below the length.
        known: 1.0 where there is a season, else 0.0, (B, 1).
    """

    length: Tensor
    phase: Tensor
    known: Tensor


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that has come.

    Attributes:
        n: Slots before it, (B, 1), int64.
        value: Measured, or what was forecast where it is missing, (B, 1).
        measured: 1.0 or 0.0, (B, 1).
        started: 0.0 before the first measured value, then 1.0, (B, 1).
        newest: The value of the slot before, (B, 1).
        scale: Of the stream's changes up to then, (B, 1), positive.
        season: Its own, with its phase.
        age: Slots since the season was found, (B, 1).
        passed: 1.0 once the season has been passed through, else 0.0, (B, 1).
        horizon: Slots that a forecast looks ahead, (B, H, 1), int64.
        phase: Of the slots that many ahead, (B, H, 1), int64.
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
