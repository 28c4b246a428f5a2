"""The sensors' engine in C behind ctypes, and Python's `Sensors` with answers of the same form."""

from __future__ import annotations

import ctypes
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgefold.runtime import Sensors
from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError

N_LEVELS = 7
BAD_VALUE, NO_SNAPSHOT, BAD_SNAPSHOT, FOREIGN_SNAPSHOT, IO = 1, 6, 7, 8, 9
"""Of `enum edgefold_status`."""
REFUSED = {
    "the value ": "value too large",
    "not finite": "time not finite",
    "the time ": "time too large",
    "that of the newest row": "repeated",
    "before the newest row's": "late",
    "after the newest row's": "far ahead",
}
"""Parts of the sentences of refusals, the first that fits, with the words that C has for them."""


class Row(NamedTuple):
    """A row of a stream."""

    time: float
    value: float
    dated: bool


class Answer(NamedTuple):
    """Holds the answer of either engine to a row; only `refusal` if it was refused."""

    refusal: str = ""
    numbers: tuple[float, ...] = ()  # mean, quantiles, log density, p value, size
    decisions: tuple[Any, ...] = ()  # alarm, event, n_since, n_missing, season, is_known


class CRow(ctypes.Structure):
    """`struct edgefold_sensors_row`."""

    _fields_ = [
        ("mean", ctypes.c_double),
        ("quantiles", ctypes.c_double * N_LEVELS),
        *((name, ctypes.c_double) for name in ("log_density", "p_value", "size")),
        *((name, ctypes.c_int64) for name in ("n_since", "n_missing", "season")),
        *((name, ctypes.c_int) for name in ("event", "alarm", "is_known")),
        *((name, ctypes.c_int) for name in ("season_news", "clock_leap")),
    ]


READ_OR_WRITE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class CSensor:
    """One sensor of a library.

    Attributes:
        row: What the last push said.
        started: The status of the last start; None before.
    """

    def __init__(self, library: ctypes.CDLL, rate: float | None = 1e-4):
        self._c = library
        for name in ("pace", "coverage", "newest_time"):
            self._call(name).restype = ctypes.c_double
        for name in ("sensor_bytes", "season"):
            self._call(name).restype = ctypes.c_int64
        self._call("name").restype = ctypes.c_char_p
        self._memory = ctypes.create_string_buffer(self._call("sensor_bytes")())
        self.row = CRow()
        self.started: int | None = None
        if rate is not None:
            self.start(rate)

    def start(self, rate: float) -> None:
        """Start with a rate of false alarms."""
        self.started = self._call("start")(self._memory, ctypes.c_double(rate))

    def _call(self, name: str) -> Any:
        return getattr(self._c, f"edgefold_sensors_{name}")

    def name(self, word: int) -> str:
        """The text of a word."""
        text: bytes = self._call("name")(word)
        return text.decode()

    def push(self, row: Row) -> Answer:
        """Push a row."""
        number = ctypes.c_double
        refusal = self._call("push")(
            self._memory, number(row.time), number(row.value), row.dated, ctypes.byref(self.row)
        )
        if refusal:
            return Answer(self.name(refusal))
        r = self.row
        return Answer(
            "",
            (r.mean, *r.quantiles, r.log_density, r.p_value, r.size),
            (bool(r.alarm), self.name(r.event), r.n_since, r.n_missing, r.season, bool(r.is_known)),
        )

    def path(self, n: int) -> Array | None:
        """Mean and quantiles of the next n slots, (n, 8); None if they are not known."""
        means, quantiles = np.zeros(n), np.zeros((n, N_LEVELS))
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (means, quantiles)]
        unknown = self._call("path")(self._memory, ctypes.c_size_t(n), *pointers)
        return None if unknown else np.column_stack([means, quantiles])

    @property
    def season(self) -> tuple[int, str]:
        """The present season's length and name."""
        return self._call("season")(self._memory), self.name(
            self._call("season_name")(self._memory)
        )

    @property
    def pace(self) -> float:
        """The time between two slots."""
        found: float = self._call("pace")(self._memory)
        return found

    @property
    def newest_time(self) -> float:
        """The time of the newest row."""
        found: float = self._call("newest_time")(self._memory)
        return found

    @property
    def coverage(self) -> float:
        """The share of values within the band."""
        found: float = self._call("coverage")(self._memory)
        return found

    def save(self, room: int = 1 << 20) -> bytes | int:
        """A snapshot, or the status of a save that failed; `room` ends what the callback takes."""
        written = bytearray()

        def write(_: int, at: int, n: int) -> int:
            n = min(n, room - len(written))
            written.extend(ctypes.string_at(at, n))
            return n

        status: int = self._call("save_sensor")(self._memory, READ_OR_WRITE(write), None)
        return status or bytes(written)

    def load(self, snapshot: bytes) -> int:
        """Go on from a snapshot; returns the status."""
        source = io.BytesIO(snapshot)

        def read(_: int, to: int, n: int) -> int:
            part = source.read(n)
            ctypes.memmove(to, part, len(part))
            return len(part)

        status: int = self._call("load_sensor")(self._memory, READ_OR_WRITE(read), None)
        return status


