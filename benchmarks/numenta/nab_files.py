"""Contents of a checkout of the Numenta Anomaly Benchmark: series, windows, stored results.

    NAB/data/GROUP/FILE.csv                    timestamp,value
    NAB/labels/combined_windows.json           GROUP/FILE.csv: first and last time of each window
    NAB/results/DETECTOR/GROUP/DETECTOR_FILE   timestamp,value,anomaly_score,...
    NAB/results/final_results.json             DETECTOR: PROFILE: score

Nothing of it is kept in this project.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks.numenta.nab_score import Labelled, labelled
from edgefold.runtime.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class NabFile:
    """A series with its windows.

    Attributes:
        name: GROUP/FILE.csv.
        times, values: Of n rows.
        windows: First and last row of each window.
    """

    name: str
    times: list[datetime]
    values: list[float]
    windows: list[tuple[int, int]]

    @property
    def labelled(self) -> Labelled:
        """The rows that are scored."""
        return labelled(len(self.times), self.windows)


def read_corpus(nab: Path) -> list[NabFile]:
    """All series, in the order of their names.

    Raises:
        SystemExit: The folder is not a checkout of NAB.
    """
    path = nab / "labels" / "combined_windows.json"
    if not path.is_file():
        raise SystemExit(
            f"{path} does not exist; give a checkout: git clone https://github.com/numenta/NAB"
        )
    windows = json.loads(path.read_text())
    return [read_file(nab / "data" / name, name, windows[name]) for name in sorted(windows)]


def read_file(path: Path, name: str, windows: list[list[str]]) -> NabFile:
    """A series, with the windows as rows of it; of equal times the first one counts."""
    rows = columns(path, "timestamp", "value")
    times = [datetime.fromisoformat(time) for time, _ in rows]
    limits = [[times.index(datetime.fromisoformat(time)) for time in one] for one in windows]
    values = [float(value) for _, value in rows]
    return NabFile(name, times, values, [(left, right) for left, right in limits])


def columns(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Some columns of a CSV file with a header."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        header = next(rows)
        at = [header.index(name) for name in names]
        return [tuple(row[i] for i in at) for row in rows]


def published(nab: Path) -> dict[str, dict[str, float]]:
    """The scores that the repository states, by detector and profile."""
    found: dict[str, dict[str, float]] = json.loads(
        (nab / "results" / "final_results.json").read_text()
    )
    return found


def stored(nab: Path, detector: str, corpus: Sequence[NabFile]) -> list[FloatArray] | None:
    """The anomaly scores of a detector, a file each; None where a file is absent or too short."""
    found = []
    for file in corpus:
        group, name = file.name.split("/")
        path = nab / "results" / detector / group / f"{detector}_{name}"
        if not path.is_file():
            return None
        scores = np.array([float(row[0]) for row in columns(path, "anomaly_score")])
        if len(scores) != len(file.times):
            return None
        found.append(scores)
    return found


def stated_thresholds(nab: Path, detector: str, profiles: Iterable[str]) -> dict[str, float] | None:
    """The threshold of a detector by profile, as its stored results state it; None without them."""
    found = {}
    for profile in profiles:
        path = nab / "results" / detector / f"{detector}_{profile}_scores.csv"
        if not path.is_file():
            return None
        found[profile] = float(columns(path, "Threshold")[0][0])
    return found
