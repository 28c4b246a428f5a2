"""Time calls without disturbing them, and summarise the times.

Times are taken in integer nanoseconds and returned in seconds. Neighbouring calls are alike (a
governor, another program), so a quantile's interval comes from blocks of calls:

    calls in order │ block 1 │ block 2 │ ... │ block 20 │    share of each block below the quantile
                                                             ──> error e of the share q
    sorted times   ─────────────[ q - e ... q + e ]──────    the times there bound the quantile
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from edgefold.devices.power.statistics import student_95
from edgefold.runtime.record_fields import Count, Seconds, Shared

N_BLOCKS = 20  # of calls in order, for the intervals; each has two calls or more
MIN_BLOCKS = 5
MIN_FOR_P99 = 100  # calls: below that it would be the slowest one under another name
MAX_CORRELATION = 0.8  # of neighbouring blocks; beyond it the run is simply too short
BINS_PER_DECADE = 40
N_TIMELINE = 100  # points of a timeline, at most

TimeArray = NDArray[np.int64]
Interval = Annotated[
    tuple[Annotated[Seconds | None, "An end."], Annotated[Seconds | None, "An end."]] | None,
    "Both ends of a 95 % interval; an end is null where it lies outside of what was seen.",
    Shared("interval"),
]


class Timer:
    """Times up to `n` calls of a step into an array that is resident before the first call."""

    def __init__(self, n: int):
        self._taken_ns = np.full(n, -1, np.int64)
        self._n = 0

    def time(self, step: Callable[[], Any]) -> None:
        """Run a step and note how long it took."""
        clock = time.perf_counter_ns
        start = clock()
        step()
        self._taken_ns[self._n] = clock() - start
        self._n += 1

    @property
    def taken_ns(self) -> TimeArray:
        """Return the times of the calls so far, in their order, as nanoseconds (calls,)."""
        return self._taken_ns[: self._n]


@dataclass(frozen=True, slots=True)
class Latency:
    """Holds the times of one step: quantiles with intervals, late calls and a histogram."""

    name: Annotated[str, "Name of the step, as gates take it."]
    what: Annotated[str, "What was timed, in words."]
    n: Annotated[Count, "Calls."]
    n_points: Annotated[Count, "Points or targets of one call, per stream."]
    mean_s: Annotated[Seconds, "Mean."]
    p50_s: Annotated[Seconds, "Median."]
    p90_s: Annotated[Seconds, "90 % quantile."]
    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100 calls."]
    p999_s: Annotated[Seconds | None, "99.9 % quantile; null for fewer than 1,000 calls."]
    max_s: Annotated[Seconds, "Longest call."]
    p50_interval_s: Annotated[
        Interval,
        "95 % interval of the median over the calls of this run; null for fewer than ten calls.",
    ]
    p99_interval_s: Annotated[Interval, "95 % interval of the 99 % quantile; null where that is."]
    n_late: Annotated[Count, "Calls that took longer than the time between two arrivals."]
    edges_s: Annotated[
        list[Annotated[Seconds, "An edge."]],
        "Edges of the histogram's logarithmic bins, one more than bins.",
    ]
    counts: Annotated[list[Annotated[Count, "Calls."]], "Calls in each bin."]


def summarise(name: str, what: str, n_points: int, taken_ns: TimeArray, rate_hz: float) -> Latency:
    """Summarise a step's times (N,) in ns: quantiles, calls too slow for `rate_hz`, a histogram."""
    taken_s = np.maximum(taken_ns, 1) / 1e9
    p50, p90, p99, p999 = (float(q) for q in np.quantile(taken_s, (0.5, 0.9, 0.99, 0.999)))
    low = math.floor(math.log10(taken_s.min()) * BINS_PER_DECADE)
    high = math.ceil(math.log10(taken_s.max()) * BINS_PER_DECADE) + 1
    edges = 10.0 ** (np.arange(low, high + 1) / BINS_PER_DECADE)
    counts, _ = np.histogram(taken_s, edges)
    return Latency(
        name=name,
        what=what,
        n=len(taken_s),
        n_points=n_points,
        mean_s=float(taken_s.mean()),
        p50_s=p50,
        p90_s=p90,
        p99_s=p99 if len(taken_s) >= MIN_FOR_P99 else None,
        p999_s=p999 if len(taken_s) >= 1000 else None,
        max_s=float(taken_s.max()),
        p50_interval_s=quantile_interval(taken_s, 0.5),
        p99_interval_s=quantile_interval(taken_s, 0.99) if len(taken_s) >= MIN_FOR_P99 else None,
        n_late=int((taken_s > 1 / rate_hz).sum()),
        edges_s=edges.tolist(),
        counts=counts.tolist(),
    )


def quantile_interval(taken_s: NDArray[np.float64], share: float) -> Interval:
    """Return the 95 % interval of a quantile of correlated times.

    Woodruff's interval (J. Am. Stat. Assoc. 47, 1952): the error of the share of calls below the
    quantile is turned into times. That error comes from the means of blocks, as Heidelberger and
    Lewis do for simulations (Operations Research 32, 1984); what likeness is left between
    neighbouring blocks is corrected for as in a first-order process. The error is never less than
    that of independent calls.

    Args:
        taken_s: Times in the order of the calls.
        share: Share of the times that lie below the quantile, such as 0.99.

    Returns:
        Both ends in seconds; None for an end outside of the times seen. None for fewer than ten
        calls.
    """
    n_blocks = min(N_BLOCKS, len(taken_s) // 2)
    if n_blocks < MIN_BLOCKS:
        return None
    below = taken_s <= np.quantile(taken_s, share)
    means = np.array([block.mean() for block in np.array_split(below, n_blocks)])
    deviations = means - means.mean()
    squares = float(deviations @ deviations)
    # Deviations from their own mean look less alike than the calls are: the bias is 1/n.
    alike = float(deviations[1:] @ deviations[:-1]) / squares + 1 / n_blocks if squares else 0.0
    left = min(alike, MAX_CORRELATION) if alike > 1 / math.sqrt(n_blocks) else 0.0
    variance = squares / (n_blocks - 1) / n_blocks * (1 + left) / (1 - left)
    error = student_95(n_blocks - 1) * math.sqrt(max(variance, share * (1 - share) / len(taken_s)))
    low, high = share - error, share + error
    return (
        float(np.quantile(taken_s, low)) if low > 0 else None,
        float(np.quantile(taken_s, high)) if high < 1 else None,
    )


@dataclass(frozen=True, slots=True)
class Timeline:
    """Holds quantiles of the times of updates (a filter's steps) in up to 100 blocks of calls."""

    calls: Annotated[list[Annotated[Count, "Calls."]], "Number of the last call of each block."]
    p50_s: Annotated[list[Annotated[Seconds, "A median."]], "Median of each block."]
    p99_s: Annotated[list[Annotated[Seconds, "A quantile."]], "99 % quantile of each block."]
    max_s: Annotated[list[Annotated[Seconds, "A time."]], "Longest call of each block."]


def timeline(taken_ns: TimeArray) -> Timeline:
    """Cut a step's times (N,) in ns into up to `N_TIMELINE` blocks; return quantiles of each."""
    blocks = np.array_split(taken_ns / 1e9, min(N_TIMELINE, len(taken_ns)))
    p50, p99 = np.array([np.quantile(block, (0.5, 0.99)) for block in blocks]).T.tolist()
    return Timeline(
        calls=np.cumsum([len(block) for block in blocks]).tolist(),
        p50_s=p50,
        p99_s=p99,
        max_s=[float(block.max()) for block in blocks],
    )
