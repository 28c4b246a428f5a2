"""Are faults of sensors found, how soon, and how often is there an alarm without one?

    made-up sensor without faults ──> bundle, alarms ──> false alarms at 1e-2, 1e-3, 1e-4
              │ at 3 rows: a copy of state, feed and alarms
              └> spike, level shift, stuck, noise, drift ──> found, rows until then, its name

    python -m benchmarks sensor_faults [--bundle B]

A scale is the sensor's mean absolute change over its last 500 rows. A spike is of 8 scales, up or
down, a level shift too; a stuck sensor repeats its last value; noise makes
the usual errors of a forecast three times as large; a drift is of half a scale a row.
Found means: an alarm on the row itself (spike), within 5 rows (shift), within 30 (the others).

Many sensors jump by 8 scales without a fault: rain, a door, a job on a server. Where they do so
more often than the stated rate, such a spike is no fault by any rule, so the demands are made of
steady sensors: those whose own changes are above 5 scales in at most 1 of 1,000 rows, which says
nothing of any model. A sensor that repeats for 15 rows without a fault is left out of stuck ones
likewise. The figures over all sensors stand beside them. A sensor that stands still has no scale,
so that nothing is injected into it then.

The sensors are those that training draws (`edgefold.train.tasks.sensors.sensor_prior`), from other
seeds and without their faults; with --series also a folder of real ones, as they are. Then comes
what no sensor should send: rows of the attacks' kinds (times of the future and the past, 1e18, not
a number, repeats), after which 200 clean rows must do.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alarms.sensor_hostile import RATES, SHARES, Random, Sensor, after_hostile_rows
from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.sensors.sensors_run import SensorFile, read_sensors
from benchmarks.tables import as_text
from edgefold.runtime import StateSlots, Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import EdgefoldError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "Are faults of sensors found, and how often is there an alarm without one?"
N_SENSORS, N_ROWS, FIRST = 600, 2400, 300
FORKS = (1000, 1700, 2300)
N_AFTER = 60
SIZE, SLOPE, N_SCALE = 8.0, 0.5, 500
STEADY_SCALES, STEADY_SHARE, LONGEST_RUN = 5.0, 1e-3, 15
WITHIN = {
    "spike up": 1,
    "spike down": 1,
    "shift up": 5,
    "shift down": 5,
    "stuck": 30,
    "noise": 30,
    "drift": 30,
}
N_HOSTILE, N_QUICK = 1_000_000, 20_000


def clean_sensor(random: Random, n: int) -> tuple[str, FloatArray]:
    """A made-up sensor's family and values, without faults of its own."""
    from edgefold.train.tasks.sensors.sensor_artefacts import noisy
    from edgefold.train.tasks.sensors.sensor_prior import FAMILIES, SEASONS, in_a_unit
    from edgefold.train.tasks.sensors.sensor_processes import log_uniform, standard

    family = str(random.choice(list(FAMILIES)))
    season = int(random.choice(SEASONS))
    values = standard(np.nan_to_num(np.clip(FAMILIES[family][0](random, n, season), -1e9, 1e9)))
    if random.random() < 0.3:
        values = noisy(random, values, season)
    if random.random() < 0.4:
        changes = np.abs(np.diff(values))
        usual = float(np.median(changes[changes > 0])) if changes.any() else 1.0
        quantum = max(usual, 1e-3) * log_uniform(random, 0.03, 3)
        values = np.round(values / quantum) * quantum
    return family, in_a_unit(random, values, values.min())


def with_fault(
    kind: str, values: FloatArray, last: float, scale: float, error: float, random: Random
) -> FloatArray:
    """Values (n,) as they come once a fault of a kind has begun."""
    faulty = values.copy()
    sign = -1.0 if kind.endswith("down") else 1.0
    if kind.startswith("spike"):
        faulty[0] += sign * SIZE * scale
    elif kind.startswith("shift"):
        faulty += sign * SIZE * scale
    elif kind == "stuck":
        faulty[:] = last
    elif kind == "noise":
        spread = error / math.sqrt(2 / math.pi)
        faulty += math.sqrt(8.0) * spread * random.normal(size=len(values))
    elif kind == "drift":
        faulty += SLOPE * scale * np.arange(1, len(values) + 1)
    else:
        raise ValueError(f"{kind!r} is no fault; there are {', '.join(WITHIN)}")
    return faulty


