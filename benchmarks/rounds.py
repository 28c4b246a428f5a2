"""Steps that take turns, so that the drift of the machine meets all of them alike.

    round     1                       2                       ...
    ┌─────────┴──────────────────────┐┌──────────────────────┐
    │ noise │ step 1 │ step 2 │ ...   │ noise │ step 2 │ ...
              └ some untimed calls, then a block of timed ones

Every round begins with another step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.record import Noise, progress, spread
from edgefold.devices.profile.latency import Timer

Key = TypeVar("Key", bound=Hashable)
BLOCK = 30
"""Calls of one block of `block_medians`; a few untimed ones come before."""


def nothing() -> None:
    """Before a step that needs no preparation."""


@dataclass(frozen=True, slots=True)
class Step:
    """A contender to time: `call`, after an untimed `before`; a call works on `n_points` points."""

    name: str
    call: Callable[[], Any]
    n_timed: int = 40
    n_untimed: int = 4
    before: Callable[[], Any] = nothing
    n_points: int = 1


def interleave(groups: dict[str, list[Step]], n_rounds: int) -> tuple[dict[str, Any], Any]:
    """Time all steps in turns.

    Returns:
        For each group and step, the spread of one call and its points; and the machine's noise.
    """
    steps = [(group, step) for group, own in groups.items() for step in own]
    timers = {(g, s.name): Timer(s.n_timed * n_rounds) for g, s in steps}
    noise = Noise()
    for turn in range(n_rounds):
        shift = turn % len(steps)
        noise.sample()
        for group, step in (*steps[shift:], *steps[:shift]):
            for _ in range(step.n_untimed):
                step.before()
                step.call()
            for _ in range(step.n_timed):
                step.before()
                timers[group, step.name].time(step.call)
        noise.sample()
        progress(f"round {turn + 1} of {n_rounds}", last=turn + 1 == n_rounds)
    times: dict[str, Any] = {group: {} for group in groups}
    for group, step in steps:
        taken = spread(timers[group, step.name].taken_ns)
        times[group][step.name] = {**taken, "n_points": step.n_points}
    return times, noise.summary()


def block_medians(calls: Mapping[Key, Callable[[], Any]], n_rounds: int) -> dict[Key, list[float]]:
    """Time blocks of short calls in turns: by call, the median of each round's block, ns."""
    keys = list(calls)
    medians: dict[Key, list[float]] = {key: [] for key in keys}
    for turn in range(n_rounds):
        shift = turn % len(keys)
        for key in keys[shift:] + keys[:shift]:
            call, taken = calls[key], []
            for _ in range(5):
                call()
            for _ in range(BLOCK):
                start = time.perf_counter_ns()
                call()
                taken.append(time.perf_counter_ns() - start)
            medians[key].append(statistics.median(taken))
    return medians
