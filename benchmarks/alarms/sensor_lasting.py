"""How much of what lasts do the alarms find, beside an oracle, and how often without a fault?

    made-up plant ──> bundle ──> forecasts ──> alarms ──┐
              └─────> oracle, which knows the law ──────┴> found within 30, 100, 300 rows
    made-up sensors without faults ──> bundle ──> forecasts ──> alarms: how many beside the rate

    python -m benchmarks sensor_lasting [--sensors N] [--rows N] [--keep FOLDER]

The plants and the oracle are those of `benchmarks.alarms.lasting_plants`, with dated rows each
half an hour; the model sees 2,400 healthy rows before a fault. Both have the stated rate of false
alarms, 1e-4. Any alarm after the beginning of a fault counts, whatever its name.

The sensors without faults are those of `benchmarks.alarms.sensor_faults`: 1e7 rows take some 20
minutes. Their alarms alone are measured again in some minutes with --keep, which keeps what the
model forecast; keep them of one bundle only.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alarms.lasting_plants import FAULTS, Plant, height, oracle, plants
from benchmarks.alarms.sensor_faults import clean_sensor
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
from edgefold.runtime import StateSlots, Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.predictions.sensor_forecast import usual_of
from edgefold.runtime.sensors.alarms.alarms import RATE, Watch
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "How much of what lasts do the alarms find beside an oracle, at the stated rate?"
N_HEALTHY, N_AFTER = 2400, 300
WITHIN = (30, 100, 300)
N_OF_EACH = 6
N_SENSORS, N_ROWS = 100, 100_000
FIRST_S, STEP_S = 1.7e9, 1800.0
SHARE = 0.75


def feed_of(stream: Stream) -> SensorFeed:
    """Return the clock and season of a new sensor."""
    kind = stream.manifest.prediction
    assert isinstance(kind, SensorForecast)
    return SensorFeed(kind.longest_season)


def forecasts(
    stream: Stream, feed: SensorFeed, times: Sequence[float], values: FloatArray, dated: bool
) -> FloatArray:
    """Return what the alarms read of each row, (n, 9): the arguments of `alarms`, in their order.

    They are value, p-value, median, log density, missing rows, usual value, season, cycle, slot.
    """
    rows = list[tuple[float, ...]]()
    for time, value in zip(times, values.tolist(), strict=True):
        x = feed.rows(time, value, dated)
        for slot in x:
            told = stream.step(slot).tensors
        feed.commit()
        quantiles = told["quantiles"].ravel()
        scores = told["p_value"].item(), quantiles[len(quantiles) // 2], told["log_density"].item()
        rows.append((value, *scores, len(x) - 1, usual_of(told), *feed.place))
    return np.array(rows)


def alarms(watch: Watch, rows: FloatArray) -> list[AlarmVerdict]:
    """Return the verdict of each row (n, 9) of `forecasts`."""
    return [
        watch.see(value, p, median, density, int(n), usual, SlotPlace(*map(int, place)))
        for value, p, median, density, n, usual, *place in rows.tolist()
    ]


def one_plant(
    stream: Stream, slots: StateSlots, plant: Plant, heights: Mapping[str, float], seed: int
) -> dict[str, Any]:
    """Return in which row each fault of one plant is found, by the alarms and by the oracle."""
    random = np.random.default_rng([seed, round(100 * plant.phi), len(plant.law), plant.has_course])
    x, course = plant.healthy(random, N_HEALTHY), plant.course(N_HEALTHY + N_AFTER)
    times = (FIRST_S + STEP_S * np.arange(N_HEALTHY + N_AFTER)).tolist()
    stream.reset()
    feed, watch = feed_of(stream), Watch(RATE)
    before = forecasts(stream, feed, times[:N_HEALTHY], x + course[:N_HEALTHY], True)
    n_alarms = sum(verdict.alarm for verdict in alarms(watch, before))
    stream.take(slots, 0)
    faults = []
    for name, fault in FAULTS.items():
        y = plant.faulty(fault, random, float(x[-1]), N_AFTER)
        stream.put(slots, 0)
        coming = copy.deepcopy(feed), times[N_HEALTHY:], y + course[N_HEALTHY:], True
        verdicts = alarms(copy.deepcopy(watch), forecasts(stream, *coming))
        at = next((row for row, verdict in enumerate(verdicts) if verdict.alarm), None)
        statistic = oracle(plant, fault, np.concatenate([x[-N_AFTER:], y])[None])[0][-N_AFTER:]
        beyond = np.flatnonzero(statistic >= heights[name])
        faults.append(
            {
                "fault": name,
                "at": at,
                "event": "" if at is None else verdicts[at].event,
                "oracle": int(beyond[0]) if len(beyond) else None,
            }
        )
    return {"n_alarms": n_alarms, "faults": faults}


def found_share(found: Sequence[int | None], within: int) -> float:
    """Return the share of faults that were found within some rows; None is one that was not."""
    return float(np.mean([at is not None and at < within for at in found]))


def over_plants(followed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each fault what the alarms and the oracle found within each number of rows."""
    table = {}
    for name in FAULTS:
        cases = [case for one in followed for case in one["faults"] if case["fault"] == name]
        events = Counter(case["event"] for case in cases if case["event"])
        table[name] = {
            "n": len(cases),
            "found": [found_share([case["at"] for case in cases], n) for n in WITHIN],
            "oracle": [found_share([case["oracle"] for case in cases], n) for n in WITHIN],
            "named": dict(events.most_common(3)),
        }
    return table


