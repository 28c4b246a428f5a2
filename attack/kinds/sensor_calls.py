"""Calls of `Sensors` with arguments of any type, in any order, as no program should make them.

Demanded of each case: a call is accepted, or refused with an error of EdgefoldError's tree; and at
the end every sensor is, bit for bit, one that was given only the calls that were accepted. A row
that was refused because of its time counts too: if more such rows follow it, the clock was set.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from attack.outcomes import Outcome, cause_of, random_of
from edgefold.runtime import Sensors, Stream
from edgefold.runtime.errors import DataError, EdgefoldError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

BACKEND = "onnxruntime"
"""The backend of all cases: it is installed wherever the attacks run."""
N_CALLS = 60
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**400, 1j, "", "x", "4", "1e-4", b"x", (), ("a", "b"), [4], {}),
    *(object(), Decimal("1.5"), np.ones(2), np.float32(2), np.int64(4), np.str_("a"), float("nan")),
    *(
        np.datetime64("NaT"),
        np.datetime64("2024-01-01"),
        timedelta(hours=1),
        Path("x"),
        len,
        "\ud800",
    ),
)
TIMES = (
    *(float("inf"), -1.7e308, 1.7e308, 1e300, 1e99, 1e-300, 5e-324, 10**5000, "0.015", "20240101"),
    *("2024-01-01", "2024-01-01T10:00:00Z", "1e400", "yesterday", date(2024, 1, 2), date(1, 1, 1)),
    *(datetime(2024, 1, 1, 5), datetime(9999, 12, 31, tzinfo=timezone.utc), 1.7e9, 2**63),
)
VALUES = (float("inf"), 1e30, -1e31, 1e-310, 3.4e38, "1.5", "1_0", b"1", np.float64(2), -0.0)
NAMES = ("", "a", "b", "é", "a\0b", "\ud800", "x" * 500, np.str_("a"), 5, None, b"a", ("a", "b"))
HORIZONS = (1, 4, 16, "season", 2, 24, 1441, 0, -1, 10**30, np.int64(4))
State = dict[str, bytes]
Call = tuple[str, tuple[Any, ...]]


def state_of(sensors: Sensors) -> State:
    """Return all that a snapshot would keep of the sensors, for each of them."""
    python = sensors._all.in_python()
    arrays = python.arrays()
    return {
        f"{name}: {key}": array[number].tobytes()
        for number, name in enumerate(python.names)
        for key, array in arrays.items()
    }


class FreshSensors:
    """Opens the shipped bundle once, and makes fresh `Sensors` of it again and again."""

    def __init__(self) -> None:
        self._stream = Stream.open(shipped_bundle(), BACKEND)

    def __call__(self) -> Sensors:
        """Return Sensors that have seen no row; those returned before must not be used again."""
        self._stream.reset()
        return Sensors(self._stream)


class Cases:
    """Cases of misused calls; the subjects are not used, since the model is the shipped one."""

    def __init__(self, subjects: Path, scratch: Path):
        self._path = scratch / "kept.npz"
        self._odd_paths = (
            scratch,
            scratch / "none" / "x.npz",
            "",
            "\0",
            Path("/dev/null"),
            5,
            None,
        )
        self._fresh, self._other = FreshSensors(), FreshSensors()

    def _draw(self, number: int) -> list[Call]:
        random = random_of("sensor_calls", number)

        def one(*pools: tuple[Any, ...]) -> Any:
            pool = pools[random.integers(len(pools))]
            return pool[random.integers(len(pool))]

        calls: list[Call] = []
        for row in range(N_CALLS):
            kind = random.random()
            name = one(("a", "b", "c")) if random.random() < 0.8 else one(NAMES, ODD)
            if kind < 0.7:
                time = float(row) if random.random() < 0.8 else one(TIMES, ODD)
                value = float(random.normal()) if random.random() < 0.8 else one(VALUES, ODD)
                more = (one((True, False, "yes", 1)),) if random.random() < 0.05 else ()
                calls.append(("step", (time, value, name, *more)))
            elif kind < 0.85:
                calls.append((one(("ahead", "path", "predict_one")), (one(HORIZONS, ODD), name)))
            elif kind < 0.9:
                calls.append((one(("feed", "run", "backtest")), (name,)))
            else:
                odd = random.random() < 0.3
                place = one(self._odd_paths) if odd else self._path
                calls.append((one(("save", "restore")), (place,)))
        return calls

    def describe(self, number: int) -> str:
        """Say which calls are made."""
        return "\n".join(f"{name}{arguments!r:.100}" for name, arguments in self._draw(number))

    def play(self, number: int) -> Outcome:
        """Make the calls, then only the accepted ones on fresh Sensors, and compare."""
        self._path.unlink(missing_ok=True)
        sensors = self._fresh()
        log: list[Call] = []
        kept: list[Call] = []
        n_refused = 0
        for name, arguments in self._draw(number):
            try:
                getattr(sensors, name)(*arguments)
            except EdgefoldError as error:
                n_refused += 1
                if "\n" in str(error):
                    return Outcome("message", f"{name}: a refusal of several lines")
                if isinstance(error, DataError) and "follow it" in str(error):
                    log.append((name, arguments))
                continue
            except Exception as error:
                return Outcome("traceback", f"{name}: {cause_of(error)}")
            if name == "step":
                log.append((name, arguments))
            elif name == "save" and arguments[0] == self._path:
                kept = [*log]
            elif name == "restore":
                log = [*kept]
        expected = self._replayed(log)
        if state_of(sensors) != expected:
            return Outcome("wrong", "another state than that of the accepted calls")
        return Outcome("refused" if n_refused else "accepted")

    def _replayed(self, log: list[Call]) -> State:
        other = self._other()
        for name, arguments in log:
            call: Callable[..., Any] = getattr(other, name)
            try:
                call(*arguments)
            except DataError as error:
                if "follow it" not in str(error):
                    raise
        return state_of(other)
