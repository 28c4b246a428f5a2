"""Do siblings' states make the first 300 rows of a new sensor better, and never worse?

    a family of sensors ──> each learns its rows ──> its state and its watch
              └──> each again as a new sensor ──> cold │ with the others as siblings
                        │ at 6 rows, a copy of both
                        └> level shift of 8 scales, up or down ──> alarm of the first value

    python -m benchmarks warm_start [--series FOLDER]

Families are the kinds of processes from which training draws (`sensor_prior`), each with 6 sensors
of other parameters, lengths of seasons and units; the servers, the bicycle and the six channels of
the watches of 8 people whose series come with the package; and with --series the folders in a
folder, each a family of files `time,value`. So "one kind" is taken widely: real fleets are closer.

nats: the mean log density of a value under the warm mixture less that under the cold forecast, from
the row that is forecast first to row 300. A row counts as at most 10 nats either way: one value
that a forecast held for impossible would outweigh all others. hits: a value 8 scales (mean absolute
changes) away is alarmed at once, of all sensors and of steady ones, which hardly ever move by 5.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alarms.sensor_faults import is_steady, scale_of
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
from edgefold.runtime import DataError, Stream
from edgefold.runtime.arrays import Array
from edgefold.runtime.kept_arrays import part_of
from edgefold.runtime.sensors.engine import ScoredRow, SensorEngine
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.kept_starts import restored_starts, warm_arrays
from edgefold.runtime.sensors.warm.siblings import MOST, WATCH, Sibling
from edgefold.runtime.sensors.warm.warm_start import N_ROWS
from edgefold.runtime.stream.named_states import NamedStates
from edgefold.runtime.stream.snapshot import STREAMS
from edgefold.runtime.stream.state_slots import POINTS

QUESTION = "Do siblings' states make the first 300 rows of a new sensor better, and never worse?"
RATE = 1e-4
N_MADE, N_LEARNED, SEED = 6, 1500, 20_280
FORKS = (70, 110, 150, 190, 230, 270)
SIZE, BOUND = 8.0, 10.0
GROUPS = {"servers": "server_", "bicycle": "ride_"}
N_PEOPLE, LEAST_READINGS, READING_S = 8, 320, 0.08
QUICK = ("breath", "bicycle")
FULL = "one sensor at a time ({n}, {names})"


# Families -----------------------------------------------------------------------------------------


def made_up(family: str, number: int) -> SensorFile:
    """A made-up sensor of a family, without faults of its own."""
    from edgefold.train.tasks.sensors.sensor_artefacts import noisy
    from edgefold.train.tasks.sensors.sensor_prior import FAMILIES, SEASONS, in_a_unit
    from edgefold.train.tasks.sensors.sensor_processes import log_uniform, standard

    random = np.random.default_rng([number, list(FAMILIES).index(family), SEED])
    season = int(random.choice(SEASONS))
    drawn = FAMILIES[family][0](random, N_LEARNED, season)
    values = standard(np.nan_to_num(np.clip(drawn, -1e9, 1e9)))
    if random.random() < 0.3:
        values = noisy(random, values, season)
    if random.random() < 0.4:
        changes = np.abs(np.diff(values))
        usual = float(np.median(changes[changes > 0])) if changes.any() else 1.0
        quantum = max(usual, 1e-3) * log_uniform(random, 0.03, 3)
        values = np.round(values / quantum) * quantum
    values = in_a_unit(random, values, values.min())
    return SensorFile(str(number), np.arange(N_LEARNED, dtype=float), values, False, "")


def packaged() -> Iterator[tuple[str, list[SensorFile]]]:
    """Families of the real series that come with the package."""
    source = files("edgefold.train.tasks")
    with (source / "sensors" / "built_in_sensors.npz").open("rb") as file, np.load(file) as arrays:
        for family, start in GROUPS.items():
            series = {name: arrays[name] for name in arrays.files if name.startswith(start)}
            yield family, [_even(name, values, 1.0) for name, values in series.items()]
    file_of_watches = source / "sequences" / "built_in_sequences.npz"
    with file_of_watches.open("rb") as file, np.load(file) as arrays:
        lengths, labels = arrays["exercise_lengths"], arrays["exercise_labels"]
        readings = arrays["exercise_readings"].astype(np.float64)
    ends = np.cumsum(lengths)
    ones = np.flatnonzero((labels == 0) & (lengths >= LEAST_READINGS))[:N_PEOPLE]
    for channel, values in enumerate(readings):
        pieces = [values[ends[one] - lengths[one] : ends[one]] for one in ones]
        series_of = [
            _even(str(one), piece, READING_S) for one, piece in zip(ones, pieces, strict=True)
        ]
        yield f"watch, channel {channel + 1}", series_of


def _even(name: str, values: Array, step: float) -> SensorFile:
    times = step * np.arange(len(values))
    known = np.isfinite(values)
    return SensorFile(name, times[known], values[known].astype(np.float64), False, "")


def families(series: Path | None) -> Iterator[tuple[str, str, list[SensorFile]]]:
    """Kind, name and sensors of each family."""
    from edgefold.train.tasks.sensors.sensor_prior import FAMILIES

    for name in FAMILIES:
        yield "made-up", name, [made_up(name, number) for number in range(N_MADE)]
    for name, sensors in packaged():
        yield "real", name, sensors
    for folder in sorted(path for path in (series.iterdir() if series else ()) if path.is_dir()):
        yield "real", folder.name, read_sensors(folder)


# One sensor ---------------------------------------------------------------------------------------


@dataclass
class Run:
    """One sensor on a stream, cold or with a fleet.

    Attributes:
        stream: The open stream.
        fleet: The siblings; None for a cold start.
    """

    stream: Stream
    fleet: Fleet | None

    def __post_init__(self) -> None:
        kind = self.stream.manifest.prediction
        self.stream.reset()
        self.states = NamedStates(self.stream, 1, FULL)
        self.engine = SensorEngine(kind, RATE, fleet=self.fleet)  # type: ignore[arg-type]
        self.n_values = 0

    def take(self, time: float, value: float, dated: bool) -> ScoredRow | None:
        """Take a row; None if it is refused."""
        try:
            row = self.engine.step(self.states, "", time, value, dated, self.n_values)
        except DataError:
            return None
        self.n_values += value == value
        return row

    def kept(self) -> dict[str, Array]:
        """All arrays, as a snapshot keeps them."""
        return {**self.states.arrays([self.engine]), **warm_arrays([self.engine.warm])}

    def go_on(self, arrays: Mapping[str, Array], n_values: int) -> None:
        """Go on from what `kept` returned, in place of what came since."""
        self.__post_init__()
        self.states.load(arrays, [""], [self.engine])
        self.engine.warm = restored_starts(arrays, 1, self.fleet, RATE)[0]
        self.n_values = n_values


def learned(stream: Stream, series: SensorFile) -> Sibling:
    """Return what a sensor knows after all its rows."""
    run = Run(stream, None)
    for time, value in zip(series.times.tolist(), series.values.tolist(), strict=True):
        run.take(time, value, series.dated)
    own = {name: array[0] for name, array in part_of(run.kept(), STREAMS).items()}
    state = {name: a for name, a in own.items() if name.startswith("state.") or name in POINTS}
    return Sibling(series.name, state, part_of(own, WATCH))


def first_rows(run: Run, series: SensorFile) -> dict[str, Any]:
    """The scores and alarms of the first rows, and which shifts are found at once."""
    rows: list[ScoredRow | None] = []
    hits: dict[str, list[bool]] = {"up": [], "down": []}
    for at, time in enumerate(series.times[:N_ROWS].tolist()):
        value = float(series.values[at])
        scale = scale_of(series.values[:at]) if at in FORKS else 0.0
        if scale > 0:
            kept, n_values = run.kept(), run.n_values
            for name, sign in (("up", 1.0), ("down", -1.0)):
                shifted = run.take(time, value + sign * SIZE * scale, series.dated)
                hits[name].append(shifted is not None and shifted.alarm)
                run.go_on(kept, n_values)
        rows.append(run.take(time, value, series.dated))
    scored = [row if row is not None and row.is_scored else None for row in rows]
    return {
        "log_density": [None if row is None else row.log_density for row in scored],
        "alarms": sum(row.alarm for row in rows if row is not None),
        "within": [row.quantiles[0] <= row.value <= row.quantiles[-1] for row in scored if row],
        "hits": [hit for each in hits.values() for hit in each],
    }


def one_family(family: tuple[str, str, Sequence[SensorFile]]) -> dict[str, Any]:
    """Each sensor of a family cold, and warm with the others as siblings."""
    with Stream.open(shipped_bundle()) as stream, Stream.open(shipped_bundle()) as other:
        return _followed(stream, other, *family)


def _followed(
    stream: Stream, other: Stream, kind: str, name: str, sensors: Sequence[SensorFile]
) -> dict[str, Any]:
    siblings = [learned(stream, series) for series in sensors]
    each = []
    for at, series in enumerate(sensors):
        others = sorted(siblings[:at] + siblings[at + 1 :], key=lambda one: -one.n_slots)[:MOST]
        cold = first_rows(Run(stream, None), series)
        warm = first_rows(Run(stream, Fleet(other, others)), series)
        each.append({"name": series.name, "steady": is_steady(series.values[:N_ROWS])})
        each[-1] |= compared(cold, warm)
    return {"kind": kind, "name": name, "sensors": each}


def compared(cold: Mapping[str, Any], warm: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one sensor, cold and warm."""
    pairs = [
        (before, after)
        for before, after in zip(cold["log_density"], warm["log_density"], strict=True)
        if before is not None and after is not None
    ]
    gains = [min(max(after - before, -BOUND), BOUND) for before, after in pairs]
    parts = {"cold": cold, "warm": warm}
    return {
        "gain": float(np.mean(gains)) if gains else 0.0,
        "alarms": {name: part["alarms"] for name, part in parts.items()},
        "within": {name: _mean(part["within"]) for name, part in parts.items()},
        "hits": {name: sum(part["hits"]) for name, part in parts.items()},
        "n_hits": len(cold["hits"]),
    }