def scale_of(values: FloatArray) -> float:
    """The mean absolute change; 0 where a sensor stood still."""
    return float(np.abs(np.diff(values)).mean())


def is_steady(values: FloatArray) -> bool:
    """Return whether a sensor's own changes are small compared with the injected spikes."""
    changes = np.abs(np.diff(values))
    return bool((changes > STEADY_SCALES * scale_of(values)).mean() <= STEADY_SHARE)


def longest_run(values: FloatArray) -> int:
    """The most repeats in a row."""
    moved = np.flatnonzero(np.append(np.diff(values) != 0, True))
    return int(np.diff(np.append(-1, moved)).max()) - 1


def one_sensor(stream: Stream, slots: StateSlots, seed: int, n_rows: int) -> dict[str, Any]:
    """Follow one made-up sensor, and inject each fault at each of `FORKS`."""
    random = np.random.default_rng([seed, 20_260])
    family, values = clean_sensor(random, n_rows + N_AFTER)
    sensor = Sensor.fresh(stream)
    alarms: dict[float, Counter[str]] = {rate: Counter() for rate in RATES}
    n_first = 0
    faults: list[dict[str, Any]] = []
    for row in range(n_rows):
        if row in FORKS and (scale := scale_of(values[row - N_SCALE : row])) > 0:
            stream.take(slots, 0)
            for kind in WITHIN:
                stream.put(slots, 0)
                faults.append(_injected(sensor.copy(), kind, values, row, scale, random))
            stream.put(slots, 0)
        verdicts = sensor.see(float(row), float(values[row]))
        if row < FIRST:
            n_first += verdicts[RATES[-1]].alarm
            continue
        for rate, verdict in verdicts.items():
            if verdict.alarm:
                alarms[rate][verdict.event] += 1
    return {
        "family": family,
        "steady": is_steady(values),
        "restless": longest_run(values) < LONGEST_RUN,
        "n_first": n_first,
        "n_scored": n_rows - FIRST,
        "alarms": {str(rate): dict(found) for rate, found in alarms.items()},
        "faults": faults,
    }


def _injected(
    sensor: Sensor, kind: str, values: FloatArray, row: int, scale: float, random: Random
) -> dict[str, Any]:
    """When a fault is found at the strictest rate, and as what."""
    error = float(np.mean(sensor.errors[-FIRST:]))
    coming = values[row : row + N_AFTER]
    faulty = with_fault(kind, coming, float(values[row - 1]), scale, error, random)
    at, events, rate = None, [], RATES[-1]
    for after, value in enumerate(faulty.tolist()):
        verdict = sensor.see(float(row + after), value)[rate]
        if verdict.alarm and at is None:
            at = after
        if verdict.event:
            events.append(verdict.event)
    return {"kind": kind, "at": at, "events": sorted(set(events))}


def real_sensor(stream: Stream, series: SensorFile) -> dict[str, Any]:
    """Alarms of a real series as it is, faults of its own included."""
    sensor = Sensor.fresh(stream)
    alarms: dict[float, Counter[str]] = {rate: Counter() for rate in RATES}
    n = 0
    for row, (time, value) in enumerate(zip(series.times, series.values, strict=True)):
        try:
            verdicts = sensor.see(float(time), float(value), series.dated)
        except EdgefoldError:
            continue
        if row >= FIRST:
            n += 1
            for rate, verdict in verdicts.items():
                alarms[rate][verdict.event] += verdict.alarm
    told = {str(rate): dict(+found) for rate, found in alarms.items()}
    return {"name": series.name, "n_scored": n, "alarms": told}


# What is told -------------------------------------------------------------------------------------


def rates_of(found: list[dict[str, Any]]) -> dict[str, float]:
    """Alarms a row at each stated rate."""
    n = sum(one["n_scored"] for one in found)
    return {
        str(rate): sum(sum(one["alarms"][str(rate)].values()) for one in found) / max(n, 1)
        for rate in RATES
    }


