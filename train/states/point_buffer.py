"""Define a state that keeps points: a fixed number of rows of each tensor, and a count.

    slots    0      1      2      3     ...  capacity-1  [spare]
             row    row    row    empty ...  empty
                                  ^ count: the next row's place while the buffer is not full

A point that finds the buffer full is treated as chosen when the model is exported (`WHEN_FULL`):

    refuse      the step is not finite, so that no device commits it; a stream raises before that
    overwrite   the new point takes the place of the oldest one
    reservoir   of n points every one is held with the same chance, capacity / n: the new one
                takes a random place, or the spare row that nothing reads (Vitter 1985, algorithm R)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.contract import FINITE, SEED, WHEN_FULL, Ring, State
from edgefold.train.states.random_numbers import mixed

COUNT = "count"
SLOT = "slot"


def real_points(x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return points x and y (B, N, ...) with zeros where a mask (B, N) hides them, and the mask."""
    if mask is None:
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    x, y = (torch.where(mask[..., None], points, 0.0) for points in (x, y))
    return x, y, mask


@dataclass(frozen=True)
class PointBuffer:
    """Describes a buffer of points; the rows themselves are state tensors.

    Attributes:
        capacity: Number of points that can be held.
        when_full: How a full buffer takes a point: "refuse", "overwrite" the oldest one, or
            "reservoir", a random sample of all points.
        rows: Shape of one row of each state tensor, by the tensor's name.
        axis: Axis of a tensor along which the slots (places of rows) lie; streams are axis 0.
    """

    capacity: int
    when_full: str
    rows: Mapping[str, tuple[int, ...]]
    axis: int = 1

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}, must be at least 1")
        if self.when_full not in WHEN_FULL:
            raise ValueError(f"when_full is {self.when_full!r}; take one of {', '.join(WHEN_FULL)}")

    @property
    def is_reservoir(self) -> bool:
        """Return whether the buffer, once it is full, keeps a random sample of all points."""
        return self.when_full == "reservoir"

    @property
    def rings(self) -> dict[str, Ring]:
        """Return by each tensor's name the axis of its rows and where a new row is written."""
        ring = Ring(self.axis, slot=SLOT) if self.is_reservoir else Ring(self.axis, COUNT)
        return dict.fromkeys(self.rows, ring)

    def initial_state(self, n_streams: int) -> State:
        """Return an empty buffer for n_streams = B streams.

        It holds rows of zeros (B, slots, *row), `count` (B,), the number of points, and for a
        reservoir `seed` (B,).
        """
        n_slots, axis = self.capacity + self.is_reservoir, self.axis
        state: State = {
            name: torch.zeros(n_streams, *shape[: axis - 1], n_slots, *shape[axis - 1 :])
            for name, shape in self.rows.items()
        }
        state[COUNT] = torch.zeros(n_streams, dtype=torch.int64)
        if self.is_reservoir:
            state[SEED] = torch.zeros(n_streams, dtype=torch.int64)
        return state

    def written(
        self, state: State, rows: Mapping[str, Tensor], sound: Tensor | None = None
    ) -> State:
        """Return the state tensors that an update writes to keep one row of each tensor, (B, *row).

        `sound` (B,) is a number that is finite only if the rows are; by default the sum of the
        rows.
        """
        count = state[COUNT]
        written: State = {name: row.unsqueeze(self.axis) for name, row in rows.items()}
        written[COUNT] = count + 1
        # A row of values that are not finite must not be kept: it would stay for long.
        if sound is None:
            sound = torch.stack([row.flatten(1).sum(1) for row in rows.values()]).sum(0)
        if self.is_reservoir:
            place = mixed(state[SEED], count) % (count + 1)
            place = torch.where(count < self.capacity, count, place)
            written[SLOT] = place.clamp(max=self.capacity)
        elif self.when_full == "refuse":
            sound = torch.where(count < self.capacity, sound, torch.nan)
        written[FINITE] = sound
        return written

    def visible(self, state: State) -> Tensor:
        """Return True for each slot (place of a row) that holds a point, else False, (B, slots)."""
        n_slots = self.capacity + self.is_reservoir
        held = state[COUNT].clamp(max=self.capacity)
        return torch.arange(n_slots, device=held.device)[None] < held[:, None]
