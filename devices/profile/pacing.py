"""Run arrivals (rows of a sensor) at a fixed rate; note when each was due, began and ended.

    due          due          due          due
    ─┬────┬──────┬────────────┬────┬───────┬──> time
     │    └ answer            │    │
     └ asleep ... woken late ─┘    └ from due: lateness of the timer and the arrival's work

Nothing spins: between two arrivals the process sleeps, so that clocks and idle states are those of
a stream at this rate. An arrival whose successor is already due before it can begin is skipped: a
sensor does not wait, and arrivals one after the other would not be this rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from edgefold.devices.machine.clocks import read_gpu_clock
from edgefold.devices.power.statistics import FloatArray
from edgefold.devices.profile.calls import TimedCall
from edgefold.devices.profile.latency import MIN_FOR_P99, Interval, quantile_interval
from edgefold.devices.sysfs import optional_number, optional_text
from edgefold.runtime.record_fields import Count, Hertz, Seconds

MAX_CLOCKS = 24  # in the record; a processor without steps shows a new one each time
COARSE_HZ = 100e6


@dataclass(frozen=True, slots=True)
class ArrivalQuantiles:
    """Holds quantiles of times in seconds, with 95 % intervals; null for too few times."""

    p50_s: Annotated[Seconds | None, "Median."]
    p90_s: Annotated[Seconds | None, "90 % quantile."]
    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100."]
    max_s: Annotated[Seconds | None, "Longest."]
    p50_interval_s: Annotated[Interval, "95 % interval of the median; null for too few."]
    p99_interval_s: Annotated[Interval, "95 % interval of the 99 % quantile; null for too few."]


@dataclass(frozen=True, slots=True)
class ArrivalTimes:
    """Holds how long arrivals at one rate waited for their answers, and how many were skipped."""

    n: Annotated[Count, "Arrivals."]
    n_late: Annotated[Count, "Answers that came when the next arrival was due."]
    n_skipped: Annotated[Count, "Arrivals that were skipped, because others were still worked on."]
    from_due: Annotated[ArrivalQuantiles, "From the moment an arrival was due to its answer."]
    from_wake: Annotated[ArrivalQuantiles, "From the process's waking to the answer."]
    timer: Annotated[ArrivalQuantiles, "How late the process woke, of arrivals that slept."]


@dataclass(frozen=True, slots=True)
class ClockCount:
    """Holds how often one clock frequency was read."""

    frequency_hz: Annotated[Hertz, "The clock; 0 is a GPU that is off."]
    n: Annotated[Count, "Readings."]


@dataclass(frozen=True, slots=True)
class ClockCounts:
    """Holds the clocks while the stream ran, slowest first; empty where the machine shows none."""

    cpu: Annotated[list[ClockCount], "Clocks of the cores while the stream ran."]
    gpu: Annotated[list[ClockCount], "Clocks of the GPU while the stream ran."]


class Pacer:
    """Runs one call at a fixed rate and notes when each arrival was due, began and ended.

    The arrays of times are allocated and resident from the start.

    Args:
        call: The call that each arrival makes.
        period_s: Seconds between two arrivals.
        n: Largest number of arrivals whose times are noted.
        clock: Returns seconds that never run backwards.
        sleep: Waits for a number of seconds.

    Attributes:
        n: Number of arrivals whose times were noted.
        n_skipped: Number of arrivals that were skipped while arrivals were noted.
        is_noting: Whether arrivals are noted; those that settle the machine are not.
    """

    def __init__(
        self,
        call: TimedCall,
        period_s: float,
        n: int,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ):
        self._call, self._period_s, self._clock, self._sleep = call, period_s, clock, sleep
        self._due_s, self._woke_s, self._done_s = (np.full(n, np.nan) for _ in range(3))
        self._slept = np.full(n, False)
        self.n = self.n_skipped = 0
        self.is_noting = False
        self._next_s = 0.0

    def begin(self) -> None:
        """Let the next arrival be due one period from now."""
        self._call.before()
        self._next_s = self._clock() + self._period_s

    def arrive(self) -> None:
        """Sleep until the next arrival is due, run its call and note its times."""
        due_s = self._next_s
        wait_s = due_s - self._clock()
        if wait_s > 0:
            self._sleep(wait_s)
        woke_s = self._clock()
        self._call.run()
        done_s = self._clock()
        self._call.before()
        next_s = due_s + self._period_s
        n_skipped = max(0, int((done_s - next_s) / self._period_s))
        self._next_s = next_s + n_skipped * self._period_s
        n = self.n
        if self.is_noting and n < len(self._due_s):
            self._due_s[n], self._woke_s[n], self._done_s[n] = due_s, woke_s, done_s
            self._slept[n] = wait_s > 0
            self.n_skipped += n_skipped
            self.n = n + 1

    def room_s(self, now_s: float) -> float:
        """Return how many seconds lie between `now_s` and the time when the next arrival is due."""
        return self._next_s - now_s

    def latency(self) -> ArrivalTimes:
        """Return the quantiles of the noted arrivals' times, and how many were late or skipped."""
        due_s, woke_s, done_s = (a[: self.n] for a in (self._due_s, self._woke_s, self._done_s))
        return ArrivalTimes(
            n=self.n,
            n_late=int((done_s - due_s > self._period_s).sum()),
            n_skipped=self.n_skipped,
            from_due=quantiles(done_s - due_s),
            from_wake=quantiles(done_s - woke_s),
            timer=quantiles((woke_s - due_s)[self._slept[: self.n]]),
        )


