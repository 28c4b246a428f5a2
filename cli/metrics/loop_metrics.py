"""Count what a loop does in this run, for metrics; `families` turns the counts into metrics.

    loop's thread     taken ─> row, refused ─> line, idle, saved      adds to numbers
    another thread    a scrape reads the numbers, and waits for nobody

All counts begin at zero with each run. A loop's own counters go on after a restart, and after a
kill they fall back to the snapshot: Prometheus takes a fall for a restart from zero, and would
count all rows again. What the loop counts itself is therefore read from its counters, less what
they were at the run's start, and costs no time per row. A candidate that takes over has counters of
its own, which are joined to those of the model before it.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgefold.runtime.loop.watcher import LoopWatcher, Refusal, WatchedRow

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.loop.streams import LoopStreams

WINDOW = 1000
"""Number of scored rows over which running means forget: a row's weight falls to 1/e after so
many."""
KEEP = 1 - 1 / WINDOW
MOST_SERIES = 200
"""Number of series with metrics of their own; those that come later share the name `OTHER`."""
OTHER = "other"
BOUNDS_S = (
    2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
)  # fmt: skip
"""Upper bounds of the histogram of seconds that a line takes."""
COUNTED = ("rows", "predicted", "missing", "not_learned", "anomalies")
"""Fields of the loop's counters that become metrics."""


class SeriesMetrics:
    """Holds the numbers of one series in this run.

    Attributes:
        n_scored: Number of values that had a band.
        n_below: Number of values below the band's lower bound, the forecast's 5 % quantile.
        n_above: Number of values above its upper bound, the 95 % quantile.
        weight: Sum of the weights of the scored rows in the window.
        below: Sum of the weights of the values below the band.
        above: Sum of the weights of the values above the band.
        positive_nats: Sum of the log scores that are above zero.
        negative_nats: Sum of the log scores that are below zero, without their sign.
        nats_weight: Sum of the weights of the rows in the window that have a log score.
        nats: Sum of the weighted log scores.
        lag_s: This machine's clock less the newest row's time, when the row was learned; NaN for
            times that are no dates.
        newest_s: The clock at the newest row.
        n_alarms: Number of alarms by event.
    """

    __slots__ = (
        "above", "below", "lag_s", "n_above", "n_alarms", "n_below", "n_scored", "nats",
        "nats_weight", "negative_nats", "newest_s", "positive_nats", "weight",
    )  # fmt: skip

    def __init__(self, start_s: float) -> None:
        self.n_scored = self.n_below = self.n_above = 0
        self.weight = self.below = self.above = 0.0
        self.positive_nats = self.negative_nats = self.nats_weight = self.nats = 0.0
        self.lag_s, self.newest_s = math.nan, start_s
        self.n_alarms: dict[str, int] = {}

    def score(self, value: float, low: float, high: float, nats: float) -> None:
        """Add a value and the forecast that was made for it; nats that are not finite are left out.

        A model that gives a value no chance at all would make all sums infinite for ever.
        """
        self.n_scored += 1
        self.weight = self.weight * KEEP + 1
        self.below *= KEEP
        self.above *= KEEP
        if value < low:
            self.n_below += 1
            self.below += 1
        elif value > high:
            self.n_above += 1
            self.above += 1
        if -math.inf < nats < math.inf:
            self.nats_weight = self.nats_weight * KEEP + 1
            self.nats = self.nats * KEEP + nats
            if nats > 0:
                self.positive_nats += nats
            else:
                self.negative_nats -= nats


