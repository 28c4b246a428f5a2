"""Recorded power against time, in a sensor's place: shows the whole path without a sensor.

What comes out is the recording's energy, whatever runs meanwhile. It is no measurement of this
machine, and every record made with it says so.

A file is CSV with the columns time_s,power_w, or JSON: {"time_s": [...], "power_w": [...]}, or a
record of `edgefold profile --json` whose energy has samples. Between two rows power changes evenly;
at its end the recording starts again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgefold.devices.errors import MeterError

COLUMNS = ("time_s", "power_w")


class Replay:
    """A recording as a `PowerSensor`.

    Args:
        path: The recording.
        clock: The run's clock; the recording starts when the sensor is made.

    Raises:
        MeterError: The file is unreadable, has other columns, or its times do not increase.
    """

    step_w = None

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        times_s, self._power_w = _load(path)
        self._times_s = times_s - times_s[0]
        self._clock = clock
        self._start_s = clock()
        self.rails = ("recording",)
        self.name = f"replay of {path}"
        self.period_s = float(np.median(np.diff(times_s)))
        self.scope = (
            "a recording, repeated every "
            f"{self._times_s[-1]:.3g} s: NOT a measurement of this machine"
        )

    def read_w(self) -> float:
        """Watts of the recording at this moment of the run."""
        now_s = (self._clock() - self._start_s) % self._times_s[-1]
        return float(np.interp(now_s, self._times_s, self._power_w))


def _load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Times and power of a recording."""
    try:
        text = path.read_text()
        columns = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
        times_s, power_w = (np.array(column, np.float64) for column in columns)
    except OSError as error:
        raise MeterError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise MeterError(
            f"{path} is no recording of power ({error!r}); it takes CSV with the columns "
            f"{','.join(COLUMNS)} or a JSON object with those lists."
        ) from error
    finite = np.isfinite(times_s).all() and np.isfinite(power_w).all()
    if times_s.shape != power_w.shape or len(times_s) < 2 or not finite:
        raise MeterError(
            f"{path} has {times_s.size} times and {power_w.size} powers; it takes two or more rows "
            "of finite numbers."
        )
    if not (np.diff(times_s) > 0).all():
        raise MeterError(f"{path} has times that do not increase; sort its rows.")
    return times_s, power_w


def _from_json(text: str) -> tuple[list[float], list[float]]:
    loaded = json.loads(text)
    if "energy" in loaded:
        loaded = loaded["energy"]["samples"]
    return loaded["time_s"], loaded["power_w"]


def _from_csv(text: str) -> tuple[list[float], list[float]]:
    rows = list(csv.DictReader(text.splitlines()))
    return [float(row["time_s"]) for row in rows], [float(row["power_w"]) for row in rows]