def quantiles(times_s: FloatArray) -> ArrivalQuantiles:
    """Return the quantiles of times (N,) in seconds, with the intervals of `quantile_interval`."""
    n = len(times_s)
    p50, p90, p99 = np.quantile(times_s, (0.5, 0.9, 0.99)).tolist() if n else (None,) * 3
    return ArrivalQuantiles(
        p50_s=p50,
        p90_s=p90,
        p99_s=p99 if n >= MIN_FOR_P99 else None,
        max_s=float(times_s.max()) if n else None,
        p50_interval_s=quantile_interval(times_s, 0.5),
        p99_interval_s=quantile_interval(times_s, 0.99) if n >= MIN_FOR_P99 else None,
    )


class ClockSamples:
    """Counts how often the core that runs this thread, and the GPU, were seen at each clock.

    Args:
        root: The folder that holds /proc and /sys.
    """

    def __init__(self, root: Path = Path("/")):
        self._stat = root / "proc/thread-self/stat"
        self._cores = root / "sys/devices/system/cpu"
        gpu = read_gpu_clock(root / "sys")
        self._gpu = root / f"sys/class/devfreq/{gpu.name}/cur_freq" if gpu else None
        self._cpu_hz: Counter[float] = Counter()
        self._gpu_hz: Counter[float] = Counter()

    def sample(self) -> None:
        """Read and count the clocks of core and GPU now; it takes some tens of microseconds."""
        fields = (optional_text(self._stat) or "").rpartition(")")[2].split()
        core = fields[36] if len(fields) > 36 else "0"  # `processor`, field 39 of proc(5)
        khz = optional_number(self._cores / f"cpu{core}/cpufreq/scaling_cur_freq")
        if khz:
            self._cpu_hz[khz * 1e3] += 1
        if self._gpu is not None:
            self._gpu_hz[optional_number(self._gpu) or 0.0] += 1

    def counts(self) -> ClockCounts:
        """Return how often each clock frequency was read, of the cores and of the GPU."""
        return ClockCounts(_counts(self._cpu_hz), _counts(self._gpu_hz))


def _counts(seen: Counter[float]) -> list[ClockCount]:
    if len(seen) > MAX_CLOCKS:
        coarse: Counter[float] = Counter()
        for clock_hz, n in seen.items():
            coarse[round(clock_hz / COARSE_HZ) * COARSE_HZ] += n
        seen = coarse
    return [ClockCount(clock_hz, n) for clock_hz, n in sorted(seen.items())]
