"""Hold many rows of one sensor with their forecasts, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.engine import ScoredRow

BLOCK = 256
"""Number of rows that are taken between two places at which Ctrl-C can end the work: some 6 ms."""
SCORES = (
    *("log_density", "p_value", "size", "n_since", "n_missing", "season"),
    *("event", "alarm", "is_known"),
)
"""The last columns of `ScoredRows.numbers`, as `c/sensor_library.c` writes them."""

BoolArray = NDArray[np.bool_]
Times = FloatArray | list[Any] | None
"""Times of rows: numbers, times of any kind that `Sensors.step` takes, or None without times."""


class AheadRows(NamedTuple):
    """Holds the forecasts that were made after each of n rows.

    Attributes:
        n_points: The number of slots that were learned, with the row's, (n,).
        paces: The time between two slots after the row; NaN before it is known, (n,).
        is_known: Whether there are forecasts, (n,).
        means: Means at the H horizons and one season ahead, (n, H + 1).
        quantiles: Quantiles at the Q levels, (n, H + 1, Q).
    """

    n_points: Array
    paces: FloatArray
    is_known: BoolArray
    means: FloatArray
    quantiles: FloatArray


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Holds n rows of one sensor with the forecasts made before their values were seen.

    `edgefold.runtime.sensors.engine.ScoredRow` describes the numbers of a row. Those of a refused
    row are NaN, and its alarm is 0.

    Attributes:
        times: The times as numbers, (n,).
        values: The values, (n,).
        numbers: Mean, quantiles at the Q levels, and `SCORES` of each row, (n, 1 + Q + 9).
        words: The names of the events by their numbers.
        refused: The errors of the refused rows, by the place of the row.
        ahead: The forecasts of later slots; None if nobody asked for them.
    """

    times: FloatArray
    values: FloatArray
    numbers: FloatArray
    words: list[str]
    refused: dict[int, DataError]
    ahead: AheadRows | None = None

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str) -> FloatArray:
        """Return the column of `SCORES` of this name, (n,); a view."""
        return self.numbers[:, SCORES.index(name) - len(SCORES)]

    @property
    def taken(self) -> BoolArray:
        """Return whether each row was taken, and not refused, (n,)."""
        taken = np.ones(len(self), np.bool_)
        taken[[*self.refused]] = False
        return taken

    @property
    def forecasts(self) -> FloatArray:
        """Return mean and quantiles of each row, (n, 1 + Q); NaN for a row without a forecast."""
        known = self.numbers[:, : -len(SCORES)].copy()
        known[self.column("is_known") != 1.0] = np.nan
        return known

    @property
    def is_scored(self) -> BoolArray:
        """Return whether each row had a forecast and a value, so that it could be scored, (n,)."""
        scored: BoolArray = (self.column("is_known") == 1.0) & ~np.isnan(self.values)
        return scored

    @property
    def is_alarm(self) -> BoolArray:
        """Return whether each row is an alarm, (n,)."""
        alarm: BoolArray = self.column("alarm") == 1.0
        return alarm

    @property
    def event_numbers(self) -> Array:
        """Return the number of each row's event in `words`, (n,); 0 for none."""
        return np.nan_to_num(self.column("event")).astype(np.int64)

    @property
    def events(self) -> Array:
        """Return the name of each row's event, (n,); "" for none."""
        named: Array = np.array(self.words, object)[self.event_numbers]
        return named


class Paced(Protocol):
    """Says how far apart the rows of a sensor are."""

    @property
    def pace(self) -> float:
        """Return the time between two slots; NaN before it is known."""


