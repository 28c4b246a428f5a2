"""Count the work of a search for seasons, which the C of a sensor does once in 256 rows.

The model's graph does not have it. With n values that are kept, `edgefold.runtime.sensors.clock`
correlates them with themselves by Fourier transforms:

    transform    10 h log2(h) + 24 h operations for both of a correlation, of h complex numbers
    values       in single precision 16 operations on each value in a pass, in double 8
    sort         2 n log2(n)

Of each of three means of neighbouring slots, values are correlated three times, and five times
where slots are missing. A first search is in 48 values; the largest one is counted here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from edgefold.runtime.sensors.clock.season_search import MEANS, TURNS
from edgefold.runtime.sensors.clock.seasons import LEAST_VALUES

CORRELATIONS = (3, 5)
"""How often values are correlated for each mean: without a missing slot, and with some."""
PASSES = 3
"""How often the values of each mean are made."""
SINGLE, DOUBLE = 16, 8
"""Operations of a pass on each value."""


class SearchWork(NamedTuple):
    """Holds the operations of a search for seasons.

    Attributes:
        least: Operations in single precision if no slot is missing.
        most: Operations in single precision if slots are missing.
        double: Operations in double precision.
    """

    least: float
    most: float
    double: float


def search_work(longest_season: int) -> SearchWork:
    """Return the operations of a search in all values that are kept.

    Args:
        longest_season: The length of the longest season in slots.
    """
    n = max(math.ceil(TURNS * longest_season) + 1, LEAST_VALUES)
    half = 1 << (n + 2 * (int(n / TURNS) + 1)).bit_length() - 1
    correlation = 10 * half * math.log2(half) + 24 * half
    passes = len(MEANS) * PASSES * n
    single = SINGLE * passes + 2 * n * math.log2(n)
    least, most = (len(MEANS) * n_times * correlation + single for n_times in CORRELATIONS)
    return SearchWork(least, most, DOUBLE * passes)
