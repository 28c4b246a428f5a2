"""Measure the energy of repeated calls above the machine's idle power, and its uncertainty.

    idle()            work()                idle()            work()                idle()
    ──┬─────────────┬───┬─────────────────┬───┬─────────────┬───┬─────────────────┬───┬──> time
      │ a0, nothing │   │ W1, T1: n calls │   │ a1, nothing │   │ W2, T2: n calls │   │ a2
      │ runs        │   │ back to back    │   │ runs        │   │                 │   │

    net energy = sum over k of W_k - T_k (a_(k-1) + a_k) / 2, divided by the calls

Idle power is measured before and after each stretch of work, so that a slow drift (temperature, the
fan) cancels; more rounds make the figure more certain. The square of the standard error is a sum:

    sampling      the long-run variance of power during work, from means of blocks that are longer
                  than the noise's memory (`uncertainty`): sensor noise and whatever else ran
    idle          the same of the idle windows, through their weight in the sum
    drift         (T_k (a_k - a_(k-1)))^2 / 12: where between the two the idle power really was
    quantisation  the sensor's step: rounding at both ends of a counter's window; for power, what
                  noise does not average away
    edges         a value may be one period old when a window opens or closes, which matters by the
                  difference of power there: (P_work - P_idle)^2 period^2 / 6 a window

The interval is the 95 % one, by Student's t with the blocks' degrees of freedom. It says nothing of
the sensor's own calibration (shunts are 1 % parts), nor of what lies outside the rails. Windows too
short for the sensor are refused. Net energy may come out negative near idle; it is returned as it
is, because clamping would bias a mean. Events shorter than a sample are counted and reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefold.devices.power import statistics
from edgefold.devices.power.sampler import Sampler, Trace
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.runtime.errors import MeterError

MIN_SAMPLES = 50  # of a window: the blocks need them, and an edge is then under 2 % of the window
MIN_STEPS = 100  # of a counter, for the same reason
MAX_MISSED = 0.25  # of a window's samples of power; a counter loses nothing between two reads
WARN_MISSED = 0.05  # beyond it the record warns: samples come when the processor is free
SETTLE_S = 0.3  # regulators and clocks come to rest before a window opens
MIN_LONE = 0.1  # of the power above idle: an excursion below that changes nothing
MIN_BLOCK_S = 1e-3  # calls between two looks at the clock


@dataclass(frozen=True, slots=True)
class Window:
    """A window of idleness (no calls) or of work."""

    start_s: float
    end_s: float
    n_calls: int


@dataclass(frozen=True, slots=True)
class EnergyFigure:
    """The energy of one call above idle, from counters and sampled power alike.

    Attributes:
        energy_j: Of one call.
        standard_error_j: Of energy_j; `parts_j` are its parts, which add up in squares.
        interval_95_j: Half the width of the 95 % interval.
        n_calls, duration_s: Calls in the windows of work, and their length.
        call_s: Time of one call.
        power_w: Mean during work; idle_power_w the mean of all idle windows.
        n_samples, n_missed: In the windows of work.
        period_s: Of the samples.
        sensor_step: In W for power, in J for a counter, as `sensor_step_unit` says; where the
            driver does not tell it (`sensor_step_known`), the smallest difference seen in idleness.
        n_lone_samples: Samples that stood out from both neighbours.
        unresolved: Sentences on what is shorter than the sampling period, or was missed.
    """

    energy_j: float
    standard_error_j: float
    interval_95_j: float
    parts_j: dict[str, float]
    n_calls: int
    n_rounds: int
    duration_s: float
    call_s: float
    power_w: float
    idle_power_w: float
    idle_before_w: float
    idle_after_w: float
    n_samples: int
    n_missed: int
    period_s: float
    sensor_step: float
    sensor_step_unit: str
    sensor_step_known: bool
    n_lone_samples: int
    unresolved: tuple[str, ...]

    @property
    def relative_error(self) -> float:
        """Standard error over energy."""
        return self.standard_error_j / abs(self.energy_j) if self.energy_j else math.inf


@dataclass(frozen=True, slots=True)
class _Cut:
    """The samples of one window."""

    times_s: statistics.FloatArray
    readings: statistics.FloatArray
    energy_j: statistics.FloatArray
    n_missed: int

    @property
    def duration_s(self) -> float:
        return float(self.times_s[-1] - self.times_s[0])

    @property
    def total_j(self) -> float:
        return float(self.energy_j[-1] - self.energy_j[0])

    @property
    def power_w(self) -> float:
        return self.total_j / self.duration_s


class EnergyMeter:
    """Measure windows of idleness and work with one sensor.

    The caller runs `sampler` meanwhile: in a `SamplerThread`, or on a test's simulated clock.

    Args:
        sensor: Where power or energy is read.
        clock: Seconds that never run backwards, such as time.monotonic.
        period_s: Time between samples; None for the shortest that serves the sensor.
    """

    def __init__(
        self,
        sensor: PowerSensor | EnergySensor,
        clock: Callable[[], float],
        period_s: float | None = None,
    ) -> None:
        self.sampler = Sampler(sensor, clock, period_s)
        self.windows: list[Window] = []
        self._clock = clock

    @property
    def sensor(self) -> PowerSensor | EnergySensor:
        """The sensor in use."""
        return self.sampler.sensor

    @property
    def min_window_s(self) -> float:
        """The shortest window that is not refused."""
        return MIN_SAMPLES * self.sampler.period_s

    def idle(self, sleep: Callable[[float], None], duration_s: float) -> None:
        """Measure while the caller's process does nothing but `sleep`."""
        sleep(SETTLE_S)
        start_s = self._mark()
        sleep(duration_s)
        self.windows.append(Window(start_s, self._mark(), 0))

    def work(self, step: Callable[[], object], duration_s: float) -> None:
        """Measure while `step` is called again and again."""
        block = 1
        settled_s = self._clock() + SETTLE_S
        while (before_s := self._clock()) < settled_s:
            for _ in range(block):
                step()
            if self._clock() - before_s < MIN_BLOCK_S:
                block *= 2
        n_calls = 0
        start_s = self._mark()
        while self._clock() < start_s + duration_s:
            for _ in range(block):
                step()
            n_calls += block
        self.windows.append(Window(start_s, self._mark(), n_calls))

    def _mark(self) -> float:
        """Sample at a window's edge, so that the trapezoids of the window end there."""
        self.sampler.sample()
        return self._clock()

    def figure(self, first: int = 0) -> EnergyFigure:
        """Return the energy of one call over the windows from `first` on: idle, work, idle, ...

        Raises:
            MeterError: The sensor failed meanwhile, or a window is too short for it.
        """
        windows = self.windows[first:]
        if len(windows) < 3 or len(windows) % 2 == 0 or any(w.n_calls for w in windows[::2]):
            raise MeterError(
                "Energy needs windows of idle(), work(), idle() in turn, idle ones at both ends."
            )
        trace = self.sampler.trace()
        cuts = [self._cut(trace, window) for window in windows]
        self._require_change(cuts)
        return _figure(self.sampler, cuts[::2], cuts[1::2], sum(w.n_calls for w in windows))

    def _cut(self, trace: Trace, window: Window) -> _Cut:
        sampler, name = self.sampler, self.sensor.name
        # The samples at the edges were taken just before `_mark` looked at the clock.
        low = int(np.searchsorted(trace.times_s, window.start_s, "right")) - 1
        high = int(np.searchsorted(trace.times_s, window.end_s, "right"))
        within = (trace.missed_s > window.start_s) & (trace.missed_s <= window.end_s)
        part = slice(max(low, 0), high)
        cut = _Cut(
            trace.times_s[part], trace.readings[part], trace.energy_j[part], int(within.sum())
        )
        duration_s = window.end_s - window.start_s
        if duration_s < self.min_window_s:
            raise MeterError(
                f"A window of {duration_s:.3g} s is too short for {name}, which is sampled every "
                f"{sampler.period_s:.3g} s; measure for {self.min_window_s:.3g} s or more."
            )
        most = math.inf if sampler.counts else MAX_MISSED * duration_s / sampler.period_s
        if cut.n_missed > most or len(cut.times_s) < 3:
            raise MeterError(
                f"{cut.n_missed} samples of {name} were missed in {duration_s:.3g} s: the machine "
                "was too busy to read it. Leave a processor free, or measure again."
            )
        self._require_signal(cut)
        return cut

    def _require_signal(self, cut: _Cut) -> None:
        sensor = self.sensor
        if isinstance(sensor, EnergySensor):
            if cut.total_j < MIN_STEPS * sensor.step_j:
                raise MeterError(
                    f"{sensor.name} moved by {cut.total_j:.3g} J in {cut.duration_s:.3g} s, fewer "
                    f"than {MIN_STEPS} of its steps of {sensor.step_j:.3g} J; it is too coarse "
                    "for this window, or not connected on this machine."
                )
        elif not cut.readings.any():
            raise MeterError(
                f"{sensor.name} read 0 W throughout; it is not connected on this machine."
            )

    def _require_change(self, cuts: list[_Cut]) -> None:
        """Refuse a power that never changed, if the sensor's step is unknown."""
        sensor, first_w = self.sensor, cuts[0].readings[0]
        if isinstance(sensor, EnergySensor) or sensor.step_w is not None:
            return
        if all((cut.readings == first_w).all() for cut in cuts):
            raise MeterError(
                f"{sensor.name} read {first_w:.4g} W throughout, also during work: it does not "
                "change or is too coarse. Measure longer steps, or with another meter."
            )


