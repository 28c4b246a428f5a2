"""Replay recorded power instead of a sensor, for machines without one.

The result is the recording's energy, whatever runs meanwhile. It is not a measurement of this
machine, and every record made with it says so.

A file is CSV with the columns time_s,power_w, or JSON: {"time_s": [...], "power_w": [...]}, or a
record of `edgefold profile --json` whose energy has samples. Between two rows power changes evenly;
at its end the recording starts again.
"""

from __future__ import annotations

import csv
import json
import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from edgefold.runtime.errors import MeterError

COLUMNS = ("time_s", "power_w")
MAX_POWER_W = 1e6  # far above any machine that is meant, far below where sums of squares overflow
_DAMAGE = (ValueError, KeyError, TypeError, OverflowError, RecursionError, csv.Error)


class Replay:
    """Replays a recording of power, as a `PowerSensor`.

    Args:
        path: CSV file with the columns time_s,power_w, or JSON file with lists of these names.
        clock: Returns seconds; the recording starts when the sensor is made.

    Raises:
        MeterError: The file is unreadable, has other columns, or its times do not increase.
    """

    step_w = None

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        times_s, self._power_w = load_recording(path)
        self._times_s = [time_s - times_s[0] for time_s in times_s]
        self._clock = clock
        self._start_s = clock()
        self.rails = ("recording",)
        self.name = f"replay of {path}"
        gaps_s = sorted(after - before for before, after in pairwise(times_s))
        # Between two rows power changes evenly, so that a row stands for the time until the next.
        self.period_s = self.memory_s = gaps_s[len(gaps_s) // 2]
        self.scope = (
            "a recording, repeated every "
            f"{self._times_s[-1]:.3g} s: NOT a measurement of this machine"
        )

    def read_w(self) -> float:
        """Return the power in W that the recording has at this moment of the run."""
        now_s = (self._clock() - self._start_s) % self._times_s[-1]
        right = bisect_right(self._times_s, now_s)
        (left_s, right_s) = self._times_s[right - 1 : right + 1]
        (left_w, right_w) = self._power_w[right - 1 : right + 1]
        return left_w + (right_w - left_w) * (now_s - left_s) / (right_s - left_s)


def load_recording(path: Path) -> tuple[list[float], list[float]]:
    """Read times in s and powers in W from the columns time_s,power_w of a CSV or JSON recording.

    Raises:
        MeterError: The file is unreadable, has other columns, or its times do not increase; or a
            power is beyond `MAX_POWER_W`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # a spreadsheet may put a mark in front
        columns = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
        times_s, power_w = ([float(value) for value in column] for column in columns)
    except OSError as error:
        raise MeterError(f"{path} cannot be read ({error.strerror}); check the path.") from error
    except _DAMAGE as error:
        raise MeterError(
            f"{path} is not a recording of power ({_reason(error)}); it takes CSV with the columns "
            f"{','.join(COLUMNS)} or a JSON object with those lists."
        ) from error
    finite = all(map(math.isfinite, (*times_s, *power_w)))
    if len(times_s) != len(power_w) or len(times_s) < 2 or not finite:
        raise MeterError(
            f"{path} has {len(times_s)} times and {len(power_w)} powers; it takes two or more rows "
            "of finite numbers."
        )
    if any(after <= before for before, after in pairwise(times_s)):
        raise MeterError(f"{path} has times that do not increase; sort its rows.")
    if max(map(abs, power_w)) > MAX_POWER_W:
        raise MeterError(
            f"{path} has a power of {max(power_w, key=abs):g} W; power_w is in watts, and "
            f"{MAX_POWER_W:g} W is the most."
        )
    return times_s, power_w


def _from_json(text: str) -> tuple[list[float], list[float]]:
    loaded = json.loads(text)
    if "energy" in loaded:
        loaded = loaded["energy"]["samples"]
    return loaded["time_s"], loaded["power_w"]


def _from_csv(text: str) -> tuple[list[float], list[float]]:
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    return [float(row["time_s"]) for row in rows], [float(row["power_w"]) for row in rows]


def _reason(error: Exception) -> str:
    """Return the reason of an error in few words; an error of decoding holds the whole file."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error)[:120]
