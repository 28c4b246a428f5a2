"""Decide whether a measurement was disturbed: what moved between its start and its end.

condition ── work of a block ── condition      condition ── next block ── condition
    └────────── judged ─────────────┘              └────────── judged ────────┘

verdict    when
disturbed  clocks were lowered by heat or current, a limit of clocks changed, the supply was too
           weak, or other programs used the processor
unsteady   clocks moved by themselves: the figure belongs to no one clock
unknown    neither was seen, and the machine does not show all of it; `untold` says what
valid      neither was seen, and the machine shows all of it
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.machine.condition import GPU, SINCE_BOOT, Condition, read_condition
from edgefold.runtime.record_fields import OPTIONAL, one_of

VALID, UNKNOWN, UNSTEADY, DISTURBED = "valid", "unknown", "unsteady", "disturbed"
MOVED = 0.05  # of a clock; what counts cycles over a short time is off by less
BUSY = 0.2  # of one core, by others
MIN_LOAD_S = 1.0  # the kernel counts the load of each core in hundredths of a second
WHOLE = "all blocks together"


def disturbances(before: Condition, after: Condition) -> list[str]:
    """Return sentences on what lowered clocks or weakened the supply between two moments."""
    reasons = [
        f"{name} went from {before.counters[name]:.0f} to {count:.0f}"
        for name, count in after.counters.items()
        if count > before.counters.get(name, count)
    ]
    for name in sorted({*before.cooling, *after.cooling}):
        state = max(before.cooling.get(name, 0), after.cooling.get(name, 0))
        if state > 0:
            reasons.append(f"{name} lowered clocks, in state {state:.0f}")
    flags = {*(before.flags or ()), *(after.flags or ())}
    earlier = {flag for flag in before.flags or () if flag.endswith(SINCE_BOOT)}
    new_flags = sorted({flag.removesuffix(SINCE_BOOT).strip() for flag in flags - earlier})
    reasons += [f"the firmware reports {flag}" for flag in new_flags]
    for name, celsius in {**before.throttling_celsius, **after.throttling_celsius}.items():
        reasons.append(f"{name} reached {celsius:.0f} C, where clocks are lowered")
    for name in sorted({*before.limits_hz, *after.limits_hz}):
        old, new = before.limits_hz.get(name), after.limits_hz.get(name)
        if old != new:
            reasons.append(
                f"the highest clock allowed for {name} went from {_mhz(old)} to {_mhz(new)}"
            )
    return reasons


def movements(before: Condition, after: Condition) -> list[str]:
    """Return a sentence on each clock that changed by over 5 % from one moment to another."""
    return [
        f"the clock of {name} went from {_mhz(old)} to {_mhz(new)}"
        for name, old in before.clocks_hz.items()
        if (new := after.clocks_hz.get(name)) and abs(new - old) > MOVED * max(old, new)
    ]


def missing(before: Condition, after: Condition) -> list[str]:
    """Return sentences on clocks, counters and such that one or both conditions do not show."""
    untold = {*before.untold, *after.untold}
    for kind in ("counters", "cooling", "clocks_hz"):
        shown: list[set[str]] = [set(getattr(moment, kind)) for moment in (before, after)]
        lost = {name for name in shown[0] ^ shown[1] if not name.startswith(GPU)}  # it sleeps
        untold |= {f"{name}: shown at one end alone" for name in lost}
    return sorted(untold)


def load_of_others(before: Condition, after: Condition) -> float | None:
    """Return how many cores other programs used at least, on average; None if not decidable."""
    taken_s = after.time_s - before.time_s
    if before.busy_s is None or after.busy_s is None or taken_s < MIN_LOAD_S:
        return None
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    error_s = (os.cpu_count() or 1) / os.sysconf("SC_CLK_TCK")  # a tick of each core
    return max(0.0, others_s - error_s) / taken_s


VerdictOnBlock = Annotated[str, one_of(VALID, UNKNOWN, UNSTEADY, DISTURBED)]


@dataclass(frozen=True, slots=True)
class WatchedBlock:
    """Holds the verdict on one measured block, with the conditions before and after it.

    The verdict is valid, unknown, unsteady or disturbed.
    """

    name: Annotated[str, "What was measured."]
    verdict: Annotated[VerdictOnBlock, "Its verdict."]
    before: Condition
    after: Condition


@dataclass(frozen=True, slots=True)
class Validity:
    """Holds whether the measurement was valid, unknown, unsteady or disturbed, and the reasons."""

    verdict: Annotated[VerdictOnBlock, "The worst of all blocks."]
    reasons: Annotated[list[Annotated[str, "A sentence."]], "What disturbed it."]
    untold: Annotated[
        list[Annotated[str, "A sentence."]],
        "What the machine does not show; with any, the verdict is not `valid`.",
        OPTIONAL,
    ]
    blocks: Annotated[list[WatchedBlock], "Each measured block.", OPTIONAL]


class ValidityWatch:
    """Reads the condition before and after each measured block, and judges all blocks.

    Args:
        root: Folder that holds /proc, /sys and /etc; tests pass a recorded tree.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._blocks: list[tuple[str, Condition, Condition]] = []

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Read the condition before and after a block of work; one that raises is not judged."""
        before = read_condition(self._root)
        yield
        self._blocks.append((name, before, read_condition(self._root)))

    def validity(self, on_gpu: bool = False) -> Validity:
        """Return the verdict over all blocks so far, as `judge` decides it."""
        return judge(self._blocks, on_gpu)


def judge(blocks: Sequence[tuple[str, Condition, Condition]], on_gpu: bool) -> Validity:
    """Judge measured blocks: return the worst verdict, all reasons, and the verdict on each block.

    A verdict is valid, unknown, unsteady or disturbed, from the best to the worst.

    Args:
        blocks: Name of each block, with the conditions before and after it.
        on_gpu: Whether the work ran on a GPU, so that the GPU's clock must be shown.
    """
    reasons: list[tuple[str, str, str]] = []  # verdict, block, reason
    untold: set[str] = set()
    for name, before, after in blocks:
        reasons += [(DISTURBED, name, reason) for reason in disturbances(before, after)]
        reasons += [(UNSTEADY, name, reason) for reason in movements(before, after)]
        untold |= set(missing(before, after))
        shown = {*before.clocks_hz, *after.clocks_hz}
        if on_gpu and not any(clock.startswith(GPU) for clock in shown):
            untold.add("clock of the GPU: devfreq does not show it")
    spans = [*blocks, (WHOLE, blocks[0][1], blocks[-1][2])] if len(blocks) > 1 else [*blocks]
    loads = [(name, load_of_others(before, after)) for name, before, after in spans]
    most: dict[str, float] = {}  # blocks of one name are reported once
    for name, load in loads:
        if load is not None:
            most[name] = max(load, most.get(name, load))
    reasons += [
        (DISTURBED, name, f"other programs used {load:.1f} cores")
        for name, load in most.items()
        if load > BUSY
    ]
    counted = all(moment.busy_s is not None for _, *moments in blocks for moment in moments)
    if counted and all(load is None for _, load in loads):
        untold.add(f"load of other programs: the blocks took less than {MIN_LOAD_S:g} s")
    return Validity(
        _worst([verdict for verdict, _, _ in reasons], untold),
        [f"{name}: {reason}" for _, name, reason in sorted(reasons)],
        sorted(untold),
        [
            WatchedBlock(
                name, _worst([v for v, of, _ in reasons if of == name], untold), before, after
            )
            for name, before, after in blocks
        ],
    )


def _worst(verdicts: Sequence[str], untold: set[str]) -> str:
    return next(
        (verdict for verdict in (DISTURBED, UNSTEADY) if verdict in verdicts),
        UNKNOWN if untold else VALID,
    )


def _mhz(hz: float | None) -> str:
    return "none" if hz is None else f"{hz / 1e6:.0f} MHz"