class RowTaker(Protocol):
    """Takes rows of sensors one by one, as `NamedSensors` and `CompiledSensors` do."""

    def take(self, time: Any, value: float, name: str, dated: bool | None) -> ScoredRow:
        """Score and learn a row."""

    def n_points(self, name: str) -> int:
        """Return how many slots of a sensor the model has learned."""

    def known(self, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Return a sensor's forecasts of later slots."""

    def feed(self, name: str) -> Paced:
        """Return a sensor's clock."""


class RowsTaker(Protocol):
    """Takes many rows of a sensor, as `NamedSensors` and `CompiledSensors` do."""

    def __contains__(self, name: str) -> bool:
        """Return whether a row of a sensor has come."""

    def take_rows(
        self, times: Times, values: FloatArray, name: str, dated: bool | None, with_ahead: bool
    ) -> ScoredRows:
        """Score and learn some rows of one sensor."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Says how many numbers a row has, and how its events are numbered.

    Attributes:
        n_levels: The number of quantiles.
        n_ahead: The number of horizons and the season.
        words: The names of the events by their numbers.
    """

    n_levels: int
    n_ahead: int
    words: list[str]

    @property
    def n_numbers(self) -> int:
        """Return the number of columns of `ScoredRows.numbers`."""
        return 1 + self.n_levels + len(SCORES)

    def empty_ahead(self, n: int) -> AheadRows:
        """Return forecasts of later slots of n rows without any."""
        shape = n, self.n_ahead
        return AheadRows(
            np.zeros(n, np.int64),
            np.full(n, np.nan),
            np.zeros(n, np.bool_),
            np.full(shape, np.nan),
            np.full((*shape, self.n_levels), np.nan),
        )


def one_by_one(
    sensors: RowTaker,
    shape: RowShape,
    times: Times,
    values: FloatArray,
    name: str,
    dated: bool | None,
    with_ahead: bool,
) -> ScoredRows:
    """Take rows of a sensor one after the other; `Sensors.step_rows` describes the arguments."""
    n = len(values)
    numbers, refused = np.full((n, shape.n_numbers), np.nan), dict[int, DataError]()
    seconds, ahead = np.full(n, np.nan), shape.empty_ahead(n) if with_ahead else None
    for at, (time, value) in enumerate(zip(_listed(times, n), values.tolist(), strict=True)):
        try:
            row = sensors.take(time, value, name, dated)
        except DataError as error:
            refused[at] = error
            continue
        seconds[at] = row.time
        numbers[at] = (
            *(row.mean, *row.quantiles, row.log_density, row.p_value, row.size),
            *(row.n_since, row.n_missing, row.season),
            *(shape.words.index(row.event), row.alarm, row.is_known),
        )
        if ahead is not None:
            ahead.n_points[at] = sensors.n_points(name)
            ahead.paces[at] = sensors.feed(name).pace
            if (known := sensors.known(name)) is not None:
                ahead.is_known[at] = True
                ahead.means[at], ahead.quantiles[at] = known
    return ScoredRows(seconds, values, numbers, shape.words, refused, ahead)


def _listed(times: Times, n: int) -> list[Any]:
    if times is None:
        return [None] * n
    return times if isinstance(times, list) else times.tolist()


def row_blocks(
    sensors: RowsTaker,
    times: Times,
    values: FloatArray,
    name: str,
    dated: bool | None = None,
    with_ahead: bool = False,
) -> Iterator[ScoredRows]:
    """Take rows of a sensor block by block; `Sensors.step_rows` describes the arguments.

    A block has at most `BLOCK` rows, and is learned before it is returned.
    """
    at = 0
    while at < len(values):
        # The first row that is taken decides on the kind of times.
        stop = at + (BLOCK if name in sensors else 1)
        own = None if times is None else times[at:stop]
        yield sensors.take_rows(own, values[at:stop], name, dated, with_ahead)
        at = stop


def joined(blocks: Sequence[ScoredRows]) -> ScoredRows:
    """Return the rows of at least one block of a sensor as one object."""
    firsts = np.cumsum([0, *map(len, blocks)])
    refused = {
        int(first) + at: error
        for first, block in zip(firsts, blocks, strict=False)
        for at, error in block.refused.items()
    }
    parts = [block.ahead for block in blocks if block.ahead is not None]
    return ScoredRows(
        np.concatenate([block.times for block in blocks]),
        np.concatenate([block.values for block in blocks]),
        np.concatenate([block.numbers for block in blocks]),
        blocks[0].words,
        refused,
        AheadRows(*map(np.concatenate, zip(*parts, strict=True))) if parts else None,
    )
