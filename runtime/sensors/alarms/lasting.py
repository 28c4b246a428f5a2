"""Find what lasts: a drift, a changed rhythm, a sensor that has become quiet or noisy.

    drift    the values leave their usual level step by step, as a leak or a fouled probe makes them
    rhythm   a value says less about the next one than it did: phi, the correlation of neighbours,
             has become smaller
    quiet    the values move much less than usual
    noisy    they move much more

The forecast learns a slow change within some rows, so its errors hide it. A slow model stands
beside it, whose memory is some thousand rows: the value, less the mean of the last seasons at its
phase, follows an autoregression of order 1 (AR(1)).

    d = value - usual - level,  e = d - phi * d of the row before,  z = e / mean size of e

Seven sums of log likelihood ratios, of one change each against none, never fall below zero (CUSUM,
Page 1954). From zero to its return a sum makes an excursion. How often excursions begin, and how
high they rise, is learned from the sensor's own excursions, so that neither z must be normal nor
neighbours independent. An alarm is a sum of a height that excursions reach in fewer rows than the
allowed share, and that exceeds all earlier ones by far. The law of heights is exponential, and its
mean is known from few of them, so that the height of the next one follows a Lomax law (the
predictive law of a Gamma prior).

    assumed      excursions are alike over the sensor's life, and high ones follow the same law
    if not so    the guard of `alarms` still keeps the number of alarms near the stated rate
"""

from __future__ import annotations

import math
from typing import NamedTuple

from edgefold.runtime.kept_numbers import KeptNumbers, filled, replaced
from edgefold.runtime.sensors.alarms.verdict import Event

SIGNS: tuple[Event, ...] = ("drift", "drift", "drift", "drift", "rhythm", "quiet", "noisy")
"""The event that each sum speaks for; the drifts are upwards and downwards, slow and fast."""
N_SIGNS, N_DRIFTS = len(SIGNS), SIGNS.count("drift")
SLOW, FAST = 0.25, 0.8
"""The means of z under the two drifts."""
LESS_PHI = 0.3
"""How much smaller phi is under a changed rhythm."""
QUIET, NOISY = 0.5, 2.0
"""The factors on the size of z for a sensor that is quiet or noisy."""
CLIP_SCORE = 3.0
"""z, and d in the unit of z, count as at most this many."""
MEMORY, N_MODEL = 5000.0, 60
"""The most rows over which the slow model is averaged, and the rows before its first z."""
CLIP = 4.0
"""A row counts as at most this many usual sizes where the slow model learns from it."""
MOST_PHI = 0.99
MEAN_TO_STD = 1.2533
"""A normal's standard deviation in its mean absolute errors, sqrt(pi / 2)."""
FALL, LONGEST = 3.0, 300
"""An excursion ends when it has fallen this much from its top, or after this many rows."""
BASE = 2.0
"""Excursions that stay below this height are not counted."""
N_PRIOR, FIRST_MEAN, FIRST_ROWS = 3.0, 1.0, 300.0
"""The first guess of the excursions' law is worth `N_PRIOR` of them in `FIRST_ROWS` rows, with this
mean of their heights above `BASE`."""
MOST_ROWS, FADING = 50_000.0, 0.8
"""When so many rows are counted, they and their excursions count half from then on; and the highest
excursion of all is taken as lower by this factor."""
CLIP_HEIGHT, CLIP_ALARMED = 30.0, 3.0
"""The law learns from a height as if it were at most the first many means, and if it was alarmed at
most the second many times the height at the alarm."""
ABOVE, YOUNG = 1.2, 1300.0
"""An alarmed sum is at least ABOVE + YOUNG / rows times as high as all excursions before: where
rows are few, the highest one says less."""
N_FIRST = 2300
"""The rows of a sensor before an excursion begins that may be alarmed."""
LARGEST = 1e100
SLOW_COST, FAST_COST, RHYTHM_COST = 0.5 * SLOW**2, 0.5 * FAST**2, 0.5 * LESS_PHI**2
QUIET_GAIN, QUIET_SLOPE = -math.log(QUIET), 0.5 * (QUIET**-2 - 1.0)
NOISY_COST, NOISY_SLOPE = math.log(NOISY), 0.5 * (1.0 - NOISY**-2)
"""Parts of the log likelihood ratios of z, a normal of mean 0 and deviation 1 without a change."""