def first_alarms(sensors: list[dict[str, Any]]) -> float:
    """Alarms of a sensor at the strictest rate in its rows before `FIRST`, in the mean."""
    return float(np.mean([one["n_first"] for one in sensors])) if sensors else math.nan


def found_share(sensors: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the share of a kind's faults that are found soon enough, and the median rows."""
    cases = [fault for one in sensors for fault in one["faults"] if fault["kind"] == kind]
    at = [math.inf if case["at"] is None else case["at"] for case in cases]
    names: Counter[str] = Counter(event for case in cases for event in case["events"])
    return {
        "n": len(cases),
        "share": float(np.mean([delay < WITHIN[kind] for delay in at])) if at else math.nan,
        "median_rows": float(np.median(at)) + 1 if at and np.median(at) < math.inf else None,
        "names": dict(names.most_common(3)),
    }


def eligible(sensors: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The sensors of which a fault is demanded to be found."""
    return [one for one in sensors if one["restless" if kind == "stuck" else "steady"]]


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    found = []
    for kind, share in (("spike", 0.95), ("shift", 0.95), ("stuck", 0.95)):
        for name in (name for name in WITHIN if name.startswith(kind)):
            what = f"{name}, found within {WITHIN[name]} rows"
            found.append(at_least(what, data["steady"][name]["share"], share, ""))
    for rate in RATES:
        observed = data["rates"][str(rate)] / rate
        found.append(at_most(f"false alarms beside the stated {rate:g}", observed, 3.0, ""))
        found.append(at_least(f"false alarms beside the stated {rate:g}", observed, 1 / 3, ""))
    for told in data.get("hostile", ()):
        ratio, part = told["mae_after"] / told["mae_before"], f"{told['share']:.0%}"
        found.append(at_most(f"MAE after {part} hostile rows beside before", ratio, 1.5, ""))
        found.append(at_least("the state is finite", float(told["finite"]), 1.0, ""))
    return found


def options() -> argparse.ArgumentParser:
    """Return a parser of this benchmark's options."""
    parser = arguments(__doc__ or "", "sensor_faults")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    parser.add_argument("--series", type=Path, help="real series, for the rates as they are")
    parser.add_argument("--sensors", type=int, default=N_SENSORS, help=f"default {N_SENSORS}")
    parser.add_argument("--hostile", type=int, default=N_HOSTILE, help="rows; 0 for none")
    return parser


def main() -> None:
    """Inject, attack, record."""
    args = options().parse_args()
    before = conditions()
    n_sensors = 3 if args.quick else args.sensors
    sensors: list[dict[str, Any]] = []
    data: dict[str, Any] = {}
    with Stream.open(args.bundle or shipped_bundle()) as stream:
        slots = StateSlots(stream.manifest, 1)
        for seed in range(n_sensors):
            progress(f"made-up sensors: {seed} of {n_sensors}")
            sensors.append(one_sensor(stream, slots, seed, N_ROWS))
        if args.series:
            real = [real_sensor(stream, series) for series in read_sensors(args.series)]
            data |= {"real": real, "real_rates": rates_of(real)}
        if n_hostile := min(args.hostile, N_QUICK if args.quick else args.hostile):
            data["hostile"] = [
                after_hostile_rows(stream, n_hostile // len(SHARES), share) for share in SHARES
            ]
    steady = [one for one in sensors if one["steady"]]
    data |= {
        "within": WITHIN,
        "n_sensors": n_sensors,
        "n_steady": len(steady),
        "rates": rates_of(sensors),
        "steady_rates": rates_of(steady),
        "steady": {kind: found_share(eligible(sensors, kind), kind) for kind in WITHIN},
        "all": {kind: found_share(sensors, kind) for kind in WITHIN},
        "first": first_alarms(sensors),
        "steady_first": first_alarms(steady),
        "families": dict(Counter(one["family"] for one in sensors)),
    }
    finish(args, "sensor_faults", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
