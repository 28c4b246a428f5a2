"""Find the rate of arrivals from which one backend needs less power than another, and its error.

    power of B less A
      +  │ ┬
         │ ┼──┬
      0  ┼─┴──┼──────┬──────> rate       A needs less where the whole interval lies above 0, B
         │    ┴──────┼──┬                where it lies below, and undecided where it holds 0
      -  │           ┴  ┼
                └ low ┘ high

Between two measured rates the difference is taken as a straight line, which is exact where power is
a fixed part and a number of joules per arrival; its interval is Fieller's, from those of both ends.
That does not hold where a governor changes clocks in between, so the measured rates around the
crossing are reported too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from edgefold.runtime.record_fields import Hertz, Watts, one_of


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """Holds the power above idle of one backend at one rate of arrivals.

    Attributes:
        rate_hz: Arrivals a second.
        power_w: Mean power above idle, in watts.
        interval_95_w: Half the width of the 95 % interval of the power, in watts.
    """

    rate_hz: float
    power_w: float
    interval_95_w: float


@dataclass(frozen=True, slots=True)
class PowerDifference:
    """Holds how far the powers of backends `a` and `b` lie apart at one rate of arrivals."""

    rate_hz: Annotated[Hertz, "Arrivals a second."]
    power_w: Annotated[Watts, "Power of b less that of a."]
    interval_95_w: Annotated[Watts, "Half the width of its interval."]
    less: Annotated[str | None, "Which needs less; null where the interval holds 0."]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Reports which of two backends needs less power at which rates of arrivals."""

    a: Annotated[str, "Label of the one."]
    b: Annotated[str, "Label of the other."]
    verdict: Annotated[
        str,
        one_of("crossing", "one", "part", "mixed", "unclear", "none"),
        "crossing: one below a rate, the other above it; one: the same at every measured rate; "
        "part: the same wherever it can be decided; mixed: it changes more than once; "
        "unclear: no rate decides it; none: no figures.",
    ]
    differences: Annotated[
        tuple[PowerDifference, ...], "At each rate that both were measured at, rising."
    ] = ()
    less: Annotated[
        str | None, "Which needs less: from the crossing on, or wherever it can be decided."
    ] = None
    rate_hz: Annotated[Hertz | None, "The crossing."] = None
    low_hz: Annotated[Hertz | None, "Lower end of its 95 % interval."] = None
    high_hz: Annotated[Hertz | None, "Upper end."] = None
    after_hz: Annotated[
        Hertz | None, "Highest measured rate where the other one still needs less."
    ] = None
    until_hz: Annotated[Hertz | None, "Lowest measured rate from which on `less` needs less."] = (
        None
    )
    reason: Annotated[str | None, "Why there are no figures."] = None


def find_crossing(
    a: str, b: str, of_a: Sequence[PowerPoint], of_b: Sequence[PowerPoint]
) -> Crossing:
    """Compare the powers of two backends, labelled `a` and `b`, at the rates that both have."""
    powers = {point.rate_hz: point for point in of_a}
    differences = tuple(
        _difference(a, b, powers[point.rate_hz], point)
        for point in sorted(of_b, key=lambda point: point.rate_hz)
        if point.rate_hz in powers
    )
    if not differences:
        return Crossing(a, b, "none", reason="no rate has figures of both")
    decided = [d for d in differences if d.less is not None]
    turns = [(before, after) for before, after in pairwise(decided) if before.less != after.less]
    if not decided:
        return Crossing(a, b, "unclear", differences)
    if not turns:
        verdict = "one" if len(decided) == len(differences) else "part"
        return Crossing(a, b, verdict, differences, decided[0].less)
    if len(turns) > 1:
        return Crossing(a, b, "mixed", differences)
    before, after = turns[0]
    sign = math.copysign(1.0, before.power_w)
    line = [
        (d.rate_hz, sign * d.power_w, d.interval_95_w)
        for d in differences
        if before.rate_hz <= d.rate_hz <= after.rate_hz
    ]
    backwards = [(-rate_hz, -power_w, half_w) for rate_hz, power_w, half_w in reversed(line)]
    return Crossing(
        a,
        b,
        "crossing",
        differences,
        after.less,
        _first_zero(line, 0.0),
        _first_zero(line, 1.0),
        -_first_zero(backwards, 1.0),
        before.rate_hz,
        after.rate_hz,
    )


def _difference(a: str, b: str, of_a: PowerPoint, of_b: PowerPoint) -> PowerDifference:
    power_w = of_b.power_w - of_a.power_w
    interval_w = math.hypot(of_a.interval_95_w, of_b.interval_95_w)
    less = None if abs(power_w) <= interval_w else (a if power_w > 0 else b)
    return PowerDifference(of_a.rate_hz, power_w, interval_w, less)


def _first_zero(line: Sequence[tuple[float, float, float]], share: float) -> float:
    """Return the first rate in Hz at which difference - share * half-width falls to 0.

    Between two points with independent errors the half-width is the root of the sum of the squares
    of their weighted ones, so that the curve bends down: it meets 0 once at most.

    Args:
        line: Points (rate in Hz, difference in W, half-width of its 95 % interval in W).
        share: 0 for the crossing of the differences; 1 for that of the intervals' lower ends.
    """
    for (left, above, half_above), (right, below, half_below) in pairwise(line):
        if above - share * half_above <= 0 or below - share * half_below > 0:
            continue
        low, high = 0.0, 1.0
        for _ in range(50):  # to the last bit
            at = (low + high) / 2
            half = math.hypot((1 - at) * half_above, at * half_below)
            if (1 - at) * above + at * below - share * half > 0:
                low = at
            else:
                high = at
        return left + (right - left) * high
    raise AssertionError("the line does not fall through 0")
