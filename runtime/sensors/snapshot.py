"""Turn what is kept of several sensors into arrays for a snapshot, and back.

Arrays of one name are stacked over the sensors, so that their number does not grow with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.sensors.sensor import Sensor
from edgefold.runtime.stream.state_slots import StateSlots

RECORD = "sensors"
OWN = ("ahead_mean", "ahead_quantiles", "following")
PARTS = ("feed", "watch", "slot", "season", "own")
KINDS = (None, "dates", "numbers", "rows")


def arrays_of(sensors: Mapping[str, Sensor], present: str) -> dict[str, Array]:
    """Everything beside the stream's own state; each sensor's state is in its slots."""
    record = {
        "present": present,
        "sensors": [
            [name, s.kind, s.n_rows, s.n_values, s.newest if s.n_values else 0.0]
            for name, s in sensors.items()
        ],
    }
    each = [_arrays(sensor) for sensor in sensors.values()]
    stacked = {
        name: np.stack([arrays[name] for arrays in each]) for name in (each[0] if each else ())
    }
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    return {RECORD: text, **stacked}


def sensors_of(
    extra: Mapping[str, Array], manifest: Manifest, new: Callable[[], Sensor]
) -> tuple[dict[str, Sensor], str]:
    """Rebuild the sensors, and which one is present; raises SnapshotError for what is damaged."""
    try:
        record: dict[str, Any] = json.loads(extra[RECORD].tobytes())
        found = {}
        for i, (name, kind, n_rows, n_values, newest) in enumerate(record["sensors"]):
            if kind not in KINDS or not 0 <= n_values <= n_rows:
                raise ValueError("counts or kinds are damaged")
            sensor = new()
            sensor.kind, sensor.n_rows, sensor.n_values = kind, int(n_rows), int(n_values)
            sensor.newest = float(newest) if n_values else float("nan")
            _load(
                sensor, {key: array[i] for key, array in extra.items() if key != RECORD}, manifest
            )
            found[str(name)] = sensor
        if found and record["present"] not in found:
            raise ValueError("no sensor is the present one")
        return found, str(record["present"])
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise SnapshotError(
            f"the snapshot is not of these sensors, or is damaged ({error}); use an older copy, or "
            "start without it."
        ) from None


def _arrays(sensor: Sensor) -> dict[str, Array]:
    """The arrays of one sensor, each with its part's name before its own."""
    assert sensor.slots is not None
    parts = {
        "feed": sensor.feed.arrays(),
        "watch": sensor.watch.arrays(),
        "slot": sensor.slots.arrays(1),
        "season": sensor.season_ahead.arrays(),
        "own": {name: getattr(sensor, name) for name in OWN},
    }
    return {f"{part}:{name}": array for part, held in parts.items() for name, array in held.items()}


def _load(sensor: Sensor, arrays: Mapping[str, Array], manifest: Manifest) -> None:
    """Take over what `_arrays` gave."""
    parts: dict[str, dict[str, Array]] = {name: {} for name in PARTS}
    for key, array in arrays.items():
        part, _, name = key.partition(":")
        parts[part][name] = array
    sensor.feed.load(parts["feed"])
    sensor.watch.load(parts["watch"])
    sensor.season_ahead.load(parts["season"])
    sensor.slots = StateSlots(manifest, 1)
    sensor.slots.load(parts["slot"], 1)
    for name in OWN:
        place, given = getattr(sensor, name), parts["own"][name]
        if given.shape != place.shape or not np.isfinite(given).all():
            raise ValueError(f"{name} is of another shape, or not finite")
        place[:] = given