def _mean(numbers: Sequence[float]) -> float | None:
    return float(np.mean(numbers)) if len(numbers) else None


# What is told -------------------------------------------------------------------------------------


def summary(sensors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The means over sensors."""

    def hits(of: Sequence[Mapping[str, Any]], way: str) -> float | None:
        n = sum(one["n_hits"] for one in of)
        return sum(one["hits"][way] for one in of) / n if n else None

    steady = [one for one in sensors if one["steady"]]
    found: dict[str, Any] = {
        "n": len(sensors),
        "n_steady": len(steady),
        "gain": float(np.mean([one["gain"] for one in sensors])),
        "worst": min(one["gain"] for one in sensors),
    }
    for way in ("cold", "warm"):
        within = [one["within"][way] for one in sensors if one["within"][way] is not None]
        found[way] = {
            "alarms": float(np.mean([one["alarms"][way] for one in sensors])),
            "within": float(np.mean(within)) if within else None,
            "hits": hits(sensors, way),
            "steady_hits": hits(steady, way),
        }
    return found


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands, of the made-up and of the real families."""
    made = []
    for kind, told in data["kinds"].items():
        cold, warm = told["cold"], told["warm"]
        ratio = warm["alarms"] / cold["alarms"] if cold["alarms"] else 0.0
        made += [
            at_most(f"{kind}: false alarms, warm divided by cold", ratio, 0.5, ""),
            at_least(f"{kind}: log density, warm less cold", told["gain"], 0.1, "nats"),
            at_least(f"{kind}: the same, of the worst sensor", told["worst"], -0.02, "nats"),
        ]
        if warm["steady_hits"] is not None:
            lost = cold["steady_hits"] - warm["steady_hits"]
            made.append(at_most(f"{kind}: hits lost of steady sensors", lost, 0.02, ""))
    return made


def main() -> None:
    """Follow all families, and record."""
    parser: argparse.ArgumentParser = arguments(__doc__ or "", "warm_start")
    parser.add_argument("--series", type=Path, help="a folder of folders, each a real family")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time; default 1")
    args = parser.parse_args()
    before = conditions()
    told = []
    asked = [family for family in families(args.series) if not args.quick or family[1] in QUICK]
    with ProcessPoolExecutor(args.jobs) as pool:
        for family in pool.map(one_family, asked):
            told.append(family)
            progress(f"families: {len(told)} of {len(asked)}")
    with Stream.open(shipped_bundle()) as stream:
        backend = stream.backend_report["name"]
    kinds = sorted({one["kind"] for one in told})
    data = {
        "backend": backend,
        "n_rows": N_ROWS,
        "rate": RATE,
        "kinds": {
            kind: summary([s for one in told if one["kind"] == kind for s in one["sensors"]])
            for kind in kinds
        },
        "families": [
            {"kind": one["kind"], "name": one["name"], **summary(one["sensors"])} for one in told
        ],
    }
    finish(args, "warm_start", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
