"""Do the bands hold what they state up to 48 rows ahead, and how good are the medians?

    a series ──> Sensors.step, row by row ──> at each origin Sensors.path ──> beside what came

    python -m benchmarks sensor_paths --series FOLDER [--m4 FOLDER] [--births FILE]

--series takes any folder of files `time,value`: from 40 % of a series on, every seventh row is an
origin of 48 rows. The bands are told at each row ahead, the medians beside the better of
persistence and the season before, which is chosen with hindsight.

Two tasks have published scores of other models (GIFT-Eval, Aksu et al. 2024):
  --m4      a folder with Hourly-train.csv and Hourly-test.csv of the M4 competition (M4-methods,
            Dataset/Train and Dataset/Test): 48 rows after each of 414 series, without times
  --births  a file of the daily births in the USA, 1969 to 1988 (mosaicData's Births: date, births):
            the last 20 windows of 30 days
The published windows are few or all begin at one hour, so that a share of their values says little.
Bands of both tasks are told from more origins, too: every seventh row of the last week before the
test of M4, 24 of them, one for each hour; and each of the last days of the births.
The bundle is taken as it is shipped; nothing is tuned on what is scored.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.sensors.path_scores import (
    Paths,
    over_series,
    series_record,
    task_record,
    within,
)
from benchmarks.sensors.sensors_run import SensorFile, read_sensor, read_sensors
from benchmarks.sensors.sensors_scores import LEVELS
from benchmarks.tables import as_text
from edgefold.runtime import DataError, Sensors
from edgefold.runtime.arrays import FloatArray

QUESTION = "Do the bands hold what they state up to 48 rows ahead, and how good are the medians?"
N_ROWS, FIRST_SHARE, EVERY = 48, 0.4, 7
DAYS, N_WINDOWS = 30, 20
M4_SEASON = 24
COVERAGE = {"80": (0.76, 0.84), "90": (0.86, 0.94)}
NEAR, NEAR_ROWS = 14 / 16, (24, 48)
MEDIANS = {"5 to 16": 0.85, "17 to 48": 0.88}
WORST, LOSS = 1.1, 0.026


def follow_paths(sensors: Sensors, series: SensorFile, origins: set[int], n_rows: int) -> Paths:
    """Return the paths of one sensor from some origins, the numbers of rows of the file before."""
    name, values = series.name, dict[int, float]()
    slot, made = -1, list[tuple[int, int, int, FloatArray]]()
    for at, (time, value) in enumerate(zip(series.times, series.values, strict=True)):
        if at in origins and slot >= 0:
            quantiles = sensors.path(n_rows, name).quantiles
            if np.isfinite(quantiles).all():
                made.append((at, slot, sensors.feed(name).season, quantiles))
        try:
            row = sensors.step(None if math.isnan(time) else time, value, name, dated=series.dated)
        except DataError:
            continue
        slot += 1 + row.n_missing
        values[slot] = value
    return paths_of(values, made, n_rows)


def paths_of(
    values: Mapping[int, float], made: Sequence[tuple[int, int, int, FloatArray]], n_rows: int
) -> Paths:
    """Set paths beside what came.

    Args:
        values: Of each slot that has one.
        made: Origin, newest slot, season and quantiles (H, 7) of each path.
        n_rows: H.
    """
    ahead = range(1, n_rows + 1)
    came, before, last = list[list[float]](), list[list[float]](), list[float]()
    for _, slot, season, _ in made:
        came.append([values.get(slot + h, math.nan) for h in ahead])
        last.append(values[slot])
        back = [season * -(-h // season) if season else 0 for h in ahead]
        of_season = [values.get(slot + h - b, math.nan) for h, b in zip(ahead, back, strict=True)]
        before.append(of_season if season else [math.nan] * n_rows)
    shape = (len(made), n_rows)
    quantiles = np.array([quantiles for *_, quantiles in made]).reshape(*shape, len(LEVELS))
    came_at, before_at = (np.array(rows).reshape(shape) for rows in (came, before))
    origins = np.array([at for at, *_ in made], np.int64)
    return Paths(came_at, quantiles, np.array(last), before_at, origins)


def scored_series(sensors: Sensors, files: Sequence[SensorFile]) -> dict[str, Any]:
    """Return the scores of a folder of series."""
    records = {}
    for at, series in enumerate(files):
        progress(f"{series.name}, {at + 1} of {len(files)}")
        n = len(series.values)
        origins = set(range(int(FIRST_SHARE * n), n - N_ROWS, EVERY))
        paths = follow_paths(sensors, series, origins, N_ROWS)
        records[series.name] = {"digest": series.digest, **series_record(paths)}
    scored = [of for of in records.values() if of["n_origins"]]
    return {"series": records, "over_all": over_series(scored)}


def m4_series(folder: Path) -> Iterator[tuple[SensorFile, int]]:
    """Yield the hourly series of M4, the test's rows behind those of training, and their number."""
    trains, tests = (
        list(csv.reader((folder / f"Hourly-{part}.csv").read_text().splitlines()))[1:]
        for part in ("train", "test")
    )
    following = {name: cells for name, *cells in tests}
    for name, *first in trains:
        rows = [[float(cell) for cell in cells if cell] for cells in (first, following[name])]
        values = np.array([*rows[0], *rows[1]])
        none = np.full(len(values), math.nan)
        yield SensorFile(name, none, values, False, ""), len(rows[0])


