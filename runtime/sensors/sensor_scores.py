"""Score the rows of one sensor by the forecasts made before them, and decide which are alarms."""

from __future__ import annotations

from edgefold.runtime.kept_numbers import KeptNumbers
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES, is_scored
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict
from edgefold.runtime.sensors.score_counts import ScoreCounts


class SensorScores(KeptNumbers):
    """Scores the rows of one sensor, in memory of a fixed size.

    Attributes:
        watch: Decides which rows are alarms.
        counts: Counts and sums that say how good the forecasts were.
        is_known: Whether the row that was scored last had a forecast.
    """

    watch: Watch = Watch()
    counts: ScoreCounts = ScoreCounts()
    is_known: bool = False
    # The places of the quantiles at 5 %, 50 % and 95 %.
    _low: int = 0
    _middle: int = 0
    _high: int = 0

    def begin(self, rate: float, low: int, middle: int, high: int) -> None:
        """Begin without rows.

        Args:
            rate: The share of sound rows that may be alarms.
            low: The place of the quantile at 5 %.
            middle: The place of the median.
            high: The place of the quantile at 95 %.
        """
        self.watch.begin(rate)
        self._low, self._middle, self._high = low, middle, high

    def score(
        self,
        value: float,
        quantiles: list[float],
        log_density: float,
        p_value: float,
        usual: float,
        n_missing: int,
        place: SlotPlace,
        is_usual: bool,
    ) -> AlarmVerdict:
        """Score a row, and decide whether it is an alarm.

        Args:
            value: The row's value; NaN if it is missing.
            quantiles: The forecast quantiles of the value.
            log_density: The log density of the value, in nats; 0 if nothing was scored.
            p_value: The probability that chance brings a value this far from the forecast, on
                either side; 1 if nothing was scored.
            usual: The mean of the last seasons at the phase of the row; NaN if it is not known.
            n_missing: The number of slots without a row just before this row.
            place: Where the row stands in the season and the day.
            is_usual: Whether so much came before that a row without a value has a forecast, too
                (`has_forecast`).
        """
        middle = quantiles[self._middle]
        verdict = self.watch.see(value, p_value, middle, log_density, n_missing, usual, place)
        self.is_known = is_usual
        if value == value:
            self.is_known = is_scored(log_density, p_value)
            if self.is_known:
                low, high = quantiles[self._low], quantiles[self._high]
                self.counts.forecast(value, low, middle, high)
            self.counts.row(value, n_missing, verdict.alarm)
        return verdict


def has_forecast(n_points: int, n_values: int) -> bool:
    """Return whether a row has a forecast, if it is a row like those before.

    Args:
        n_points: The number of slots that have come, with that of the row.
        n_values: The number of values that came before.
    """
    return n_points > FIRST_SLOTS and n_values >= FIRST_VALUES
