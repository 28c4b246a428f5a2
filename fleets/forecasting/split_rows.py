"""Split a lake's rows by shard on the disk, where each file holds rows of many shards.

    row groups of a file ──> rows in the order of their shards ──> .work/split/00003-2.npy, ..
                                                                        │ a slice of each
    shard ──────────────────────────────────────────────────────────────┘

A lake whose files follow each other in time has each sensor in every file. If every shard read all
of it, reading would take longer than forecasting once there are some hundred shards. A split row
takes 13 bytes, and 8 for each value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefold.fleets.forecasting.census import KeyNumbers, Shard
from edgefold.fleets.forecasting.settings import LakeChoice
from edgefold.fleets.forecasting.shard_rows import RowPart, lake_parts
from edgefold.fleets.tables.lake import Lake
from edgefold.runtime.arrays import Array
from edgefold.runtime.files import replacing

MOST_READINGS = 4
"""A lake is split if its shards would read a row more often: to split takes as long as reading it
some 3 times."""
SPLIT_ROWS = 2_000_000
"""Rows of a split, unless a row group has more."""
FOLDER = "split"


@dataclass(frozen=True, slots=True)
class Split:
    """Describes the rows that one unit of work splits.

    Attributes:
        number: Its place among all.
        file: The number of the file.
        groups: Its row groups.
        n_rows: The number of rows.
    """

    number: int
    file: int
    groups: tuple[int, ...]
    n_rows: int


def splits_of(lake: Lake) -> tuple[Split, ...]:
    """Return all row groups of a lake in splits, in the order of the rows."""
    splits = list[Split]()
    for number, file in enumerate(lake.files):
        groups, held = list[int](), 0
        for group, n in enumerate(file.row_groups):
            if groups and held + n > SPLIT_ROWS:
                splits.append(Split(len(splits), number, tuple(groups), held))
                groups, held = [], 0
            groups.append(group)
            held += n
        if groups:
            splits.append(Split(len(splits), number, tuple(groups), held))
    return tuple(splits)


def write_split(
    folder: Path,
    lake: Lake,
    choice: LakeChoice,
    split: Split,
    numbers: KeyNumbers,
    edges: Sequence[int],
) -> None:
    """Write the rows of a split in the order of their shards.

    Args:
        folder: Where the files go.
        lake: The lake.
        choice: Its columns.
        split: The split.
        numbers: The places of all sensors.
        edges: The place of each shard's first sensor, and the number of all sensors.
    """
    sources = ((split.file, split.groups),)
    parts = list(lake_parts(lake, choice, sources, numbers))
    if not parts:
        places = np.zeros(0, np.int32)
        parts = [(places, places == 0, places, *[places * 1.0] * len(choice.values))]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    shards = np.searchsorted(edges, columns[0], "right") - 1
    order = np.argsort(shards, kind="stable")
    starts = np.searchsorted(shards[order], np.arange(len(edges)))
    folder.mkdir(exist_ok=True)
    for at, column in enumerate([starts, *(column[order] for column in columns)]):
        with replacing(_place(folder, split, at)) as beside, beside.open("wb") as file:
            np.save(file, column)


def split_parts(folder: Path, splits: Sequence[Split], shard: Shard, n: int) -> Iterator[RowPart]:
    """Read the rows of a shard that `write_split` wrote, in their order in the lake.

    Args:
        folder: Where the files are.
        splits: All splits.
        shard: The shard.
        n: The number of columns of values.
    """
    for split in splits:
        starts: Array = np.load(_place(folder, split, 0))
        own = slice(*starts[shard.number : shard.number + 2].tolist())
        if own.start < own.stop:
            yield tuple(
                np.array(np.load(_place(folder, split, at), mmap_mode="r")[own])
                for at in range(1, 4 + n)
            )


def _place(folder: Path, split: Split, at: int) -> Path:
    return folder / f"{split.number:05}-{at}.npy"