def _figure(sampler: Sampler, idle: list[_Cut], work: list[_Cut], n_calls: int) -> EnergyFigure:
    """Compute the module's formula and its errors."""
    durations = np.array([cut.duration_s for cut in work])
    idle_w = np.array([cut.power_w for cut in idle])
    # The weight of each idle window: half the work before it and half the work after it.
    weights_s = (np.append(durations, 0.0) + np.insert(durations, 0, 0.0)) / 2
    net_j = sum(cut.total_j for cut in work) - float(weights_s @ idle_w)
    parts2, freedom = _errors(sampler, idle, work, weights_s)
    variance = sum(parts2.values())
    error_j = math.sqrt(variance) / n_calls
    duration_s = float(durations.sum())
    call_s = duration_s / n_calls
    n_lone = _count_lone(sampler, idle, work)
    n_samples, n_missed = sum(len(c.times_s) for c in work), sum(c.n_missed for c in work)
    step, unit, known = _step(sampler, idle, work)
    return EnergyFigure(
        energy_j=net_j / n_calls,
        standard_error_j=error_j,
        interval_95_j=error_j * statistics.student_95(freedom),
        parts_j={name: math.sqrt(part) / n_calls for name, part in parts2.items()},
        n_calls=n_calls,
        n_rounds=len(work),
        duration_s=duration_s,
        call_s=call_s,
        power_w=sum(cut.total_j for cut in work) / duration_s,
        idle_power_w=float(weights_s @ idle_w) / duration_s,
        idle_before_w=float(idle_w[0]),
        idle_after_w=float(idle_w[-1]),
        n_samples=n_samples,
        n_missed=n_missed,
        period_s=sampler.period_s,
        sensor_step=step,
        sensor_step_unit=unit,
        sensor_step_known=known,
        n_lone_samples=n_lone,
        unresolved=_unresolved(sampler, call_s, n_lone, n_samples, n_missed),
    )