def scored_m4(sensors: Sensors, folder: Path) -> dict[str, Any]:
    """Return the scores of the task m4_hourly/H."""
    every, published, scales = list[Paths](), list[set[int]](), list[float]()
    for at, (series, n) in enumerate(m4_series(folder)):
        if at % 20 == 0:
            progress(f"m4_hourly: {at} series")
        often = {n - EVERY * k for k in range(M4_SEASON)}
        every.append(follow_paths(sensors, series, often, N_ROWS))
        published.append({n})
        scales.append(scale_of(series.values[:n], M4_SEASON))
    return task_record(every, published, scales)


def scored_births(sensors: Sensors, file: Path) -> dict[str, Any]:
    """Return the scores of the task us_births/D."""
    series = read_sensor(file)
    first = len(series.values) - DAYS * N_WINDOWS
    published = range(first, len(series.values), DAYS)
    progress("us_births")
    paths = follow_paths(sensors, series, set(range(first, published[-1] + 1)), DAYS)
    return task_record([paths], [published], [scale_of(series.values[:first], 1)])


def scale_of(values: FloatArray, season: int) -> float:
    """Return the mean absolute change of values from one season to the next."""
    return float(np.mean(abs(values[season:] - values[:-season]))) or 1.0


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    found = []
    sets = {"the series": data["series"]["over_all"]}
    for name, scores in data["tasks"].items():
        sets |= {name: scores, f"{name}, more origins": scores["often"]}
    for name, scores in sets.items():
        for band, (low, high) in COVERAGE.items():
            shares = scores["holds"][band]
            told = {h: shares[h - 1] for h in within(len(shares))}
            met = all(low <= share <= high for share in told.values())
            shown = ", ".join(f"{100 * share:.0f}" for share in told.values())
            bound = f"{100 * low:.0f} to {100 * high:.0f} %"
            rows = ", ".join(map(str, told))
            found.append(Requirement(f"{name}: {band} % band at rows {rows}", shown, bound, met))
    over = data["series"]["over_all"]
    for row in NEAR_ROWS:
        near, n = over["near_80"][str(row)], over["n_series"]
        what = f"series whose 80 % band holds 74 to 86 % at row {row}"
        found.append(Requirement(what, f"{near} of {n}", f">= {NEAR:.1%}", near >= NEAR * n))
    for group, most in MEDIANS.items():
        what = f"medians at rows {group}, beside the better naive forecast"
        found.append(at_most(what, over["medians"][group], most, ""))
    worst = max(over["worst"][group] for group in MEDIANS)
    found.append(at_most("the worst series of these", worst, WORST, ""))
    for name, scores in data["tasks"].items():
        what = f"goal: {name}, weighted quantile loss"
        found.append(at_most(what, scores["weighted_quantile_loss"], LOSS, ""))
    return found


def main() -> None:
    """Score and record."""
    parser = arguments(__doc__ or "", "sensor_paths")
    parser.add_argument("--series", type=Path, required=True, help="a folder of CSV files")
    parser.add_argument("--m4", type=Path, help="folder of Hourly-train.csv and Hourly-test.csv")
    parser.add_argument("--births", type=Path, help="file of daily births: date, births")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    args = parser.parse_args()
    before = conditions()
    files = read_sensors(args.series)[: 1 if args.quick else None]
    data: dict[str, Any] = {"tasks": {}}
    with Sensors.open(args.bundle) as sensors:
        data["series"] = scored_series(sensors, files)
        if args.m4:
            data["tasks"]["m4_hourly"] = scored_m4(sensors, args.m4)
        if args.births:
            data["tasks"]["us_births"] = scored_births(sensors, args.births)
    finish(args, "sensor_paths", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