def one_sensor(stream: Stream, seed: int, n_rows: int, keep: Path | None) -> dict[str, Any]:
    """Return the alarms of a made-up sensor without a fault of its own."""
    family, values = clean_sensor(np.random.default_rng([seed, 20_260]), n_rows)
    kept = None if keep is None else keep / f"{seed}-{n_rows}.npy"
    if kept is not None and kept.exists():
        rows = np.load(kept)
    else:
        stream.reset()
        rows = forecasts(stream, feed_of(stream), list(map(float, range(n_rows))), values, False)
        if kept is not None:
            np.save(kept, rows)
    events = Counter(verdict.event for verdict in alarms(Watch(RATE), rows) if verdict.alarm)
    return {"family": family, "n_rows": n_rows, "events": dict(events)}


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    demands = []
    for name, told in data["faults"].items():
        for n, found, best in zip(WITHIN, told["found"], told["oracle"], strict=True):
            what = f"{name}: found within {n} rows, beside the oracle"
            demands.append(at_least(what, found / max(best, 1e-9), SHARE, ""))
    if data["sensors"]:
        beside = data["beside_rate"]
        demands.append(at_most("false alarms beside the stated rate", beside, 2.0, ""))
        demands.append(at_least("false alarms beside the stated rate", beside, 1 / 3, ""))
    return demands


def main() -> None:
    """Follow plants and sensors, record."""
    parser = arguments(__doc__ or "", "sensor_lasting")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    parser.add_argument("--sensors", type=int, default=N_SENSORS, help=f"default {N_SENSORS}")
    parser.add_argument("--rows", type=int, default=N_ROWS, help=f"of each; default {N_ROWS:,}")
    parser.add_argument("--keep", type=Path, help="folder in which forecasts of sensors are kept")
    args = parser.parse_args()
    before = conditions()
    n_of_each, n_sensors, n_rows = N_OF_EACH, args.sensors, args.rows
    if args.quick:
        n_of_each, n_sensors, n_rows = 1, min(n_sensors, 2), min(n_rows, 3000)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    followed, sensors = list[dict[str, Any]](), list[dict[str, Any]]()
    with Stream.open(args.bundle or shipped_bundle()) as stream:
        slots = StateSlots(stream.manifest, 1)
        for done, plant in enumerate(kinds := plants()):
            progress(f"plants: {done} of {len(kinds)} kinds")
            random = np.random.default_rng(1)
            heights = {name: height(plant, fault, RATE, random) for name, fault in FAULTS.items()}
            followed += [one_plant(stream, slots, plant, heights, n) for n in range(n_of_each)]
        for seed in range(n_sensors):
            progress(f"sensors without faults: {seed} of {n_sensors}")
            sensors.append(one_sensor(stream, seed, n_rows, args.keep))
    n_plant_rows = N_HEALTHY * len(followed)
    n_clean = sum(one["n_rows"] for one in sensors)
    events = sum((Counter(one["events"]) for one in sensors), Counter[str]())
    data = {
        "within": WITHIN,
        "rate": RATE,
        "faults": over_plants(followed),
        "plants_beside_rate": sum(one["n_alarms"] for one in followed) / n_plant_rows / RATE,
        "sensors": sensors,
        "n_clean_rows": n_clean,
        "events": dict(events.most_common()),
        "beside_rate": sum(events.values()) / max(n_clean, 1) / RATE,
    }
    finish(args, "sensor_lasting", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