class PySensor:
    """One sensor of Python's `Sensors`."""

    def __init__(self, sensors: Sensors, name: str = ""):
        self._sensors, self._name = sensors, name

    def push(self, row: Row) -> Answer:
        """Push a row."""
        try:
            f = self._sensors.step(row.time, row.value, self._name, row.dated)
        except DataError as error:
            sentence = str(error)
            return Answer(next(word for part, word in REFUSED.items() if part in sentence))
        quantiles = (f.q05, f.q10, f.q25, f.q50, f.q75, f.q90, f.q95)
        return Answer(
            "",
            (f.mean, *quantiles, f.log_density, f.p_value, f.size),
            (f.alarm, f.event, f.since, f.n_missing, f.season, not math.isnan(f.mean)),
        )

    def path(self, n: int) -> Array:
        """Mean and quantiles of the next n slots, (n, 8); NaN if they are not known."""
        path = self._sensors.path(n, self._name)
        return np.column_stack([path.mean, path.quantiles])

    @property
    def arrays(self) -> dict[str, Array]:
        """Return the arrays of Python's snapshots of the sensor besides the model's state."""
        kept = self._sensors._all.in_python().engines[self._name].arrays()
        del kept["rows"]  # the kind of times that programs give
        return kept


def require_same(found: Iterable[Answer], expected: Iterable[Answer]) -> None:
    """Fail unless all answers are equal to the bit."""
    for at, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (one.refusal, one.decisions) == (other.refusal, other.decisions), at
        assert np.array_equal(one.numbers, other.numbers, equal_nan=True), at


def require_near(found: Iterable[Answer], expected: Iterable[Answer]) -> None:
    """Fail unless answers of float32 sums in another order are those of the same engine.

    The model's least squares keep roundings for thousands of rows. A forecast that moves by less
    than a twentieth of its band is the same to whoever looks at it, and a value that lies at a
    threshold may be decided otherwise.
    """
    pairs = list(zip(found, expected, strict=True))
    assert [one.refusal for one, _ in pairs] == [other.refusal for _, other in pairs]
    others = [at for at, (one, other) in enumerate(pairs) if one.decisions != other.decisions]
    assert len(others) <= len(pairs) // 200, others
    known = [(one, other) for one, other in pairs if one.decisions and one.decisions[-1]]
    numbers = np.array([(*one.numbers[:8], *other.numbers[:8]) for one, other in known])
    apart, band = np.abs(numbers[:, :8] - numbers[:, 8:]), numbers[:, 15] - numbers[:, 9]
    share = apart / np.maximum(band, 1e-2 * np.median(band))[:, None]
    assert np.quantile(share, 0.99) < 0.05


def load_library(path: Path) -> ctypes.CDLL:
    """A library of its own: the shared block of another copy is another one."""
    return ctypes.CDLL(str(path))
