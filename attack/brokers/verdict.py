"""Compare what a loop has made of a schedule with an uninterrupted run, sensor by sensor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

STREAMS = "extra.streams."
COUNTS = ("rows", "predicted", "missing", "not_learned", "anomalies")
"""Counts that rows which come again do not change."""
Lines = dict[str, list[str]]


def by_sensor(texts: Iterable[str], place: int = 0) -> Lines:
    """Return the lines of some files after their headers, by the sensor that they name.

    Args:
        texts: The contents of the files.
        place: The place of the sensor's name in a line.
    """
    found: Lines = {}
    for text in texts:
        for line in text.splitlines(keepends=True)[1:]:
            found.setdefault(line.split(",")[place], []).append(line)
    return found


def outputs(folder: Path) -> list[Path]:
    """Return the files of an output in the order in which they were written.

    Names show it only where files are finished by size: days come again where one topic is behind.
    """
    paths = folder.glob("out*.csv")
    return sorted(paths, key=lambda path: (path.name == "out.csv", path.stat().st_mtime_ns))


def output_lines(folder: Path) -> Lines:
    """Return the rows of an output, by sensor."""
    return by_sensor(path.read_text() for path in outputs(folder))


def learned(folder: Path) -> dict[str, list[str]]:
    """Return the times of the rows of an output, by sensor."""
    return {
        name: [line.split(",")[1] for line in lines] for name, lines in output_lines(folder).items()
    }


def difference(folder: Path, whole: Path) -> str:
    """Return the first difference of two runs; empty if outputs, alarms and states are equal."""
    for what, found, wanted in (
        ("output", output_lines(folder), output_lines(whole)),
        ("alarms", _alarms(folder), _alarms(whole)),
    ):
        if found != wanted:
            return f"another {what}"
    states = [sensor_states(of / "s.npz") for of in (folder, whole)]
    if states[0].keys() != states[1].keys():
        return "other sensors in the snapshot"
    for name, state in states[0].items():
        for key, content in state.items():
            if states[1][name][key] != content:
                return f"another state: {key}"
    left = [path.name for path in folder.glob("*.tmp")]
    return "temporary files stay" if left else ""


def _alarms(folder: Path) -> Lines:
    path = folder / "alarms.csv"
    return by_sensor([path.read_text()] if path.exists() else [])


def sensor_states(snapshot: Path) -> Mapping[str, Mapping[str, object]]:
    """Return of each sensor of a snapshot all arrays, as bytes, and the counts of its rows."""
    with np.load(snapshot) as archive:
        record = json.loads(archive["extra.loop"].tobytes())
        arrays = {n: archive[n] for n in archive.files if n.startswith(STREAMS)}
    found = {}
    for number, name in enumerate(record["names"]):
        counts = record["sensors"][number]
        found[name] = {
            "counts": [counts[key] for key in COUNTS],
            **{key.removeprefix(STREAMS): array[number].tobytes() for key, array in arrays.items()},
        }
    return found
