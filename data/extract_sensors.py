"""Makes train/tasks/built_in_sensors.npz from copies that packages and one repository carry.

    pip install bokeh-sampledata==2026.1 pvanalytics==0.2.2 pvlib==0.16.1
    git clone https://github.com/numenta/NAB
    python data/extract_sensors.py NAB

Values lie on a regular grid of time; a slot without a measurement holds NaN. Nothing else in the
project needs these packages. README.md beside this file gives sources and licences.
"""

from __future__ import annotations

import csv
import gzip
import sys
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TARGET = HERE.parent / "train" / "tasks" / "built_in_sensors.npz"
NAB = {  # name: file, slots of a season, 0 for none
    "server_group_cpu": ("realKnownCause/cpu_utilization_asg_misconfiguration.csv", 288),
    "server_latency": ("realKnownCause/ec2_request_latency_system_failure.csv", 288),
    "server_network_in": ("realAWSCloudwatch/ec2_network_in_257a54.csv", 288),
    "server_cpu": ("realAWSCloudwatch/ec2_cpu_utilization_825cc2.csv", 288),
    "road_speed": ("realTraffic/speed_7578.csv", 0),
    "mentions": ("realTweets/Twitter_volume_GOOG.csv", 288),
}
STEP_S = 300.0
LONGEST_GAP = 600
"""Slots: what lies between is left out where a gap is longer."""


def package_file(package: str, name: str) -> Path:
    """A data file of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the package {package} is not installed: see the head of this file")
    return Path(next(iter(spec.submodule_search_locations))) / name


def on_a_grid(rows: list[tuple[str, str]]) -> np.ndarray:
    """Values by slots of five minutes."""
    times = np.array([datetime.fromisoformat(time).timestamp() for time, _ in rows])
    steps = np.clip(np.rint(np.diff(times) / STEP_S), 1, LONGEST_GAP)
    slots = np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    values = np.full(slots[-1] + 1, np.nan)
    values[slots] = [float(value) for _, value in rows]
    return values


def column(text: str, name: str, skipped: int = 0) -> np.ndarray:
    """One column of a CSV file."""
    rows = csv.DictReader(text.splitlines()[skipped:])
    return np.array([float(row[name] or "nan") for row in rows])


def main(nab: Path) -> None:
    """Read all and write the file."""
    series: dict[str, tuple[np.ndarray, int]] = {}
    for name, (file, season) in NAB.items():
        with (nab / "data" / file).open(newline="") as opened:
            rows = [(row["timestamp"], row["value"]) for row in csv.DictReader(opened)]
        series[name] = on_a_grid(rows), season
    ride = gzip.decompress(package_file("bokeh_sampledata", "_data/cycling.csv.gz").read_bytes())
    for part in ("power", "speed", "altitude", "cadence"):
        series[f"ride_{part}"] = column(ride.decode(), part).round(3), 0
    inverter = package_file("pvanalytics", "data/ac_power_inv_2173.csv").read_text()
    series["inverter_power"] = column(inverter, "value_normalized").round(6), 96
    year = package_file("pvlib", "data/723170TYA.CSV").read_text()
    series["air_temperature"] = column(year, "Dry-bulb (C)", skipped=1), 24
    sea = (HERE / "sea_surface_monthly.csv").read_text()
    series["sea_surface"] = column(sea, "value"), 12
    arrays = {name: values.astype(np.float32) for name, (values, _) in series.items()}
    seasons = np.array([season for _, season in series.values()])
    licence = np.array((nab / "LICENSE.txt").read_text())
    np.savez_compressed(TARGET, seasons=seasons, nab_licence=licence, **arrays)
    for name, values in arrays.items():
        print(f"{name}: {len(values)} slots, {np.isnan(values).sum()} of them empty")
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
