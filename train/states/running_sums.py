"""Keep sums over an endless stream of points, in float32.

A plain float32 sum stops growing after some million points. So a state on a device has two levels:

    recent   plain sums of the points since the last `consolidate`
    base     sums of all older points, and
    rest     the part of them that float32 rounds off: base + rest is the value, to about 48 bits

    update, condition   points -> recent
    consolidate         recent -> base and rest, by compensated sums; recent is emptied
    merge               both states -> base and rest, by compensated sums; recent is emptied
    refresh             base + rest + recent

A count that is kept as one of the sums is exact up to 2^48 points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefold.train.contract import FINITE, State

CONSOLIDATE_EVERY = 128
"""Number of points in the recent sums before these move to the base. A float32 sum of so many
values of one sign has a relative error below 1e-5 in the worst case and of 1e-6 as a rule, and the
step's cost is spread over as many updates."""

RECENT, BASE, REST = "recent_sums", "base_sums", "rest_sums"


def accumulated(base: Tensor, rest: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Add `added` to a float32 number and its rest, the part that float32 rounds off.

    Return the new pair, whose sum is base + rest + added.

    """
    total, error = two_sum(base, added)
    return settled(total, rest + error)


def two_sum(base: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Return a float32 sum and its rounding error: total + error is base + added, exactly.

    TwoSum (Knuth, TAOCP 2, 4.2.2, theorem B).
    """
    total = base + added
    of_added = total - base
    of_base = total - of_added
    return total, (base - of_base) + (added - of_added)


def settled(total: Tensor, small: Tensor) -> tuple[Tensor, Tensor]:
    """Return total + small as a float32 number and the part of it that float32 rounds off."""
    following = total + small
    return following, small - (following - total)


def empty_sums(*shape: int) -> State:
    """Return the state of sums over no points; `shape` is (B, ...), that of one sum."""
    return {name: torch.zeros(shape) for name in (RECENT, BASE, REST)}


def consolidated(state: State) -> State:
    """Return the state after adding the recent sums to the older ones; the recent become 0."""
    base, rest = accumulated(state[BASE], state[REST], state[RECENT])
    # zeros_like would be a constant, kept in memory
    return {RECENT: state[RECENT] * 0.0, BASE: base, REST: rest}


def merged_sums(state: State, other: State) -> State:
    """Return the state of the sums over the points of two states; its recent sums are 0."""
    total, error = two_sum(state[BASE], state[RECENT])
    rest = state[REST] + error
    total, error = two_sum(total, other[BASE])
    rest = (rest + other[REST]) + error
    total, error = two_sum(total, other[RECENT])
    base, rest = settled(total, rest + error)
    # What overflows anywhere makes the base NaN: its sum stands for the whole step.
    return {RECENT: state[RECENT] * 0.0, BASE: base, REST: rest, FINITE: base.flatten(1).sum(1)}


def total_of(state: State) -> Tensor:
    """Return the sums over all points, (B, ...)."""
    return (state[BASE] + state[REST]) + state[RECENT]
