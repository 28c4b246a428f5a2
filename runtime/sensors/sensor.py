"""What is kept of one sensor beside the state of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.season_ahead import SeasonAhead
from edgefold.runtime.sensors.time_parsing import Kind
from edgefold.runtime.stream.state_slots import StateSlots

MOST_SENSORS = 10_000
"""Sensors that share one model: a name in each row of a table may be none."""


@dataclass(slots=True)
class Sensor:
    """A sensor's clock, alarms and newest forecasts.

    Attributes:
        feed: Its clock and seasons.
        watch: Its alarms.
        slots: Its state, while another sensor's is the stream's.
        kind: Of its times; None before the first row.
        n_rows: Rows that were taken.
        n_values: Of them, with a value.
        newest: The newest value; NaN before the first.
        ahead_mean: Forecasts of the slots to come, (H + 1,); the season is the last.
        ahead_quantiles: Likewise, (H + 1, Q).
        season_ahead: What was forecast one season ahead of the slots to come.
        following: The input of the next slot, if it is missing: 0, 0, season and phase.
    """

    feed: SensorFeed
    watch: Watch
    ahead_mean: FloatArray
    ahead_quantiles: FloatArray
    season_ahead: SeasonAhead
    slots: StateSlots | None = None
    kind: Kind | None = None
    n_rows: int = 0
    n_values: int = 0
    newest: float = math.nan
    following: FloatArray = field(default_factory=lambda: np.zeros(4))
