"""Find the functions for sensors in a library of compiled C, and the layout of what they write."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgefold.runtime.arrays import aligned_full
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.alarms.alarms import RATE
from edgefold.runtime.sensors.scored_rows import SCORES
from edgefold.runtime.sensors.timed_engine import TimedEngine

PREFIX = "edgefold_native_sensor_"
OTHER = "the library has other numbers of a sensor"
ADDRESS, NUMBER, SIZE, INT = ctypes.c_void_p, ctypes.c_double, ctypes.c_size_t, ctypes.c_int
TEXT = ctypes.c_char_p


class Facts(NamedTuple):
    """Holds the first numbers of a sensor, as `c/sensor_library.c` writes them.

    Attributes:
        n_points: The number of slots that the model has learned.
        distance: How far the row refused last was from the newest one.
        newest_time, shown_pace, is_irregular: As `FeedView` has them.
        leap, n_gap, pace, pace_before, season_news: As `RowNews` has them; words by their numbers.
        season, season_name: The season's length and the number of its name.
        is_known: Whether later slots have forecasts.
    """

    n_points: float
    distance: float
    newest_time: float
    shown_pace: float
    pace: float
    is_irregular: float
    leap: float
    n_gap: float
    pace_before: float
    season: float
    season_name: float
    season_news: float
    is_known: float


N_FACTS, N_SCORES = len(Facts._fields), len(SCORES)


class SensorFunctions:
    """Holds the functions of a library for sensors.

    Args:
        library: A loaded library.
        manifest: The manifest of its bundle.
        prediction: The bundle's prediction kind.

    Raises:
        AttributeError, ValueError: The library has no such functions.
        LookupError: They are those of another version, with other numbers or arrays.
    """

    def __init__(self, library: ctypes.CDLL, manifest: Manifest, prediction: SensorForecast):
        def function(name: str, result: Any, *arguments: Any) -> Any:
            # PYFUNCTYPE keeps the interpreter's lock.
            return ctypes.PYFUNCTYPE(result, *arguments)((PREFIX + name, library))

        def size(name: str) -> int:
            return SIZE.in_dll(library, PREFIX + name).value

        self.n_ahead, self.n_forecast = len(prediction.horizons) + 1, 1 + len(prediction.levels)
        self.n_numbers = N_FACTS + self.n_forecast + N_SCORES + self.n_ahead * self.n_forecast
        if size("numbers") != self.n_numbers:
            raise LookupError(OTHER)
        self.n_bytes = size("bytes")
        self.start = function("start", None, ADDRESS, NUMBER)
        self.push = function("push", INT, ADDRESS, NUMBER, NUMBER, INT, ADDRESS)
        try:
            self.push_rows = function(
                "push_rows",
                *(SIZE, ADDRESS, SIZE, ADDRESS, ADDRESS, INT),
                *(ADDRESS, ADDRESS, ADDRESS, ADDRESS, ADDRESS),
            )
        except AttributeError:  # a library that was compiled before it had this function
            self.push_rows = None
        self.tell = function("tell", None, ADDRESS, ADDRESS)
        self.path = function("path", INT, ADDRESS, SIZE, ADDRESS, ADDRESS)
        self.save = function("save", SIZE, ADDRESS, ADDRESS, ADDRESS)
        self.load = function("load", None, ADDRESS, ADDRESS, ADDRESS)
        self.words: Any = _texts(function("name", TEXT, INT), 1)
        memory = aligned_full((self.n_bytes,), "uint8", 0)
        address = memory.ctypes.data
        self.start(address, RATE)
        own = {f"state.{tensor.name}": (tensor.dtype, tensor.shape) for tensor in manifest.state}
        kept = TimedEngine(prediction, RATE, "", {}).arrays()
        forms = {**own, **{name: (array.dtype, array.shape) for name, array in kept.items()}}
        names = _texts(partial(function("array", TEXT, ADDRESS, INT), address), 0)
        keys = [f"state.{name}" for name in names[: len(own)]] + names[len(own) :]
        # Numpy's type of all arrays of a sensor, as `save` writes them.
        self.layout = np.dtype([(key, *forms[key]) for key in keys])
        counts = np.zeros(2, np.int64)
        if self.save(address, None, counts.ctypes.data) != self.layout.itemsize:
            raise LookupError(OTHER)


def _texts(text_of: Callable[[int], bytes], first: int) -> list[str]:
    """Return the texts of all numbers from `first` on, up to an empty one; those before are ""."""
    texts = [""] * first
    while text := text_of(len(texts)):
        texts.append(text.decode())
    return texts
