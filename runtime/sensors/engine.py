"""Lead each row (sensor, time, value) through the general model to its forecast and its alarm.

    (time, value) ──> slots: missing ones, then the row ──> model ──> forecast ──> alarm, counts
                      (SensorFeed)                         (Stream)                  (Watch)

A slot is one place in the even sequence of times in which the rows of a sensor come.
`edgefold run sensors`, `edgefold forecast` and `edgefold.runtime.Sensors` all use this module.
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
"""The prefix that a snapshot puts before the names of the arrays of a `Watch`."""


@dataclass(slots=True)
class ScoredRow:
    """Holds a row with the forecast that was made before its value was seen.

    Attributes:
        time: The row's time as a number.
        value: The row's value; NaN if it is missing.
        is_known: Whether there was a forecast.
        mean: The forecast mean of the value.
        quantiles: The forecast quantiles of the value, at the levels of the prediction kind.
        log_density: The log density of the value, in nats; 0 if nothing was scored.
        p_value: The probability that chance brings a value this far from the forecast, on either
            side; 1 if nothing was scored.
        n_missing: The number of missing rows between this row and the one before.
        season: The season's length in slots (usual times between rows); 0 if none is known.
        alarm: Whether the row is an alarm.
        event: The name of what happens to the sensor, such as "stuck"; empty for nothing.
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
        """Return whether the row had both a forecast and a value, so that it could be scored."""
        return self.is_known and self.value == self.value


class SensorEngine:
    """Serves one sensor with the general model, in memory of a fixed size.

    Args:
        kind: The prediction kind of the bundle.
        rate: The share of sound rows that may be alarms.
        ahead: The object that keeps the forecasts of later slots; None if nobody asks for them.

    Attributes:
        feed: The sensor's clock and season.
        scores: Counts and sums that say how good the forecasts were.
        ahead: The forecasts of later slots, or None.
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
        """Score a row by the forecast made before it, learn it, and decide whether it is an alarm.

        Args:
            states: The states of all sensors, with the stream that runs the model.
            name: The sensor's name.
            time: The row's time; in seconds since 1970 if it is a date.
            value: The measured value; NaN if it is missing.
            dated: Whether times are dates.
            n_values: How many measured values came before.

        Raises:
            DataError: The row is refused, or there is no memory for a new sensor; nothing changed.
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
        """Step the model once for each missing row before a row, and then for the row.

        If a step fails, the state is as before all of them.

        Args:
            states: The states of all sensors, with this sensor's as the present one.
            x: The model's inputs (n, 4), one for each step.
        """
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
        """Return the arrays that a snapshot must keep; their names and shapes never change."""
        watch = as_part(self._watch.arrays(), WATCH)
        return {**self.feed.arrays(), "tally": self.scores.to_array(), **watch}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing or damaged.
        """
        require_same(arrays, self.arrays())
        scores = ScoreCounts.from_array(arrays["tally"])
        watch = Watch(self.rate)
        watch.load(part_of(arrays, WATCH))
        self.feed.load(arrays)
        self.scores, self._watch = scores, watch
