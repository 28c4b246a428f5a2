"""Compute the energy of a call from windows of idleness and work, and how certain it is.

    net energy = sum over k of W_k - T_k (a_(k-1) + a_k) / 2, divided by the calls

with W_k joules in T_k seconds of work between the idle powers a_(k-1) and a_k, so that a slow drift
(temperature, the fan) cancels. The square of the standard error is a sum:

    sampling      the long-run variance of power during work, from means of blocks that are longer
                  than the noise's and the sensor's memory (`statistics`): sensor noise and
                  whatever else ran
    idle          the same of the idle windows, through their weight in the sum
    drift         (T_k (a_k - a_(k-1)))^2 / 12: where between the two the idle power really was
    quantisation  the sensor's step: rounding at both ends of a counter's window; for power, what
                  noise does not average away
    edges         what one average or one sampling period hides at a window's ends: power may have
                  gone on and off within it, (P_work - P_idle)^2 age^2 / 6 a window of work; a
                  counter is up to one renewal behind, P^2 age^2 / 6 a window

The interval is the 95 % one, by Student's t with the blocks' degrees of freedom. It says nothing of
the sensor's own calibration (shunts are 1 % parts), nor of what lies outside the rails. Net energy
may come out negative near idle; it is returned as it is, because clamping would bias a mean. Events
shorter than a sample are counted and reported, and so is what stood still.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np

from edgefold.devices.power import statistics
from edgefold.devices.power.sampler import Sampler, Trace
from edgefold.devices.power.sensor import EnergySensor, ManyRails
from edgefold.runtime.record_fields import OPTIONAL, Count, Joules, Seconds, Watts, unit

WARN_MISSED = 0.05  # beyond it the record warns: samples come when the processor is free
MIN_LONE = 0.1  # of the power above idle: an excursion below that changes nothing


@dataclass(frozen=True, slots=True)
class EnergyFigure:
    """Holds the energy of one call above the idle power, by a counter or by sampled power."""

    energy_j: Annotated[Joules, "Energy of one call."]
    standard_error_j: Annotated[Joules, "Its standard error."]
    interval_95_j: Annotated[Joules, "Half the width of its 95 % interval."]
    parts_j: Annotated[
        dict[str, Annotated[Joules, "One part."]],
        "Parts of the standard error; they add up in squares.",
    ]
    n_calls: Annotated[Count, "Calls in the windows of work."]
    n_rounds: Annotated[Count, "Rounds of idleness and work."]
    duration_s: Annotated[Seconds, "Length of the windows of work."]
    call_s: Annotated[Seconds, "Time of one call there."]
    power_w: Annotated[Watts, "Mean power during work."]
    idle_power_w: Annotated[Watts, "Mean power of all idle windows."]
    idle_before_w: Annotated[Watts, "Power of the first idle window."]
    idle_after_w: Annotated[Watts, "Power of the last one."]
    n_samples: Annotated[Count, "Samples in the windows of work."]
    n_missed: Annotated[Count, "Samples that were due and not taken."]
    period_s: Annotated[Seconds, "Time between two samples."]
    memory_s: Annotated[
        Seconds,
        "How far back a reading of the sensor reaches, for which the windows were laid out: the "
        "longer of what the sensor states and what its readings showed.",
        OPTIONAL,
    ]
    memory_measured_s: Annotated[
        Seconds | None,
        "The same as it was seen in the readings, between two changes; null with too few of them.",
        OPTIONAL,
    ]
    sensor_step: Annotated[
        float,
        "Smallest difference that the sensor shows, in W or J as `sensor_step_unit` says.",
        unit("W or J"),
    ]
    sensor_step_unit: Annotated[str, "W for power, J for a counter."]
    sensor_step_known: Annotated[
        bool, "Whether the driver gives the step; if not, it is the smallest difference seen."
    ]
    n_lone_samples: Annotated[Count, "Samples that stood out from both neighbours."]
    unresolved: Annotated[
        tuple[Annotated[str, "A sentence."], ...],
        "What is shorter than the sampling period, was missed, or stood still.",
    ]

    @property
    def relative_error(self) -> float:
        """Return the standard error over the energy; infinite for an energy of 0."""
        return self.standard_error_j / abs(self.energy_j) if self.energy_j else math.inf


@dataclass(frozen=True, slots=True)
class Cut:
    """Holds the sensor's N samples of one window.

    Attributes:
        times_s, energy_j: Times and accumulated energy of the samples and of the window's two
            edges, (N + 2,). At an edge a counter's energy is interpolated between the samples
            around it; power is taken to be that of the nearest sample inside the window.
        read_s, readings: Times and readings of the samples only, (N,).
        n_missed: Number of samples that were due and not taken.
    """

    times_s: statistics.FloatArray
    energy_j: statistics.FloatArray
    read_s: statistics.FloatArray
    readings: statistics.FloatArray
    n_missed: int

    @property
    def duration_s(self) -> float:
        """Return the length of the window, in seconds."""
        return float(self.times_s[-1] - self.times_s[0])

    @property
    def total_j(self) -> float:
        """Return the whole energy of the window in J, from which no idle power is subtracted."""
        return float(self.energy_j[-1] - self.energy_j[0])

    @property
    def power_w(self) -> float:
        """Return the mean power over the window, in W."""
        return self.total_j / self.duration_s


def cut_trace(trace: Trace, start_s: float, end_s: float, counts: bool) -> Cut:
    """Return the part of a trace between two moments; at least one sample must lie between them.

    Args:
        trace: All samples of the sensor.
        start_s: Time of the first moment.
        end_s: Time of the second moment.
        counts: Whether the sensor is a counter.
    """
    low, high = np.searchsorted(trace.times_s, [start_s, end_s])
    part = slice(int(low), int(high))
    edges_s, outer = np.array([start_s, end_s]), np.array([low, high - 1])
    if counts:
        edges_j = np.interp(edges_s, trace.times_s, trace.energy_j)
    else:
        gaps_s = edges_s - trace.times_s[outer]
        edges_j = trace.energy_j[outer] + trace.readings[outer] * gaps_s
    within = (trace.missed_s > start_s) & (trace.missed_s <= end_s)
    return Cut(
        np.concatenate([edges_s[:1], trace.times_s[part], edges_s[1:]]),
        np.concatenate([edges_j[:1], trace.energy_j[part], edges_j[1:]]),
        trace.times_s[part],
        trace.readings[part],
        int(within.sum()),
    )


def compute_figure(
    sampler: Sampler, idle: list[Cut], work: list[Cut], n_calls: int, memory_s: float
) -> EnergyFigure:
    """Compute the energy of one call by the formula of this module, and its errors.

    Args:
        sampler: Sampler that took the samples of the windows.
        idle: The idle windows around those of work; one more than these.
        work: The windows of work.
        n_calls: Number of calls in all windows of work together.
        memory_s: Seconds by which a window's readings are later than its calls.
    """
    durations = np.array([cut.duration_s for cut in work])
    idle_w = np.array([cut.power_w for cut in idle])
    # The weight of each idle window: half the work before it and half the work after it.
    weights_s = (np.append(durations, 0.0) + np.insert(durations, 0, 0.0)) / 2
    net_j = sum(cut.total_j for cut in work) - float(weights_s @ idle_w)
    measured_s = _renewal_s(idle + work)
    is_older = statistics.is_older(measured_s, memory_s, sampler.period_s)
    age_s = measured_s if measured_s is not None and is_older else memory_s
    parts2, freedom = _errors(sampler, idle, work, weights_s, age_s)
    variance = sum(parts2.values())
    error_j = math.sqrt(variance) / n_calls
    duration_s = float(durations.sum())
    call_s = duration_s / n_calls
    n_lone = _count_lone(sampler, idle, work)
    n_samples, n_missed = sum(len(c.readings) for c in work), sum(c.n_missed for c in work)
    step, unit, is_stated = _step(sampler, idle, work)
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
        memory_s=memory_s,
        memory_measured_s=measured_s,
        sensor_step=step,
        sensor_step_unit=unit,
        sensor_step_known=is_stated,
        n_lone_samples=n_lone,
        unresolved=(
            *_unresolved(sampler, call_s, n_lone, n_samples, n_missed),
            *_stood_still(sampler, idle, work),
            *_older(sampler, memory_s, measured_s),
        ),
    )


def _errors(
    sampler: Sampler,
    idle: list[Cut],
    work: list[Cut],
    weights_s: statistics.FloatArray,
    age_s: float,
) -> tuple[dict[str, float], float]:
    """Return the variances of the net energy by origin in J^2, and the sum's degrees of freedom.

    The origins are the five parts at the top of this file, such as sampling and drift.

    Args:
        sampler: Sampler that took the samples of the windows.
        idle: The idle windows, one more than those of work.
        work: The windows of work.
        weights_s: Seconds of work for which each idle power is subtracted, (idle windows,).
        age_s: Seconds between two renewals of a reading.
    """
    work_density, work_freedom = statistics.noise_density(
        [(c.times_s, c.energy_j) for c in work], age_s
    )
    idle_density, idle_freedom = statistics.noise_density(
        [(c.times_s, c.energy_j) for c in idle], age_s
    )
    durations = np.array([cut.duration_s for cut in work])
    shares = weights_s / np.array([cut.duration_s for cut in idle])
    idle_w = np.array([cut.power_w for cut in idle])
    step = _step(sampler, idle, work)[0]
    if sampler.counts:
        work_w = np.array([cut.power_w for cut in work])
        rounding = (len(work) + float(shares @ shares)) * step**2 / 6
        edges = (
            age_s**2 / 6 * (float(work_w @ work_w) + float((shares * idle_w) @ (shares * idle_w)))
        )
    else:
        rounding = sum(
            _rounding(cuts, step) ** 2 * float(durations.sum()) ** 2 for cuts in (idle, work)
        )
        net_w = sum(cut.total_j for cut in work) / float(durations.sum()) - float(idle_w.mean())
        edges = (net_w * max(age_s, sampler.period_s)) ** 2 / 6 * len(work)
    parts2 = {
        "sampling": work_density * float(durations.sum()),
        "idle": idle_density * float(shares @ weights_s),
        "drift": float(((durations * np.diff(idle_w)) ** 2).sum()) / 12,
        "quantisation": rounding,
        "edges": edges,
    }
    freedoms = {"sampling": work_freedom, "idle": idle_freedom, "drift": len(work)}
    weighted = sum(parts2[name] ** 2 / n for name, n in freedoms.items())  # Welch and Satterthwaite
    freedom = sum(parts2.values()) ** 2 / weighted if weighted > 0 else math.inf
    return parts2, max(3.0, freedom)


def _rounding(cuts: list[Cut], step_w: float) -> float:
    if step_w == 0:
        return 0.0
    return max(statistics.rounding_w(cut.readings, step_w) for cut in cuts)


def _step(sampler: Sampler, idle: list[Cut], work: list[Cut]) -> tuple[float, str, bool]:
    """Return the sensor's resolution, its unit (W or J), and whether the driver states it."""
    sensor = sampler.sensor
    if isinstance(sensor, EnergySensor):
        return sensor.step_j, "J", True
    if sensor.step_w is not None:
        return sensor.step_w, "W", True
    quiet, every = (np.concatenate([c.readings for c in cuts]) for cuts in (idle, idle + work))
    # Idleness may lie within one step of a coarse sensor; the jump to work is then all there is.
    step_w = statistics.smallest_difference(quiet) or statistics.smallest_difference(every)
    return step_w, "W", False


