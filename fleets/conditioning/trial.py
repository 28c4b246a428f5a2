"""Measure on a plan's first rows how long reading and learning take, to say how long all takes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from edgefold.fleets.conditioning.condition import Conditioning
from edgefold.fleets.conditioning.job import ReadArgument
from edgefold.fleets.conditioning.keys import GroupNumbers
from edgefold.fleets.conditioning.point_rows import PointReader
from edgefold.fleets.tables.batches import read_batches
from edgefold.fleets.tables.lake import Lake
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.stream.stream import Stream

MOST_S = 1.0


@dataclass(frozen=True, slots=True)
class ConditionTrial:
    """Holds what a trial measured.

    Attributes:
        n_rows: The number of rows that it read.
        n_groups: The number of groups among them.
        reading_s: How long the reading of a row takes, mean.
        learning_s: How long the learning of a row takes, mean.
    """

    n_rows: int
    n_groups: int
    reading_s: float
    learning_s: float

    def all_s(self, n_rows: int, n_processes: int) -> float:
        """Return an estimate of how long a number of rows takes on some processes."""
        return n_rows * (self.reading_s + self.learning_s) / n_processes


def try_plan(planned: Conditioning) -> ConditionTrial:
    """Read and learn the plan's first rows for about a second; nothing is written.

    Raises:
        DataError, EdgefoldError: As the plan itself would.
    """
    setup, lake = planned.setup, planned.lake
    argument = planned.plan.units[0].argument
    assert isinstance(argument, ReadArgument)
    numbers, n, seconds = GroupNumbers(setup.by), 0, {"read": 0.0, "learn": 0.0}
    with Stream.open(
        setup.bundle, setup.backend, engine=EngineOptions(setup.engine_cache)
    ) as stream:
        reader = PointReader(setup, planned.manifest, numbers, Counter())
        batches = (
            batch
            for part in argument.slices
            for batch in read_batches(
                Lake([part.file], setup.columns, lake.filter),
                part.file,
                range(part.first, part.last),
                setup.batch_rows,
            )
        )
        began_s = time.monotonic()
        for batch in batches:
            points = reader.points(batch)
            read_s = time.monotonic()
            seconds["read"] += read_s - began_s
            stream.reset()  # a model with room for few points learns, too
            most = len(points.rows) if planned.manifest.room is None else planned.manifest.room
            x, y = points.x[:most], points.y[:most]
            stream.condition(x if setup.x else None, y if setup.y else None)
            began_s = time.monotonic()
            seconds["learn"] += began_s - read_s
            n += batch.stop - batch.start
            if sum(seconds.values()) > MOST_S:
                break
    return ConditionTrial(
        n, len(numbers.keys), seconds["read"] / max(n, 1), seconds["learn"] / max(n, 1)
    )
