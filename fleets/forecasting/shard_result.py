"""Keep what came of a shard's sensors beside its forecasts, in one file of numbers and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.fleets.forecasting.sensor_summary import SensorPicture, SensorSummary
from edgefold.runtime.files import write_atomic

N_WORST = 12
"""Number of sensors that are drawn."""

Rank = tuple[float, float, int, str]


@dataclass
class ShardResult:
    """Holds what came of some sensors.

    Attributes:
        summaries: A summary of each sensor.
        incidents: Place of the sensor's name, column of its values, and fields of an incident.
        scores: The same two, the horizon, and the numbers of a `BacktestScore`.
        pictures: What pictures show of the worst sensors, the worst first.
    """

    summaries: list[SensorSummary] = field(default_factory=list)
    incidents: list[tuple[int, str, list[str]]] = field(default_factory=list)
    scores: list[tuple[Any, ...]] = field(default_factory=list)
    pictures: list[SensorPicture] = field(default_factory=list)

    def keep_worst(self, rank: Rank, make: Callable[[], SensorPicture | None]) -> None:
        """Keep the picture of a sensor if it is among the worst so far."""
        if len(self.pictures) < N_WORST or rank < self.pictures[-1].summary.rank:
            picture = make()
            if picture is not None:
                self.pictures.append(picture)
                self.pictures.sort(key=lambda each: each.summary.rank)
                del self.pictures[N_WORST:]


class SummaryFile:
    """Reads and writes a `ShardResult` as a file."""

    @staticmethod
    def write(path: Path, result: ShardResult) -> None:
        """Write a result as a whole."""
        record = {
            "summaries": [summary.to_json() for summary in result.summaries],
            "incidents": result.incidents,
            "scores": result.scores,
            "pictures": [picture.summary.to_json() for picture in result.pictures],
        }
        arrays = {
            f"{number}.{name}": array
            for number, picture in enumerate(result.pictures)
            for name, array in picture.arrays()
        }
        content = io.BytesIO()
        text = np.frombuffer(json.dumps(record).encode(), np.uint8)
        np.savez(content, record=text, **arrays)  # type: ignore[arg-type]
        write_atomic(path, content.getvalue())

    @staticmethod
    def read(path: Path) -> ShardResult:
        """Read a result that `write` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            record = json.loads(arrays["record"].tobytes())
            pictures = [
                SensorPicture(
                    SensorSummary(**summary),
                    *(arrays[f"{number}.{name}"] for name in SensorPicture.ARRAYS),
                )
                for number, summary in enumerate(record["pictures"])
            ]
        return ShardResult(
            [SensorSummary(**summary) for summary in record["summaries"]],
            [(place, column, fields) for place, column, fields in record["incidents"]],
            [tuple(line) for line in record["scores"]],
            pictures,
        )