def _count_lone(sampler: Sampler, idle: list[Cut], work: list[Cut]) -> int:
    """Count samples of work that stand out from both neighbours by more than the idle noise."""
    step = _step(sampler, idle, [])[0]  # a jump to work is not noise
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


def _sample_power(sampler: Sampler, cut: Cut) -> statistics.FloatArray:
    """Return the power at each sample of a window, in W; for a counter, the mean between samples.

    Samples of a counter that lie closer together than half a period are left out.
    """
    if not sampler.counts:
        return cut.readings
    gaps_s = np.diff(cut.times_s)
    wide = gaps_s > sampler.period_s / 2  # a sample at the edge of a window leaves a gap of 0
    return np.asarray(np.diff(cut.energy_j)[wide] / gaps_s[wide])


def _unresolved(
    sampler: Sampler, call_s: float, n_lone: int, n_samples: int, n_missed: int
) -> tuple[str, ...]:
    """Return sentences on events that the sampling period cannot show, and on missed samples.

    `n_lone` of the `n_samples` samples taken during work stand out from both neighbours; `n_missed`
    more were not taken. A call takes `call_s` seconds.
    """
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


def _renewal_s(cuts: list[Cut]) -> float | None:
    """Return the shortest time in s in which a window's readings are renewed; None if unknown."""
    renewals_s = [statistics.renewal_s(cut.read_s, cut.readings) for cut in cuts]
    return min((s for s in renewals_s if s is not None), default=None)


