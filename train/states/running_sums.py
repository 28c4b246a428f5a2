"""Sums over an endless stream of points, in float32.

A plain float32 sum stops growing after some million points. So a state on a device has two levels:

    recent   plain sums of the points since the last `consolidate`
    base     everything older, and
    rest     what float32 rounds off it: base + rest is the value, to about 48 bits

    update, condition   points -> recent
    consolidate         recent -> base and rest, by compensated sums; recent is emptied
    refresh             base + rest + recent

A count that is kept as one of the sums is exact up to 2^48 points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefold.train.contract import State

CONSOLIDATE_EVERY = 128
"""Points in the recent sums before they move to the base: a float32 sum of this many values of one
sign is off by under 1e-5 of itself in the worst case and by 1e-6 as a rule, and the step's cost is
spread over as many updates."""

RECENT, BASE, REST = "recent_sums", "base_sums", "rest_sums"


def accumulated(base: Tensor, rest: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """The pair whose sum is base + rest + added.

    TwoSum (Knuth, TAOCP 2, 4.2.2, theorem B): total + error is base + added, exactly.
    """
    total = base + added
    of_added = total - base
    of_base = total - of_added
    error = (base - of_base) + (added - of_added)
    small = rest + error
    following = total + small
    return following, small - (following - total)


def empty_sums(*shape: int) -> State:
    """The state of sums (B, ...) over no points."""
    return {name: torch.zeros(shape) for name in (RECENT, BASE, REST)}


def consolidated(state: State) -> State:
    """The same sums with all of them in the base."""
    base, rest = accumulated(state[BASE], state[REST], state[RECENT])
    # zeros_like would be a constant, kept in memory
    return {RECENT: state[RECENT] * 0.0, BASE: base, REST: rest}


def total_of(state: State) -> Tensor:
    """The sums over all points."""
    return (state[BASE] + state[REST]) + state[RECENT]
