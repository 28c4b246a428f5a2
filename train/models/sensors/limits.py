"""Find limits that a sensor never crosses: zero, the end of a scale, the rail of a converter.

    value ─> is it at the smallest so far, or near zero? ─> visits, without a crossing ─> limit

Both sides are treated alike: the largest value is the smallest of the negated ones. Two values may
be a limit of a side:

    extreme    the smallest value so far, if the sensor came to it several times from elsewhere and
               lay at it at least as often as beside it: values pile up at a rail, while a sensor
               that swings freely is seldom at its extreme
    zero       if the sensor came near to it several times and never crossed it

A spread is the mean change from slot to slot, by day and by night, unlike the scale of the stream,
which follows a quiet night. At the extreme is what lies within a tenth of a spread; beside it what
lies within two, and the next larger value, which may be farther if values come in steps. A value
beyond a limit by more than a tenth of a spread takes it away, until there is as much evidence
again. An extreme that was not met for long, such as a false value of years ago, is given up for the
value at hand, which falls to the next extreme within some rows.

Letters of shapes: B streams, of which column 0 is the lower side and column 1 the upper one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefold.train.contract import State
from edgefold.train.models.sensors.slot import Slot

N_VISITS, N_AT = 5.0, 20.0
"""Number of times that a sensor must have come to a limit, and of values at an extreme."""
NEAR, BESIDE = 0.1, 2.0
"""Distances, in spreads, that are at a value, and beside it."""
MEMORY, JUMP, FEW = 0.998, 20.0, 30.0
"""Weight of older changes in the spread; how many spreads a change counts for at most, and the
number of changes from which on it does."""
FORGOTTEN = 4096.0
"""Number of measured values after which an extreme that was not met is given up."""
NONE = 1e30
"""Stands for a limit that is not there; larger than any value."""
SIDES = (1.0, -1.0)


def initial_limits(n_streams: int) -> State:
    """Return the state of n_streams streams that have seen no value."""
    zeros = torch.zeros(n_streams, 2)
    return {
        "change": torch.zeros(n_streams, 1),
        "weight": torch.zeros(n_streams, 1),
        "extreme": torch.full((n_streams, 2), NONE),
        "next": torch.full((n_streams, 2), NONE),
        "visits": zeros,
        "at": zeros,
        "beside": zeros,
        "age": zeros,
        "visits_zero": zeros,
        "bounds": torch.tensor([-NONE, NONE]).repeat(n_streams, 1),
    }


def learned(state: State, slot: Slot) -> State:
    """Return what a slot teaches; `bounds` (B, 2) are the limits, beyond all values where none is.

    A missing slot teaches nothing.
    """
    came, known = slot.measured, slot.measured * slot.started
    spread = state["change"] / state["weight"].clamp(min=1.0)
    most = torch.where(state["weight"] >= FEW, JUMP * spread, NONE)
    change = torch.minimum((slot.value - slot.newest).abs(), most)
    forget = 1 - (1 - MEMORY) * known
    total = forget * state["change"] + known * change
    weight = forget * state["weight"] + known
    spread = total / weight.clamp(min=1.0)
    sides, near = spread.new_tensor(SIDES), NEAR * spread
    value, before, extreme = slot.value * sides, slot.newest * sides, state["extreme"]
    is_new = ((value < extreme - near) | (state["age"] >= FORGOTTEN)).float() * came
    is_kept = 1 - is_new
    is_at = (value <= extreme + near).float() * came * is_kept
    is_other = came * is_kept * (1 - is_at)
    following = torch.where(is_other > 0, torch.minimum(state["next"], value), state["next"])
    is_beside = is_other * (value <= torch.maximum(following, extreme + BESIDE * spread))
    is_near, was_near = ((of >= 0) & (of <= near) for of in (value, before))
    visits_zero = state["visits_zero"] + (is_near & ~was_near) * came
    found = {
        "change": total,
        "weight": weight,
        "extreme": torch.where(
            is_new > 0, value, torch.where(is_at > 0, torch.minimum(extreme, value), extreme)
        ),
        "next": torch.where(is_new > 0, NONE, following),
        "visits": is_kept * (state["visits"] + is_at * (before > extreme + near)) + is_new,
        "at": is_kept * (state["at"] + is_at) + is_new,
        "beside": is_kept * (state["beside"] + is_beside),
        "age": is_kept * (1 - is_at) * (state["age"] + came),
        "visits_zero": torch.where((value < 0) & (came > 0), 0.0, visits_zero),
    }
    piles_up = (found["visits"] >= N_VISITS) & (found["at"] >= N_AT)
    is_limit = piles_up & (found["at"] >= found["beside"])
    at_zero = torch.where(found["visits_zero"] >= N_VISITS, 0.0, -NONE)
    return {**found, "bounds": sides * torch.where(is_limit, found["extreme"], at_zero)}


def within(values: Tensor, bounds: Tensor) -> Tensor:
    """Return values (B, ...) that bounds (B, 2) enclose, moved to the nearer bound if beyond it."""
    low, high = (b.reshape(-1, *[1] * (values.ndim - 1)) for b in bounds.split(1, 1))
    return torch.minimum(torch.maximum(values, low), high)