def _stood_still(sampler: Sampler, idle: list[Cut], work: list[Cut]) -> Iterator[str]:
    """Yield sentences on rails and readings that stood still although the load changed."""
    sensor = sampler.sensor
    if isinstance(sensor, ManyRails) and sensor.still_rails:
        yield (
            f"{', '.join(sensor.still_rails)} of {sensor.name} never changed: a load there is "
            "steady, or the reading stands still and the figure lacks what that rail used."
        )
    in_turn = [cut for pair in zip(idle, work, strict=False) for cut in pair] + idle[-1:]
    n_frozen = 0
    for before, after in pairwise(in_turn):
        readings = np.concatenate([before.readings, after.readings])
        n_frozen += not sampler.counts and bool((readings == readings[0]).all())
    if n_frozen:
        yield (
            f"{sensor.name} stood still over {n_frozen} of {len(in_turn) - 1} changes between "
            "idleness and work: the load is below its step, or it was not renewed."
        )


def _older(sampler: Sampler, memory_s: float, measured_s: float | None) -> Iterator[str]:
    """Yield a sentence if readings change every `measured_s` only, not every `memory_s`."""
    if statistics.is_older(measured_s, memory_s, sampler.period_s):
        yield (
            f"readings were renewed every {measured_s:.3g} s, and the windows were laid out for "
            f"{memory_s:.3g} s: they contain some of the power before them. Measure again."
        )
