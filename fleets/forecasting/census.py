"""Count the rows of each sensor of a lake, and split the sensors into shards.

    columns of names ──> sensors, sorted; rows of each; the row groups in which each is
                    └──> shards: sensors that follow each other, with some 100,000 rows

One process reads the columns of names once. Shards depend on the rows and on the backend, not on
the number of processes, so that their results do not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefold.fleets.tables.batches import LakeBatch, read_batches
from edgefold.fleets.tables.lake import Lake
from edgefold.runtime.arrays import Array

BATCH_ROWS = 1 << 17
LEAST_ROWS, MOST_ROWS = 20_000, 1_000_000
"""Rows of a shard, unless one sensor has more: half a second to some 20 s of compiled work."""
LEAST_SHARDS = 16
"""The least number of shards where there are as many sensors: several for each process, so that all
processes have work and a stop loses little."""
N_SHARDS = 48
"""The number of shards of a lake whose shards are between these sizes."""

Key = tuple[Any, ...]
"""The values of the columns of names; () if there are none."""
Sources = tuple[tuple[int, tuple[int, ...]], ...]
"""Files by number, each with some of its row groups."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Describes sensors that one unit of work forecasts.

    Attributes:
        number: Its place among all shards.
        start, stop: The first sensor, and the first that is not in it, by their places in `keys`.
        sources: The files that have rows of these sensors, by number, and their row groups.
        n_rows: The number of rows.
    """

    number: int
    start: int
    stop: int
    sources: Sources
    n_rows: int


@dataclass(frozen=True, slots=True)
class Census:
    """Lists the sensors of a lake.

    Attributes:
        keys: The sensors' names, sorted.
        n_rows: The number of rows of each, (K,).
        n_unnamed: The number of rows in which a column of names has no value.
        shards: The sensors in shards.
    """

    keys: tuple[Key, ...]
    n_rows: Array
    n_unnamed: int
    shards: tuple[Shard, ...]

    def n_readings(self, lake: Lake) -> float:
        """Return how often a row is read, on average, if each shard reads its row groups."""
        n_read = sum(
            lake.files[file].row_groups[group]
            for shard in self.shards
            for file, groups in shard.sources
            for group in groups
        )
        return n_read / max(lake.n_rows, 1)


class KeyNumbers:
    """Finds the number of the sensor of each row.

    Args:
        by: The columns that name the sensors.
        numbers: The numbers of known sensors.
        grows: Whether a sensor that is not known gets the next number, instead of -1.
    """

    def __init__(self, by: Sequence[str], numbers: Mapping[Key, int], grows: bool = False):
        self._by, self.numbers, self._grows = tuple(by), dict(numbers), grows

    def of(self, batch: LakeBatch) -> Array:
        """Return the number of each row's sensor, int64 (n,); -1 for none."""
        if not self._by:
            return np.full(len(batch), self._number(()), np.int64)
        codes, values = zip(*(batch.codes(name) for name in self._by), strict=True)
        if len(codes) == 1:
            used = np.unique(codes[0])
            places, rows = [[at] for at in used.tolist()], np.searchsorted(used, codes[0])
        else:
            table = np.stack(codes, axis=1)
            unique, rows = np.unique(table, axis=0, return_inverse=True)
            places, rows = unique.tolist(), rows.reshape(-1)
        numbers = [
            -1 if min(place) < 0 else self._number(tuple(map(_item, values, place)))
            for place in places
        ]
        found: Array = np.array(numbers, np.int64)[rows]
        return found

    def _number(self, key: Key) -> int:
        if self._grows:
            return self.numbers.setdefault(key, len(self.numbers))
        return self.numbers.get(key, -1)


def _item(values: Sequence[Any], place: int) -> Any:
    return values[place]


def take_census(
    lake: Lake,
    by: Sequence[str],
    hear: Callable[[int], object] = lambda n: None,
    most_rows: int = MOST_ROWS,
) -> Census:
    """Count the rows of each sensor.

    Args:
        lake: The lake.
        by: The columns that name the sensors.
        hear: Receives the number of rows that were read since the last call.
        most_rows: The most rows of a shard, unless one sensor has more.

    Raises:
        DataError: A file is damaged or was changed.
    """
    needed = [*by, *(lake.filter.names if lake.filter else ())]
    names_only = Lake(lake.files, {name: lake.columns[name] for name in needed}, lake.filter)
    finder = KeyNumbers(by, {}, grows=True)
    counts, n_unnamed = np.zeros(0, np.int64), 0
    present: list[tuple[int, int, bytes]] = []  # file, row group, a bit for each sensor
    for number, file in enumerate(lake.files):
        for group in range(len(file.row_groups)):
            own = np.zeros(len(counts), np.int64)
            for batch in read_batches(names_only, file, [group], BATCH_ROWS):
                rows = finder.of(batch)
                n_unnamed += int((rows < 0).sum())
                own = _longer(own, len(finder.numbers))
                own += np.bincount(rows[rows >= 0], minlength=len(own))
                hear(batch.stop - batch.start)
            counts = _longer(counts, len(own))
            counts += own
            present.append((number, group, np.packbits(own > 0).tobytes()))
    keys = [*finder.numbers]
    order = sorted(range(len(keys)), key=lambda n: _sort_key(keys[n]))
    n_rows = counts[order]
    shards = _shards(n_rows, np.array(order, np.int64), present, most_rows)
    return Census(tuple(keys[n] for n in order), n_rows, n_unnamed, tuple(shards))


def _longer(counts: Array, n: int) -> Array:
    return np.concatenate([counts, np.zeros(n - len(counts), np.int64)])


def _sort_key(key: Key) -> tuple[tuple[bool, Any], ...]:
    """Return what sorts a key: numbers by their size, before texts."""
    return tuple(
        (True, str(value)) if not isinstance(value, (int, float)) else (False, value)
        for value in key
    )


def _shards(
    n_rows: Array, order: Array, present: Sequence[tuple[int, int, bytes]], most_rows: int
) -> list[Shard]:
    """Split sensors into shards of about equally many rows.

    Args:
        n_rows: The rows of each sensor, sorted, (K,).
        order: The numbers of the sensors in `present`, sorted as `n_rows`, (K,).
        present: File, row group, and a bit for each sensor by its number.
        most_rows: The most rows of a shard, unless one sensor has more.
    """
    total = int(n_rows.sum())
    size = max(total // N_SHARDS, min(LEAST_ROWS, total // LEAST_SHARDS))
    size = min(size, most_rows)
    edges, held = [0], 0
    for at, n in enumerate(n_rows.tolist()):
        is_scarce = len(n_rows) - at <= LEAST_SHARDS - len(edges)
        if held and (held + n > size or is_scarce):
            edges.append(at)
            held = 0
        held += n
    edges.append(len(n_rows))
    sources: list[dict[int, list[int]]] = [{} for _ in edges[1:]]
    for file, group, packed in present:
        bits = np.zeros(len(order), np.uint8)
        known = np.unpackbits(np.frombuffer(packed, np.uint8))[: len(order)]
        bits[: len(known)] = known
        for number in np.flatnonzero(np.add.reduceat(bits[order], edges[:-1])).tolist():
            sources[number].setdefault(file, []).append(group)
    return [
        Shard(
            number,
            edges[number],
            edges[number + 1],
            tuple((file, tuple(groups)) for file, groups in sources[number].items()),
            int(n_rows[edges[number] : edges[number + 1]].sum()),
        )
        for number in range(len(edges) - 1)
        if len(n_rows)
    ]
