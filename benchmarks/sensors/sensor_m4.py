"""How good are forecasts one row ahead on M4-Hourly, beside published methods?

    python -m benchmarks sensor_m4 FOLDER

The folder holds Hourly-train.csv of the M4 competition (M4-methods, Dataset/Train) and
results_m4_hourly.csv of skaters (P. Cotton, benchmarks/comparisons/laplace-vs-csp): CRPS and log
density of 30 methods on each of the 414 series, one step ahead, over its last 300 changes. Changes
are differences, of logarithms where all values are positive. The shipped bundle sees the levels,
with hours as times, and its quantiles become those of changes.

What to keep in mind: the peers were given changes and no levels; some were fitted again for every
25 rows, ours learns with every row; a part of our nats are exact repeats, to which it gives mass,
which CRPS does not reward; our CRPS is that of seven quantiles, linear in the normal's between and
beyond. Nothing of M4 was trained on.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.record import Record, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.sensors.sensors_scores import geometric_mean, quantile_loss, quantiles_at
from benchmarks.tables import as_text
from edgefold.runtime import Sensors
from edgefold.runtime.arrays import FloatArray

QUESTION = "How good are forecasts one row ahead on M4-Hourly, beside published methods?"
N_SCORED, HOUR_S = 300, 3600.0
MASSES = (np.arange(100) + 0.5) / 100
"""Levels over which the pinball loss is averaged."""
BESIDE, MOST = "laplace", 0.9
LEAST_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class OneSeries:
    """Holds the scores of one series over its last changes.

    Attributes:
        crps: Of changes.
        log_density: Of changes, in nats.
        holds_90: Share of values inside the 90 % band.
    """

    crps: float
    log_density: float
    holds_90: float


def score(sensors: Sensors, name: str, levels: Sequence[float]) -> OneSeries:
    """Return the scores of a series, which the model follows from its first row on."""
    is_log, first = min(levels) > 0, len(levels) - N_SCORED
    crps, nats, inside = list[float](), list[float](), list[bool]()
    for at, level in enumerate(levels):
        row = sensors.step(HOUR_S * at, level, name, dated=True)
        if at < first:
            continue
        before = levels[at - 1]
        quantiles = quantiles_at(MASSES, np.array([*row.quantiles.values()]))
        nats.append(row.log_density + (math.log(level) if is_log else 0.0))
        if is_log:
            changes = np.log(np.maximum(quantiles, LEAST_SHARE * before) / before)
            change = math.log(level / before)
        else:
            changes, change = quantiles - before, level - before
        crps.append(crps_of(changes, change))
        inside.append(row.q05 <= level <= row.q95)
    return OneSeries(float(np.mean(crps)), float(np.mean(nats)), float(np.mean(inside)))


def crps_of(quantiles: FloatArray, value: float) -> float:
    """Return twice the mean pinball loss of quantiles (100,) at `MASSES`."""
    return float(np.mean(quantile_loss(np.array(value), quantiles, MASSES)))


def published(path: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Return CRPS and log density by method and series."""
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in csv.DictReader(path.read_text().splitlines()):
        found[row["method"]][row["series"]] = (float(row["crps"]), float(row["logpdf"]))
    return dict(found)


def beside(
    ours: Mapping[str, OneSeries], peer: Mapping[str, tuple[float, float]]
) -> dict[str, float] | None:
    """Return how ours compare with one method, over the series that both have."""
    names = [name for name in ours if name in peer and peer[name][0] > 0]
    if not names:
        return None
    ratios = [ours[name].crps / peer[name][0] for name in names]
    nats = [ours[name].log_density - peer[name][1] for name in names]
    return {
        "n": len(names),
        "crps_median": median(ratios),
        "crps_mean": geometric_mean(ratios),
        "crps_better": float(np.mean(np.array(ratios) < 1)),
        "nats_median": median(nats),
        "nats_better": float(np.mean(np.array(nats) > 0)),
    }


def main() -> None:
    """Score and record."""
    parser = arguments(__doc__ or "", "sensor_m4")
    parser.add_argument("folder", type=Path, help="with Hourly-train.csv, results_m4_hourly.csv")
    parser.add_argument("--bundle", type=Path, help="as exported; default the shipped one")
    args = parser.parse_args()
    before = conditions()
    lines = list(csv.reader((args.folder / "Hourly-train.csv").read_text().splitlines()))[1:]
    ours = dict[str, OneSeries]()
    for at, (name, *cells) in enumerate(lines[:2] if args.quick else lines):
        if at % 20 == 0:
            progress(f"{at} of {len(lines)} series")
        with Sensors.open(args.bundle) as sensors:
            ours[name] = score(sensors, name, [float(cell) for cell in cells if cell])
    peers = published(args.folder / "results_m4_hourly.csv")
    compared = {method: beside(ours, peer) for method, peer in peers.items()}
    data: dict[str, Any] = {
        "series": {name: asdict(one) for name, one in ours.items()},
        "peers": {method: one for method, one in compared.items() if one is not None},
    }
    finish(args, "sensor_m4", QUESTION, before, data, requirements(data), as_text)


def requirements(data: Record) -> list[Requirement]:
    """The bounds of the project."""
    if BESIDE not in data["peers"]:
        return []
    value = data["peers"][BESIDE]["crps_median"]
    return [at_most(f"CRPS beside {BESIDE}, median", value, MOST, "")]


if __name__ == "__main__":
    main()
