"""Lead each row (sensor, time, value) through the general model to its forecast and its alarm.

    (time, value) ──> slots: missing ones, then the row ──> model ──> forecast ──> alarm, counts
                      (SensorFeed)                         (Stream)                  (Watch)

A slot is one place in the even sequence of times in which the rows of a sensor come.
`edgefold run sensors`, `edgefold forecast` and `edgefold.runtime.Sensors` all use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

from edgefold.runtime.arrays import Array
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import (
    place_of_level,
    usual_of,
)
from edgefold.runtime.sensors.alarms.alarms import RATE, Watch
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict, Event
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.score_counts import ScoreCounts
from edgefold.runtime.sensors.sensor_scores import SensorScores, has_forecast
from edgefold.runtime.sensors.warm.warm_start import RowForecast, SiblingSteps, WarmStart

if TYPE_CHECKING:
    from edgefold.runtime.sensors.slots_ahead import SlotsAhead
    from edgefold.runtime.sensors.warm.fleet import Fleet
    from edgefold.runtime.stream.named_states import NamedStates

WATCH = "watch_"
"""The prefix that a snapshot puts before the names of the arrays of a `Watch`."""


def converted(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of a sensor's snapshot as this version keeps them (`Watch.converted`)."""
    watch = part_of(arrays, WATCH)
    return {**arrays, **(as_part(Watch.converted(watch), WATCH) if "watch" in watch else {})}


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
        n_since: How many rows before this one the event began.
        size: The size of an event that lasts; else 0 (`edgefold.runtime.sensors.alarms.lasting`).
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
    n_since: int
    size: float

    @property
    def is_scored(self) -> bool:
        """Return whether the row had both a forecast and a value, so that it could be scored."""
        return self.is_known and self.value == self.value


def mixed_row(
    own: ScoredRow, warm: WarmStart, steps: SiblingSteps, place: SlotPlace
) -> tuple[ScoredRow, WarmStart | None]:
    """Mix a row as the sensor's own state scored it with the forecasts of its siblings' states.

    Args:
        own: The row.
        warm: What the siblings' states knew before it.
        steps: What they made of it.
        place: Where it stands in the season and the day.

    Returns:
        The row as it is given out, and what takes the place of `warm`.
    """
    forecast = RowForecast(own.mean, own.quantiles, own.log_density, own.p_value)
    verdict = AlarmVerdict(own.alarm, cast(Event, own.event), own.n_since, own.size)
    numbers = own.value, own.is_known, own.n_missing, place
    mixed, verdict, following = warm.following(steps, forecast, verdict, *numbers)
    row = replace(
        own,
        **mixed._asdict(),
        alarm=verdict.alarm,
        event=verdict.event,
        n_since=verdict.n_since,
        size=verdict.size,
    )
    return row, following


class _Changed(NamedTuple):
    """Holds what the attributes of a `SensorEngine` become by a row."""

    feed: SensorFeed
    scores: SensorScores
    ahead: SlotsAhead | None
    warm: WarmStart | None


class SensorEngine:
    """Serves one sensor with the general model, in memory of a fixed size.

    Args:
        kind: The prediction kind of the bundle.
        rate: The share of sound rows that may be alarms.
        ahead: The object that keeps the forecasts of later slots; None if nobody asks for them.
        fleet: The siblings by which the sensor starts warm; None lets it start cold.

    Attributes:
        feed: The sensor's clock and season.
        ahead: The forecasts of later slots, or None.
        warm: What the siblings' states know of the sensor; None before its first row, after its
            first `N_ROWS`, and without siblings.
    """

    def __init__(
        self,
        kind: SensorForecast,
        rate: float = RATE,
        ahead: SlotsAhead | None = None,
        fleet: Fleet | None = None,
    ):
        self.rate, self.ahead = rate, ahead
        self._fleet = fleet  # until the first row
        self.warm: WarmStart | None = None
        self.feed, self._scores = SensorFeed(kind.longest_season), SensorScores()
        self._changed: _Changed | None = None  # what the row in work makes of these
        self._scores.begin(rate, *(place_of_level(kind.levels, p) for p in (0.05, 0.5, 0.95)))

    @property
    def scores(self) -> ScoreCounts:
        """Return counts and sums that say how good the forecasts were."""
        return self._scores.counts

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
        states.settle()
        x = self.feed.rows(time, value, dated)
        ahead = None if self.ahead is None else self.ahead.copy()
        warm = self.warm
        if self._fleet is not None:
            warm = WarmStart.begin(self._fleet, self.rate)
        steps = None if warm is None else warm.steps(x, value)
        scored: list[ScoredRow] = []

        def prepare(slot: int, prediction: Prediction) -> None:
            n_points = states.stream.n_points + 1  # with this slot, which is learned next
            if slot == len(x) - 1:
                is_usual = has_forecast(n_points, n_values)
                row = self._score(time, value, prediction, int(x[-1, 2]), is_usual, ahead)
                if warm is not None and steps is not None:
                    assert self._changed is not None
                    row, following = mixed_row(row, warm, steps, self.feed.place)
                    self._changed = self._changed._replace(warm=following)
                scored.append(row)
                if ahead is not None:
                    ahead.keep(prediction, value, int(x[-1, 2]), len(x))

        states.learn(name, x, prepare, self.finish)
        return scored[0]

    def _score(
        self,
        time: float,
        value: float,
        prediction: Prediction,
        season: int,
        is_usual: bool,
        ahead: SlotsAhead | None,
    ) -> ScoredRow:
        """Score a row, and compute what `finish` makes of this object's attributes.

        Args:
            time: The row's time.
            value: The row's value; NaN if it is missing.
            prediction: What the model forecast of the row.
            season: The season's length in slots.
            is_usual: Whether enough rows came before, so that a row without a value has a forecast.
            ahead: What `ahead` becomes.
        """
        n_missing, tensors = self.feed.n_missing, prediction.tensors
        quantiles = tensors["quantiles"].ravel().tolist()
        log_density, p_value = tensors["log_density"].item(), tensors["p_value"].item()
        scores, usual, place = self._scores.copy(), usual_of(tensors), self.feed.place
        scored = log_density, p_value, usual, n_missing, place, is_usual
        verdict = scores.score(value, quantiles, *scored)
        self._changed = _Changed(self.feed.prepared(), scores, ahead, None)
        mean = tensors["mean"].item()
        return ScoredRow(
            *(time, value, scores.is_known, mean, quantiles, log_density, p_value),
            n_missing=n_missing,
            season=season,
            alarm=verdict.alarm,
            event=verdict.event,
            n_since=verdict.n_since,
            size=verdict.size,
        )

    def finish(self) -> None:
        """Make the changes of the row that the model has learned; a second call changes nothing."""
        assert self._changed is not None
        feed, self._scores, self.ahead, self.warm = self._changed
        self._fleet = None
        if self.warm is not None:
            self.warm.settle()
        self.feed.take(feed)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep; their names and shapes never change."""
        watch = as_part(self._scores.watch.arrays(), WATCH)
        return {**self.feed.arrays(), "tally": self.scores.to_array(), **watch}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing or damaged.
        """
        arrays = converted(arrays)
        require_same(arrays, self.arrays())
        scores = self._scores.copy()
        scores.counts = ScoreCounts.from_array(arrays["tally"])
        scores.watch.load(part_of(arrays, WATCH))
        self.feed.load(arrays)
        self._scores, self._fleet = scores, None