def _errors(
    sampler: Sampler, idle: list[_Cut], work: list[_Cut], weights_s: statistics.FloatArray
) -> tuple[dict[str, float], float]:
    """Return variances of the net energy by origin, in J^2, and the degrees of freedom of all."""
    work_density, work_freedom = statistics.noise_density([(c.times_s, c.energy_j) for c in work])
    idle_density, idle_freedom = statistics.noise_density([(c.times_s, c.energy_j) for c in idle])
    durations = np.array([cut.duration_s for cut in work])
    shares = weights_s / np.array([cut.duration_s for cut in idle])
    idle_w = np.array([cut.power_w for cut in idle])
    step = _step(sampler, idle, work)[0]
    if sampler.counts:
        rounding = (len(work) + float(shares @ shares)) * step**2 / 6
    else:
        rounding = sum(
            _rounding(cuts, step) ** 2 * float(durations.sum()) ** 2 for cuts in (idle, work)
        )
    age_s = sampler.sensor.period_s if sampler.counts else sampler.period_s
    jump_w = sum(cut.total_j for cut in work) / float(durations.sum()) - float(idle_w.mean())
    parts2 = {
        "sampling": work_density * float(durations.sum()),
        "idle": idle_density * float(shares @ weights_s),
        "drift": float(((durations * np.diff(idle_w)) ** 2).sum()) / 12,
        "quantisation": rounding,
        "edges": (jump_w * age_s) ** 2 / 6 * (len(work) + float(shares @ shares)),
    }
    freedoms = {"sampling": work_freedom, "idle": idle_freedom, "drift": len(work)}
    known = sum(parts2[name] ** 2 / n for name, n in freedoms.items())  # Welch and Satterthwaite
    freedom = sum(parts2.values()) ** 2 / known if known > 0 else math.inf
    return parts2, max(3.0, freedom)


