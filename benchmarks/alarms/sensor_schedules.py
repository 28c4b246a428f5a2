"""Are events that recur left alone, and is it alarmed if one of them does not come?

    made-up plant with a schedule ──> bundle ──> alarms ──> at its jumps, where one is left out,
                                                            and elsewhere

    python -m benchmarks sensor_schedules [--sensors N]

A plant is an AR(1) of quarter hours over 35 days with dates, half of them with a daily course. A
schedule moves its level by 6 to 15 scales (mean changes from row to row), half of them not always
at the same slot but one earlier or later:

    working days   up in the morning, down in the evening, Monday to Friday
    nights         down for an hour or two at one time of each night
    irregular      as on working days, but on four of ten days

A jump is alarmed if a row from one before to five after it is an alarm. Jumps count once three of
their kind have come. On one day of the last week the schedule does nothing: that should be an alarm
`absent` within eight rows. On irregular days nothing is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alarms.lasting_plants import LAWS, Plant, Random
from benchmarks.alarms.sensor_lasting import alarms, feed_of, forecasts
from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.alarms.alarms import RATE, Watch
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "Are events that recur left alone, and is one that does not come alarmed?"
KINDS = ("working days", "nights", "irregular")
N_SENSORS, N_DAYS, N_DAY = 200, 35, 96
STEP_S, MONDAY_S = 900.0, 1_704_067_200.0
SHARE_OF_DAYS = 0.4
SIZES, COURSE = (6.0, 15.0), 3.0
BEFORE, AFTER, ABSENT_WITHIN = 1, 5, 8
N_TIMES = 3
MOST_ALARMED, LEAST_FOUND = 0.05, 0.80


@dataclass(frozen=True, slots=True)
class Schedule:
    """Holds the values of a plant and what its schedule did.

    Attributes:
        values: The values, (n,).
        jumps: The rows at which the level moves, and how many of the same kind came before each.
        left_out: The row at which a jump was due and did not come; None if none was.
    """

    values: FloatArray
    jumps: list[tuple[int, int]]
    left_out: int | None


def plant_with_schedule(kind: str, random: Random) -> Schedule:
    """Draw a plant with a schedule of a kind."""
    plant = Plant(float(random.uniform(0.5, 0.9)), str(random.choice(LAWS)), False)
    n = N_DAYS * N_DAY
    values = plant.healthy(random, n)
    scale = float(np.abs(np.diff(values)).mean())
    if random.random() < 0.5:
        values += COURSE * values.std() * np.sin(2 * np.pi * np.arange(n) / N_DAY)
    size = float(random.uniform(*SIZES)) * scale * float(random.choice([-1.0, 1.0]))
    jitter = int(random.random() < 0.5)
    if kind == "nights":
        begin, end = int(random.integers(4, 12)), int(random.integers(16, 24))
    else:
        begin, end = int(random.integers(24, 36)), int(random.integers(68, 84))
    last_week = N_DAYS - 7
    skipped = last_week + int(random.integers(0, 5))
    jumps, n_before, left_out = list[tuple[int, int]](), 0, None
    for day in range(N_DAYS):
        is_on = {
            "working days": day % 7 < 5,
            "nights": True,
            "irregular": bool(random.random() < SHARE_OF_DAYS),
        }[kind]
        if day == skipped and kind != "irregular":
            left_out = day * N_DAY + begin
            continue
        if not is_on:
            continue
        first, last = (
            day * N_DAY + at + int(random.integers(-jitter, jitter + 1)) for at in (begin, end)
        )
        values[first:last] += size
        jumps += [(first, n_before), (last, n_before)]
        n_before += 1
    return Schedule(values, jumps, left_out)


def scored(schedule: Schedule, alarmed: Mapping[int, str]) -> dict[str, Any]:
    """Return how many jumps were alarmed, whether the absent one was, and the other alarms.

    `alarmed` has the event of each row that is an alarm.
    """
    near = {
        row: [at for at in range(row - BEFORE, row + AFTER + 1) if at in alarmed]
        for row, _ in schedule.jumps
    }
    known = [row for row, n_before in schedule.jumps if n_before >= N_TIMES]
    explained = {at for rows in near.values() for at in rows}
    found = None
    if schedule.left_out is not None:
        due = range(schedule.left_out, schedule.left_out + ABSENT_WITHIN + 1)
        found = any(alarmed.get(at) == "absent" for at in due)
        missing_day = range(schedule.left_out - BEFORE, schedule.left_out + N_DAY)
        explained |= {at for at in missing_day if at in alarmed}
    return {
        "n_jumps": len(known),
        "n_alarmed": sum(bool(near[row]) for row in known),
        "found": found,
        "others": dict(Counter(event for at, event in alarmed.items() if at not in explained)),
    }


def over_plants(followed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shares of one kind of plants."""
    found = [one["found"] for one in followed if one["found"] is not None]
    others = sum((Counter(one["others"]) for one in followed), Counter[str]())
    n_jumps = sum(one["n_jumps"] for one in followed)
    return {
        "n_plants": len(followed),
        "n_jumps": n_jumps,
        "alarmed": sum(one["n_alarmed"] for one in followed) / max(n_jumps, 1),
        "n_absent": len(found),
        "found": float(np.mean(found)) if found else None,
        "others": dict(others.most_common()),
        "beside_rate": sum(others.values()) / (len(followed) * N_DAYS * N_DAY) / RATE,
    }


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    demands = []
    for kind, told in data["kinds"].items():
        what = f"{kind}: jumps that are alarmed after {N_TIMES} of their kind"
        demands.append(at_most(what, 100 * told["alarmed"], 100 * MOST_ALARMED, "%"))
        if told["found"] is not None:
            what = f"{kind}: missing events that are alarmed"
            demands.append(at_least(what, 100 * told["found"], 100 * LEAST_FOUND, "%"))
    return demands


def main() -> None:
    """Follow the plants, record."""
    parser = arguments(__doc__ or "", "sensor_schedules")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    parser.add_argument("--sensors", type=int, default=N_SENSORS, help=f"default {N_SENSORS}")
    args = parser.parse_args()
    before = conditions()
    n_sensors = min(6, args.sensors) if args.quick else args.sensors
    times = (MONDAY_S + STEP_S * np.arange(N_DAYS * N_DAY)).tolist()
    followed: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with Stream.open(args.bundle or shipped_bundle()) as stream:
        for seed in range(n_sensors):
            progress(f"plants: {seed} of {n_sensors}")
            kind = KINDS[seed % len(KINDS)]
            schedule = plant_with_schedule(kind, np.random.default_rng([seed, 20_262]))
            stream.reset()
            rows = forecasts(stream, feed_of(stream), times, schedule.values, True)
            verdicts = alarms(Watch(RATE), rows)
            alarmed = {row: told.event for row, told in enumerate(verdicts) if told.alarm}
            followed[kind].append(scored(schedule, alarmed))
    data = {
        "rate": RATE,
        "n_days": N_DAYS,
        "n_times": N_TIMES,
        "kinds": {kind: over_plants(one) for kind, one in followed.items() if one},
    }
    finish(args, "sensor_schedules", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
