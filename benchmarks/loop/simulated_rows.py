"""Make the rows of simulated days, and know of each what a loop must do with it.

A day of a sensor holds a daily course with noise, spikes, a stretch that stands still and one that
drifts, hours without rows, rows that cannot be read, have no value, come twice or late, and
stretches with a wrong clock: it begins in 1970 without a battery, was set back by two weeks, or
runs a day ahead. Each ends when the right time comes. All follows from the seed and the day's
number.

How many rows a wrong clock costs is the rule of `edgefold.runtime.sensors.clock.slot_clock`: those
before the row that is believed, which is number `AHEAD` for times after the newest row, and
`SETTLED_BACK` for times before it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.sensors.clock.slot_clock import AHEAD, LEAP_SLOTS, SETTLED_BACK

LEARNED, MISSING, REFUSED, UNREADABLE = range(4)
"""Say what a loop must do with a row: learn it, pass over a row without a value, refuse it, or skip
a line that it cannot read."""
START_S = 1_704_067_200
HEADER = b"time,value\n"
GARBAGE = (
    *(b"\xff\xfe\x00\x00garbage\n", b"time,value,more,and,more\n", b"1704067200.00\n"),
    *(b"1704067200.00,12..5\n", b"not a time,12.5\n", b"1704067200.00,inf\n"),
)
SINGLE = ("unreadable", "without a value", "twice", "late", "too large", "spike")
N_SINGLE = 8
"""Number of rows of a day with each of `SINGLE`."""
CLOCKS = {"1970": 0.0, "two weeks back": -14 * 86_400.0, "a day ahead": 86_400.0}
"""Wrong clocks, and by how many seconds they are wrong."""
LASTING = ("hours without rows", "stands still", "drifts")
"""Names of what happens once a day for longer, besides `CLOCKS`."""
N_PARTS = 160
"""A day has so many parts, each of which holds at most one of these faults."""
FATES = {"unreadable": UNREADABLE, "twice": REFUSED, "late": REFUSED, "too large": REFUSED}
"""Says what a loop must do with a row that is put in besides the sensor's own ones."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Says what happens to the loop's process or disk before a line of the day is sent."""

    at: int
    kind: str


@dataclass(frozen=True, slots=True)
class Day:
    """Holds the lines of a day, and what a loop must do with each.

    Attributes:
        lines: The lines, with their ends.
        fates: One of `LEARNED`, `MISSING`, `REFUSED` and `UNREADABLE` for each line.
        faults: Faults of the process and the disk, in order.
        injected: Number of faults in the rows, by kind.
    """

    lines: list[bytes]
    fates: bytes
    faults: list[Fault]
    injected: dict[str, int]


def make_day(seed: int, number: int, hz: float, day_s: float, kinds: tuple[str, ...]) -> Day:
    """Return the rows of a day.

    Args:
        seed: The seed of the run.
        number: The number of the day, from 0.
        hz: Rows a second.
        day_s: Seconds of a day.
        kinds: Kinds of the faults that hit the loop's process and disk; a clock without a battery
            begins with the first "end", where the device is switched off.
    """
    chance = random.Random(f"{seed} {number}")
    n = round(day_s * hz)
    n_gap = max(round(chance.uniform(1 / 24, 1 / 8) * n), 2 * LEAP_SLOTS)
    n -= n_gap
    part = n // N_PARTS
    length = part // 2  # of what lasts
    free = [k * part + chance.randrange(part // 4) for k in range(1, N_PARTS)]
    chance.shuffle(free)
    faults = [(free.pop(), kind) for kind in kinds]
    single = {free.pop(): kind for kind in SINGLE for _ in range(N_SINGLE)}
    gap, still, drift = free.pop(), free.pop(), free.pop()
    slots = np.arange(n) + np.where(np.arange(n) < gap, 0, n_gap)
    times = START_S + number * day_s + slots / hz
    values = _values(np.random.default_rng([seed, number]), times - START_S, day_s)
    values[still : still + length] = round(values[still], 3)
    values[drift : drift + length] += np.linspace(0.0, 4.0, length)
    fates = bytearray([LEARNED] * n)
    fates[gap] = REFUSED
    ends = [place for place, kind in faults if kind == "end"]
    for clock, off_s in CLOCKS.items():
        place = ends[0] if clock == "1970" and ends else free.pop()
        shift = off_s or -times[place]
        times[place : place + length] += shift
        _refuse(fates, place, shift > 0)
        _refuse(fates, place + length, shift < 0)
    for place, kind in single.items():
        values[place] += 6.0 if kind == "spike" else 0.0
    lines = [b"%.2f,%.3f\n" % row for row in zip(times.tolist(), values.tolist(), strict=True)]
    for place, kind in single.items():
        if kind == "without a value":
            lines[place], fates[place] = b"%.2f,\n" % times[place], MISSING
    added = {place: kind for place, kind in single.items() if kind in FATES}
    places = sorted(added)
    for k, place in reversed([*enumerate(places)]):
        lines.insert(place + 1, _line(added[place], lines, place, k))
        fates.insert(place + 1, FATES[added[place]])
    later = np.searchsorted(places, [place for place, _ in faults])  # lines put in before it
    of_process = [Fault(at + int(n), kind) for (at, kind), n in zip(faults, later, strict=True)]
    injected = dict.fromkeys(SINGLE, N_SINGLE) | dict.fromkeys((*CLOCKS, *LASTING), 1)
    return Day(lines, bytes(fates), sorted(of_process, key=lambda fault: fault.at), injected)


def _refuse(fates: bytearray, place: int, is_ahead: bool) -> None:
    """Note that the first rows from a place on are refused, where the clock leaps ahead or back."""
    n_refused = (AHEAD if is_ahead else SETTLED_BACK) - 1
    fates[place : place + n_refused] = bytes([REFUSED] * n_refused)


def _values(noise: np.random.Generator, times_s: np.ndarray, day_s: float) -> np.ndarray:
    """Return a daily and an hourly course with noise."""
    daily = 5.0 * np.sin(2 * np.pi * times_s / day_s)
    hourly = 0.5 * np.sin(2 * np.pi * times_s / (day_s / 24))
    values: np.ndarray = 20.0 + daily + hourly + noise.normal(0.0, 0.3, len(times_s))
    return values


def _line(kind: str, lines: list[bytes], place: int, k: int) -> bytes:
    """Return a line that is put in behind the one at `place`; `k` counts such lines."""
    if kind == "unreadable":
        return GARBAGE[k % len(GARBAGE)]
    if kind == "late":
        return lines[place - 20].partition(b",")[0] + b",12.345\n"
    time = lines[place].partition(b",")[0]
    return lines[place] if kind == "twice" else time[:-1] + b"5,1e40\n"