class Excursion(NamedTuple):
    """Describes a sum that is higher than chance allows.

    Attributes:
        sign: The place of its event in `SIGNS`.
        event: The name of the event.
        n_since: How many rows before this one the excursion began.
        size: The change of a drift's value since then, in the value's unit; the change of phi; or
            the size of z of a quiet or noisy sensor, which is usually 1.
    """

    sign: int
    event: Event
    n_since: int
    size: float


class Lasting(KeptNumbers):
    """Follows the slow model and the sums of one sensor, in a memory of fixed size.

    Attributes:
        n: The number of rows so far.
        n_found: The number of excursions that are higher than chance allows at the newest row.
    """

    KEPT = (
        *("n", "_season", "_level", "_n_level", "_n_model", "_variance", "_product", "_usual_size"),
        *("_before", "_follows", "_waits", "_rows", "_squares", "_products"),
        *("_sums", "_tops", "_begun", "_marks", "_opened", "_counts", "_heights", "_highest"),
    )

    n: int = 0
    _season: int = 0
    # The slow model: its level and the rows that it is the mean of; the rows that the variance of
    # d, its product with d of the row before, and the size of e are means of.
    _level: float = 0.0
    _n_level: float = 0.0
    _n_model: float = 0.0
    _variance: float = 0.0
    _product: float = 0.0
    _usual_size: float = 0.0
    _before: float = 0.0  # d of the row before
    _follows: int = 0  # whether this row follows it
    _waits: int = 0  # rows without a score, while the slow model learns
    _squares: float = 0.0  # sum of all z^2
    _products: float = 0.0  # sum of all z * d of the row before
    # The excursion of each sum: its height now, its top, the row at which it began, what its size
    # is measured from, and the height at which it was alarmed (0 if it was not).
    _sums: list[float] = filled(0.0, N_SIGNS)
    _tops: list[float] = filled(0.0, N_SIGNS)
    _begun: list[float] = filled(0.0, N_SIGNS)
    _marks: list[float] = filled(0.0, N_SIGNS)
    _opened: list[float] = filled(0.0, N_SIGNS)
    # The law of the excursions: rows; number and heights above BASE; the highest.
    _rows: float = FIRST_ROWS
    _counts: list[float] = filled(N_PRIOR, N_SIGNS)
    _heights: list[float] = filled(N_PRIOR * FIRST_MEAN, N_SIGNS)
    _highest: list[float] = filled(0.0, N_SIGNS)
    # The excursions that are too high at the newest row.
    n_found: int = 0
    _signs: list[int] = filled(0, N_SIGNS)
    _n_since: list[int] = filled(0, N_SIGNS)
    _sizes: list[float] = filled(0.0, N_SIGNS)

    def see(
        self, value: float, usual: float, season: int, n_missing: int, log_allowed: float
    ) -> int:
        """Learn a row, and return the number of excursions that are higher than chance allows.

        Args:
            value: The measured value.
            usual: The mean of the last seasons at its phase; it is not read without a season.
            season: The season's length in slots; 0 for none.
            n_missing: The number of missing rows just before this one.
            log_allowed: The logarithm of the share of rows in which chance may bring a sum so high.
        """
        self.n += 1
        self.n_found = 0
        if season != self._season:
            self._season = season
            self._forget()
        apart = value - usual if season else value
        if not -LARGEST < apart < LARGEST:
            self._follows = 0
            return 0
        away = apart - self._level
        most = CLIP * math.sqrt(self._variance) if self._n_model >= N_MODEL else math.inf
        bounded = away if -most <= away <= most else math.copysign(most, away)
        if self._follows and n_missing == 0:
            before, size = self._before, self._usual_size
            phi = self._product / self._variance if self._variance > 0.0 else 0.0
            if not 0.0 <= phi <= MOST_PHI:
                phi = MOST_PHI if phi > 0.0 else 0.0
            error = away - phi * before
            if self._waits:
                self._waits -= 1
            elif size > 0.0 and most < math.inf:
                self._scored(error / size, before / size, log_allowed)
            if not -most <= before <= most:
                before = math.copysign(most, before)
            self._learn(bounded, before, error)
        n = self._n_level
        self._level += (bounded if n else away) / (n + 1.0)
        self._n_level = n + 1.0 if n < MEMORY else MEMORY
        self._before, self._follows = apart - self._level, 1
        return self.n_found

    def found(self, at: int) -> Excursion:
        """Return one of the `n_found` excursions by its place; they are sorted by their signs."""
        sign = self._signs[at]
        return Excursion(sign, SIGNS[sign], self._n_since[at], self._sizes[at])

    def of_event(self, event: Event) -> Excursion:
        """Return the first excursion of this event; without one, the first of all."""
        for at in range(self.n_found):
            if SIGNS[self._signs[at]] == event:
                return self.found(at)
        return self.found(0)

    def forget_level(self) -> None:
        """Learn the level again from the next rows on, as after a shift that was alarmed."""
        self._n_level, self._follows = 0.0, 0
        self._restart()

    def _forget(self) -> None:
        """Learn the slow model again: the season has changed, or what lasts has become usual."""
        self._n_model = 0.0
        self.forget_level()

    def _restart(self) -> None:
        """End all excursions without counting them, and begin no other for `LONGEST` rows."""
        self._sums = [0.0 for _ in range(N_SIGNS)]
        self._tops = [0.0 for _ in range(N_SIGNS)]
        self._opened = [0.0 for _ in range(N_SIGNS)]
        self._waits = LONGEST

    def _learn(self, away: float, before: float, error: float) -> None:
        """Let the slow model learn from d of a row and of the one before, both clipped, and e."""
        n, size = self._n_model, MEAN_TO_STD * abs(error)
        if n >= N_MODEL and size > CLIP * self._usual_size > 0.0:
            size = CLIP * self._usual_size
        rate = 1.0 / (n + 1.0)
        self._variance += rate * (away * away - self._variance)
        self._product += rate * (away * before - self._product)
        self._usual_size += rate * (size - self._usual_size)
        self._n_model = n + 1.0 if n < MEMORY else MEMORY

    # The sums ------------------------------------------------------------------------------------

    def _scored(self, score: float, before: float, log_allowed: float) -> None:
        """Add a row's log likelihood ratios to the sums, and find those that are too high.

        Args:
            score: z of the row.
            before: d of the row before, in the unit of z.
            log_allowed: As for `see`.
        """
        self._rows += 1.0
        if not -CLIP_SCORE <= score <= CLIP_SCORE:
            score = math.copysign(CLIP_SCORE, score)
        if not -CLIP_SCORE <= before <= CLIP_SCORE:
            before = math.copysign(CLIP_SCORE, before)
        square, product = score * score, score * before
        slow, fast = SLOW * score, FAST * score
        earlier = [*self._sums]
        up = earlier[0] + (slow - SLOW_COST)
        down = earlier[1] - (slow + SLOW_COST)
        fast_up = earlier[2] + (fast - FAST_COST)
        fast_down = earlier[3] - (fast + FAST_COST)
        rhythm = earlier[4] - (LESS_PHI * product + RHYTHM_COST * before * before)
        quiet = earlier[5] + (QUIET_GAIN - QUIET_SLOPE * square)
        noisy = earlier[6] + (NOISY_SLOPE * square - NOISY_COST)
        sums = [
            up if up > 0.0 else 0.0,
            down if down > 0.0 else 0.0,
            fast_up if fast_up > 0.0 else 0.0,
            fast_down if fast_down > 0.0 else 0.0,
            rhythm if rhythm > 0.0 else 0.0,
            quiet if quiet > 0.0 else 0.0,
            noisy if noisy > 0.0 else 0.0,
        ]
        self._sums = sums
        has_become_usual = False
        for sign, height in enumerate(sums):
            if height > 0.0:
                if earlier[sign] == 0.0:
                    self._begun = replaced(self._begun, sign, self.n - 1.0)
                    self._marks = replaced(self._marks, sign, self._measure(sign))
                elif height > BASE or self._tops[sign] > 0.0:
                    has_become_usual = self._follow(sign, height, log_allowed) or has_become_usual
            elif self._tops[sign] > 0.0:
                self._end(sign)
        self._squares += square
        self._products += product
        if has_become_usual:
            self._forget()

    def _measure(self, sign: int) -> float:
        """Return the number whose change gives the size of an excursion of a sum."""
        if sign < N_DRIFTS:
            return self._before + self._level
        return self._products if SIGNS[sign] == "rhythm" else self._squares

    def _follow(self, sign: int, height: float, log_allowed: float) -> bool:
        """Follow an excursion that has risen above `BASE`, and note it if it is rare.

        Returns:
            Whether it was rare and has lasted for so long that it is usual now.
        """
        if height > self._tops[sign]:
            self._tops = replaced(self._tops, sign, height)
        n_since = self.n - 1 - int(self._begun[sign])
        is_alarmed = self._opened[sign] > 0.0
        above = ABOVE + YOUNG / self._rows
        if not is_alarmed and height > above * self._highest[sign]:
            is_alarmed = self.log_rarity(sign, height) < log_allowed
            if is_alarmed:
                self._opened = replaced(self._opened, sign, height)
        if is_alarmed:
            self._note(sign)
        if n_since >= LONGEST or height < self._tops[sign] - FALL:
            self._end(sign)
            self._sums = replaced(self._sums, sign, 0.0)
        return is_alarmed and n_since >= LONGEST

    def log_rarity(self, sign: int, height: float) -> float:
        """Return the logarithm of the excursions per row that rise at least to a height."""
        count, total = self._counts[sign], self._heights[sign]
        return math.log(count / self._rows) - count * math.log1p((height - BASE) / total)

    def _note(self, sign: int) -> None:
        """Note an excursion with its beginning, and its size up to the row before this one.

        The higher one of the slow and the fast sum of a drift dates it.
        """
        of = sign
        if sign < N_DRIFTS and self._sums[(sign + 2) % N_DRIFTS] > self._sums[sign]:
            of = (sign + 2) % N_DRIFTS
        n_since = self.n - 1 - int(self._begun[of])
        size = self._measure(of) - self._marks[of]
        if sign >= N_DRIFTS:
            size /= max(n_since, 1)
            if SIGNS[sign] != "rhythm":
                size = math.sqrt(size)
        at = self.n_found
        self._signs = replaced(self._signs, at, sign)
        self._n_since = replaced(self._n_since, at, n_since)
        self._sizes = replaced(self._sizes, at, size)
        self.n_found = at + 1

    def _end(self, sign: int) -> None:
        """End an excursion that has risen above `BASE`, and learn from it."""
        top, alarmed, count = self._tops[sign], self._opened[sign], self._counts[sign] + 1.0
        if alarmed > 0.0:
            top = min(top, CLIP_ALARMED * alarmed)
            self._opened = replaced(self._opened, sign, 0.0)
        total = self._heights[sign]
        above = min(top - BASE, CLIP_HEIGHT * total / count)
        self._tops = replaced(self._tops, sign, 0.0)
        self._counts = replaced(self._counts, sign, count)
        self._heights = replaced(self._heights, sign, total + above)
        self._highest = replaced(self._highest, sign, max(self._highest[sign], top))
        if self._rows > MOST_ROWS:
            self._rows *= 0.5
            self._counts = [max(0.5 * n, N_PRIOR) for n in self._counts]
            self._heights = [max(0.5 * h, N_PRIOR * FIRST_MEAN) for h in self._heights]
            self._highest = [FADING * height for height in self._highest]
