"""The one way from a row (sensor, time, value) of the general model to a forecast and its alarm.

    (time, value) ──> slots: missing ones, then the row ──> model ──> forecast ──> alarm, counts
                      (SensorFeed)                         (Stream)                  (Watch)

`edgefold run sensors`, `edgefold forecast` and `edgefold.runtime.Sensors` all call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES, is_scored
from edgefold.runtime.sensors.alarms.alarms import RATE, Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.score_counts import ScoreCounts

if TYPE_CHECKING:
    from edgefold.runtime.sensors.slots_ahead import SlotsAhead
    from edgefold.runtime.stream.named_states import NamedStates

WATCH = "watch_"
"""Before the names of the watch's arrays in a snapshot."""


@dataclass(slots=True)
class ScoredRow:
    """A row with the forecast that was made before its value was seen.

    Attributes:
        time: The row's time as a number.
        value: The row's value; NaN where it was missing.
        is_known: Whether anything was forecast.
        mean: The expected value.
        quantiles: The values at the levels of the prediction kind.
        log_density: The log density of the value, in nats; 0 where nothing was scored.
        p_value: How often a value so far out comes by chance; 1 where nothing was scored.
        n_missing: Slots without a row between this row and the one before.
        season: The season's length in slots; 0 where none is known.
        alarm: Whether the row is an alarm.
        event: The name of what happens; empty for nothing.
    """

    time: float
    value: float
    is_known: bool
    mean: float
    quantiles: list[float]
    log_density: float
    p_value: float
    n_missing: int
    season: int
    alarm: bool
    event: str

    @property
    def is_scored(self) -> bool:
        """Whether there were a forecast and a value to score by it."""
        return self.is_known and self.value == self.value


class SensorEngine:
    """Serves one sensor with the general model, in memory of a fixed size.

    Args:
        kind: The bundle's prediction.
        rate: False alarms a row.
        ahead: Keeps the forecasts of the slots to come, where somebody asks for them.

    Attributes:
        feed: The sensor's clock and season.
        scores: Counts of how good the forecasts were.
        ahead: The forecasts of the slots to come.
    """

    def __init__(self, kind: SensorForecast, rate: float = RATE, ahead: SlotsAhead | None = None):
        self.rate, self.ahead = rate, ahead
        self.feed, self.scores = SensorFeed(kind.longest_season), ScoreCounts()
        self._watch = Watch(rate)
        levels = kind.levels
        self._low, self._middle, self._high = (
            min(range(len(levels)), key=lambda place: abs(levels[place] - level))
            for level in (0.05, 0.5, 0.95)
        )

    def step(
        self,
        states: NamedStates,
        name: str,
        time: float,
        value: float,
        dated: bool,
        n_values: int,
    ) -> ScoredRow:
        """Score a row by the forecast made before it, learn it, and judge it.

        Args:
            states: The states of all sensors, with the stream that runs the model.
            name: The sensor's name.
            time: Seconds since 1970 if it is a date.
            value: NaN where it is missing.
            dated: Whether times are dates.
            n_values: Measured values that came before.

        Raises:
            DataError: The row is refused, or no slot is left for a new name; nothing changed.
            BackendError, StepRefusedError: The step failed; nothing changed.
        """
        feed = self.feed
        x = feed.rows(time, value, dated)
        states.turn_to(name)
        prediction = states.stream.step(x) if len(x) == 1 else self._step_through(states, x)
        feed.commit()
        tensors = prediction.tensors
        quantiles = tensors["quantiles"].ravel().tolist()
        log_density, p_value = tensors["log_density"].item(), tensors["p_value"].item()
        verdict = self._watch.see(value, p_value, quantiles, log_density, feed.n_missing)
        if value == value:
            is_known = is_scored(log_density, p_value)
            self._count(value, is_known, quantiles, verdict.alarm)
        else:
            is_known = states.stream.n_points > FIRST_SLOTS and n_values >= FIRST_VALUES
        if self.ahead is not None:
            self.ahead.keep(prediction, value, x[-1], states.stream.n_points)
        return ScoredRow(
            time,
            value,
            is_known,
            tensors["mean"].item(),
            quantiles,
            log_density,
            p_value,
            feed.n_missing,
            int(x[-1, 2]),
            verdict.alarm,
            verdict.event,
        )

    def _step_through(self, states: NamedStates, x: FloatArray) -> Prediction:
        """Step through the slots that are missing before a row, then the row; all or none."""
        stream, ahead = states.stream, self.ahead
        states.hold()
        try:
            for n in range(len(x)):
                prediction = stream.step(x[n : n + 1])
                if ahead is not None and n < len(x) - 1:
                    ahead.keep_season(prediction, int(x[n, 2]), stream.n_points)
        except BaseException:
            states.put_back()
            raise
        return prediction

    def _count(self, value: float, is_known: bool, quantiles: list[float], is_alarm: bool) -> None:
        scores = self.scores
        if is_known:
            low, middle, high = (quantiles[at] for at in (self._low, self._middle, self._high))
            scores.forecast(value, low, middle, high)
        scores.row(value, self.feed.n_missing, is_alarm)

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep; the names and shapes never change."""
        watch = as_part(self._watch.arrays(), WATCH)
        return {**self.feed.arrays(), "tally": self.scores.to_array(), **watch}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore what `arrays` returned. Nothing changes if it is refused.

        Raises:
            SnapshotError: Arrays are missing or damaged.
        """
        require_same(arrays, self.arrays())
        scores = ScoreCounts.from_array(arrays["tally"])
        watch = Watch(self.rate)
        watch.load(part_of(arrays, WATCH))
        self.feed.load(arrays)
        self.scores, self._watch = scores, watch
