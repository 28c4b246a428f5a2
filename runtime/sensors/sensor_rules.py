"""Join the rules of one sensor: its clock and season, its alarms, and the counts of its forecasts.

    (time, value) ──> slots: missing ones, then the row ──> model ──> forecast ──> alarm, counts
                      (RowSlots.accept)                              (SensorRules.score)

C is made of these rules (`edgefold.export.native.sensors`); Python's `SensorEngine` runs them as
they are.
"""

from __future__ import annotations

from edgefold.runtime.kept_numbers import KeptNumbers
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES, is_scored
from edgefold.runtime.sensors.alarms.alarms import AlarmVerdict, Watch
from edgefold.runtime.sensors.clock.row_slots import RowSlots
from edgefold.runtime.sensors.clock.season_search import SeasonSearch
from edgefold.runtime.sensors.score_counts import ScoreCounts


class SensorRules(KeptNumbers):
    """Scores the rows of one sensor, in memory of a fixed size.

    Attributes:
        slots: The sensor's clock and season.
        watch: Decides which rows are alarms.
        counts: Counts and sums that say how good the forecasts were.
        is_known: Whether the row that was scored last had a forecast.
    """

    slots: RowSlots = RowSlots()
    watch: Watch = Watch()
    counts: ScoreCounts = ScoreCounts()
    is_known: bool = False
    # The places of the quantiles at 5 %, 50 % and 95 %.
    _low: int = 0
    _middle: int = 0
    _high: int = 0

    def begin(self, rate: float, longest: int, low: int, middle: int, high: int) -> None:
        """Begin without rows.

        Args:
            rate: The share of sound rows that may be alarms.
            longest: The length of the longest season in slots.
            low: The place of the quantile at 5 %.
            middle: The place of the median.
            high: The place of the quantile at 95 %.
        """
        self.slots.begin(longest)
        self.watch.begin(rate)
        self._low, self._middle, self._high = low, middle, high

    def score(
        self,
        value: float,
        quantiles: list[float],
        log_density: float,
        p_value: float,
        usual: float,
        n_points: int,
        n_values: int,
        search: SeasonSearch,
    ) -> AlarmVerdict:
        """Score the row that `slots` accepted last, decide whether it is an alarm, and learn it.

        Args:
            value: The row's value; NaN if it is missing.
            quantiles: The forecast quantiles of the value.
            log_density: The log density of the value, in nats; 0 if nothing was scored.
            p_value: The probability that chance brings a value this far from the forecast, on
                either side; 1 if nothing was scored.
            usual: The mean of the last seasons at the phase of the row; NaN if it is not known.
            n_points: The number of slots that have come, with this one.
            n_values: The number of values that came before.
            search: Searches for a season, where one is due.
        """
        slots = self.slots
        n_missing = slots.n_slots - 1
        middle = quantiles[self._middle]
        verdict = self.watch.see(value, p_value, middle, log_density, n_missing, usual, slots.place)
        self.is_known = n_points > FIRST_SLOTS and n_values >= FIRST_VALUES
        if value == value:
            self.is_known = is_scored(log_density, p_value)
            if self.is_known:
                low, high = quantiles[self._low], quantiles[self._high]
                self.counts.forecast(value, low, middle, high)
            self.counts.row(value, n_missing, verdict.alarm)
        slots.learn(search)
        return verdict