def _rounding(cuts: list[_Cut], step_w: float) -> float:
    if step_w == 0:
        return 0.0
    return max(statistics.rounding_w(cut.readings, step_w) for cut in cuts)


def _step(sampler: Sampler, idle: list[_Cut], work: list[_Cut]) -> tuple[float, str, bool]:
    """Return the sensor's step, its unit, and whether its driver tells it or its readings do."""
    sensor = sampler.sensor
    if isinstance(sensor, EnergySensor):
        return sensor.step_j, "J", True
    if sensor.step_w is not None:
        return sensor.step_w, "W", True
    quiet, every = (np.concatenate([c.readings for c in cuts]) for cuts in (idle, idle + work))
    # Idleness may lie within one step of a coarse sensor; the jump to work is then all there is.
    step_w = statistics.smallest_difference(quiet) or statistics.smallest_difference(every)
    return step_w, "W", False


def _count_lone(sampler: Sampler, idle: list[_Cut], work: list[_Cut]) -> int:
    """Count samples of work that stand alone, against the noise of idleness."""
    step = _step(sampler, idle, [])[0]  # a jump to work is no noise
    noise_w = max(statistics.noise_of(_sample_power(sampler, cut)) for cut in idle)
    idle_w = sum(cut.power_w for cut in idle) / len(idle)
    step_w = step / sampler.period_s if sampler.counts else step
    count = 0
    for cut in work:
        least_w = MIN_LONE * abs(cut.power_w - idle_w)
        threshold_w = max(statistics.LONE * noise_w, 3 * step_w, least_w)
        if sampler.counts:  # the counter's age moves power between neighbours
            threshold_w += 2 * sampler.sensor.period_s / sampler.period_s * abs(cut.power_w)
        count += statistics.count_lone_samples(_sample_power(sampler, cut), threshold_w)
    return count


def _sample_power(sampler: Sampler, cut: _Cut) -> statistics.FloatArray:
    """Return power as read, or a counter's mean between reads that are not too close."""
    if not sampler.counts:
        return cut.readings
    gaps_s = np.diff(cut.times_s)
    power_w = np.diff(cut.energy_j) / gaps_s
    return np.asarray(power_w[gaps_s > sampler.period_s / 2])


def _unresolved(
    sampler: Sampler, call_s: float, n_lone: int, n_samples: int, n_missed: int
) -> tuple[str, ...]:
    """List in sentences what this sampling period cannot show, or missed."""
    sentences = []
    if call_s < 2 * sampler.period_s:
        sentences.append(
            f"one call ({call_s * 1e3:.3g} ms) is shorter than two sampling periods of "
            f"{sampler.period_s * 1e3:.3g} ms: single calls are not resolved, only their mean is."
        )
    if n_lone:
        consequence = (
            "the counter includes their energy"
            if sampler.counts
            else "how much of their energy the samples caught is not known"
        )
        sentences.append(
            f"{n_lone} of {n_samples} samples stand alone: events shorter than the sampling period "
            f"are not resolved; {consequence}."
        )
    if not sampler.counts and n_missed > WARN_MISSED * (n_samples + n_missed):
        sentences.append(
            f"{n_missed} of {n_samples + n_missed} samples were missed on a busy machine: samples "
            "then come when the work pauses, and the figure may be off by more than its interval."
        )
    return tuple(sentences)