class LoopMetrics(LoopWatcher):
    """Counts what a loop does; another thread may read the attributes at any time.

    Args:
        loop: The loop.
        tell: Function that gets a sentence for the user.
        clock: Function that returns a time in seconds that never goes back.
        wall: Function that returns the seconds since 1970.

    Attributes:
        series: The numbers of each series that had a row in this run, by name.
        n_refused: Number of refused rows by the series' name and the kind of reason.
        n_in_buckets: Number of lines by the time that they took: up to each of `BOUNDS_S`, and
            longer.
        lines_s: Seconds that all lines took together.
        n_lines: Number of lines of this run.
        n_saved: Number of snapshots of this run.
        saving_s: Seconds that the loop spent with writing them.
        saved_s: The clock at the newest snapshot; the run's start before the first one.
        step_s: The clock at the loop's last sign of life.
        start_s: The clock at the start of this run.
    """

    def __init__(
        self,
        loop: PredictionLoop,
        tell: Callable[[str], None] = lambda sentence: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ):
        self._loop, self._tell, self.clock, self.wall = loop, tell, clock, wall
        self.series: dict[str, SeriesMetrics] = {}
        self.n_refused: dict[tuple[str, Refusal], int] = {}
        self.n_in_buckets = [0] * (len(BOUNDS_S) + 1)
        self.lines_s = self.saving_s = 0.0
        self.n_lines = self.n_saved = 0
        # The sensors that count, and by name what must be added to their counters.
        self._counting: tuple[LoopStreams, dict[str, list[int]]] | None = None
        self.start_s = self.step_s = self.saved_s = self._taken_s = clock()

    def taken(self) -> None:
        if self._counting is None:
            self._begin()
        self._taken_s = self.clock()

    def row(self, row: WatchedRow) -> None:
        series = self.series.get(row.series) or self._new(row.series)
        series.newest_s = self._taken_s
        if row.time == row.time:
            series.lag_s = self.wall() - row.time
        value, _, low, high, nats = row.view[:5]
        if value == value and low == low:
            series.score(value, low, high, nats)
        if row.alarm is not None:
            event = row.alarm.event
            series.n_alarms[event] = series.n_alarms.get(event, 0) + 1

    def refused(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        self.n_refused[name, kind] = self.n_refused.get((name, kind), 0) + 1

    def line(self) -> None:
        if self._counting is None or self._counting[0] is not self._loop.sensors:
            self._begin()
        self.step_s = now_s = self.clock()
        took_s = now_s - self._taken_s
        self.n_in_buckets[bisect_left(BOUNDS_S, took_s)] += 1
        self.lines_s += took_s
        self.n_lines += 1

    def idle(self) -> None:
        if self._counting is None:
            self._begin()
        self.step_s = self.clock()

    def saved(self) -> None:
        self.n_saved += 1
        now_s = self.clock()
        self.saving_s += now_s - max(self.step_s, self._taken_s)
        self.saved_s = self.step_s = now_s

    def _begin(self) -> None:
        """Count from here on, after the loop resumed or another model began to speak."""
        before, sensors = dict(self.counted()), self._loop.sensors
        added = {
            sensor.name: [
                n - getattr(sensor.counters, name)
                for n, name in zip(
                    before.get(sensor.name, [0] * len(COUNTED)), COUNTED, strict=True
                )
            ]
            for sensor in sensors.named or sensors.all[:1]
        }
        self._counting = sensors, added

    def _new(self, name: str) -> SeriesMetrics:
        self.series[name] = series = SeriesMetrics(self.start_s)
        if len(self.series) == MOST_SERIES + 1:
            self._tell(
                f"more than {MOST_SERIES} series: those that came later share the label "
                f'series="{OTHER}" in the metrics'
            )
        return series

    # For another thread ---------------------------------------------------------------------------

    def counted(self) -> list[tuple[str, list[int]]]:
        """Return the numbers of `COUNTED` of each series in this run.

        The list is empty before the loop has resumed.
        """
        if self._counting is None:
            return []
        sensors, added = self._counting
        # A sensor that takes its slot just now has no name yet.
        found = [s for s in sensors.named if s.name] if sensors.are_named else sensors.all[:1]
        none = [0] * len(COUNTED)
        return [
            (
                sensor.name,
                [
                    getattr(sensor.counters, name) + n
                    for name, n in zip(COUNTED, added.get(sensor.name, none), strict=True)
                ],
            )
            for sensor in found
        ]
