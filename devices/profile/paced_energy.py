"""Open the power sensor of a paced profile (rows at fixed rates), and compare backends' power."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from edgefold.devices.power import probe
from edgefold.devices.power.energy import EnergyMeter
from edgefold.devices.power.probe import Candidate, choose_sensor, probe_sensors
from edgefold.devices.profile.crossing import Crossing, PowerPoint, find_crossing
from edgefold.devices.profile.energy import Driver, find_candidates
from edgefold.devices.profile.pacing import ArrivalTimes, ClockCounts
from edgefold.runtime.errors import MeterError
from edgefold.runtime.record_fields import (
    Count,
    Hertz,
    Joules,
    RatioOfTwo,
    Seconds,
    ShareOfOne,
    Watts,
)

if TYPE_CHECKING:
    from edgefold.devices import EnergyFigure

MAX_SKIPPED = 0.01  # of the arrivals: beyond it the power is not that of the rate


@dataclass(frozen=True, slots=True)
class PacedPower:
    """Holds the mean power above idle and the energy of an arrival; null without a sensor."""

    power_above_idle_w: Annotated[Watts, "Mean power."]
    power_interval_95_w: Annotated[Watts, "Half the width of its interval."]
    energy_j: Annotated[Joules, "Energy of an arrival."]
    energy_interval_95_j: Annotated[Joules, "Half the width of its interval."]
    idle_power_w: Annotated[Watts, "Mean power of the idle windows around the blocks."]
    n_arrivals: Annotated[Count, "Arrivals."]
    duration_s: Annotated[Seconds, "Length of the blocks."]
    scatter: Annotated[
        RatioOfTwo | None,
        "How far the blocks lie apart, over what their errors explain (the root of chi square over "
        "its degrees of freedom); above 1 it widens the intervals; null for one block.",
    ]


def open_meter(
    replay: str | None,
    gpu_first: bool,
    driver: Driver,
    find: Callable[[], list[Candidate]] | None = None,
) -> tuple[EnergyMeter | None, dict[str, Any]]:
    """Open the first sensor that works; return its meter and the fields of `PacedRecord` about it.

    Without a sensor the meter is None, and the only field is the `reason`.

    Args:
        replay: Path of a recording that replaces the sensor; None reads a sensor.
        gpu_first: Whether some of the work runs on a GPU.
        driver: Holds the clock that the meter uses.
        find: Finds the sensors; None looks for those of this machine.
    """
    try:
        probed = find or partial(probe_sensors, gpu_first=gpu_first)
        candidates = find_candidates(replay, driver, probed)
        meter = EnergyMeter(choose_sensor(candidates), driver.clock)
    except MeterError as error:
        return None, {"reason": str(error)}
    sensor = meter.sensor
    kind = next(candidate.kind for candidate in candidates if candidate.sensor is sensor)
    return meter, {
        "sensor": sensor.name,
        "kind": kind,
        "rails": list(sensor.rails),
        "scope": sensor.scope,
    }


def combine(figures: Sequence[EnergyFigure]) -> PacedPower | None:
    """Return power and energy over all blocks of one backend at one rate; None without blocks."""
    if not figures:
        return None
    net_j = [figure.energy_j * figure.n_calls for figure in figures]
    errors_j = [figure.standard_error_j * figure.n_calls for figure in figures]
    total_s, n = sum(figure.duration_s for figure in figures), sum(f.n_calls for f in figures)
    power_w = sum(net_j) / total_s
    apart = sum(
        ((net - power_w * figure.duration_s) / error) ** 2
        for net, error, figure in zip(net_j, errors_j, figures, strict=True)
        if error > 0
    )
    scatter = math.sqrt(apart / (len(figures) - 1)) if len(figures) > 1 else None
    students = [f.interval_95_j / f.standard_error_j for f in figures if f.standard_error_j > 0]
    interval_j = math.hypot(*errors_j) * max(students, default=0.0) * max(1.0, scatter or 0.0)
    return PacedPower(
        power_above_idle_w=power_w,
        power_interval_95_w=interval_j / total_s,
        energy_j=sum(net_j) / n,
        energy_interval_95_j=interval_j / n,
        idle_power_w=sum(f.idle_power_w * f.duration_s for f in figures) / total_s,
        n_arrivals=n,
        duration_s=total_s,
        scatter=scatter,
    )


@dataclass(frozen=True, slots=True)
class PacedRun:
    """Holds the measurement of one backend at one rate of arrivals."""

    rate_hz: Annotated[Hertz, "Arrivals a second."]
    backend: Annotated[str, "Label of the backend."]
    duration_s: Annotated[Seconds, "How long."]
    n_blocks: Annotated[Count, "Blocks, in turns with other backends."]
    cpu_share: Annotated[
        ShareOfOne | None, "Processor time of the process over the duration, of one core."
    ]
    latency: ArrivalTimes
    clocks: ClockCounts
    energy: PacedPower | None
    energy_reason: Annotated[str | None, "Why there is no energy."]


def compare_power(
    a: str,
    b: str,
    runs: Sequence[PacedRun],
    on_gpu: Mapping[str, bool],
    sensor: Mapping[str, Any],
) -> Crossing:
    """Compare two backends by their power above idle, or return why they cannot be compared.

    A sensor that covers only the processor or the GPU says nothing of work that moves between
    them. A rate that a backend does not keep up with is left out.

    Args:
        a: Label of the first backend.
        b: Label of the second backend.
        runs: All measured runs, of these and other backends.
        on_gpu: Whether each backend runs on a GPU, by its label.
        sensor: The fields about the sensor that `open_meter` returned.
    """
    if not sensor.get("sensor"):
        return Crossing(a, b, "none", reason="there is no power sensor")
    covers = {meter.kind: meter.covers for meter in probe.METERS}.get(sensor["kind"], probe.BOARD)
    if covers != probe.BOARD and on_gpu[a] != on_gpu[b]:
        reason = f"{sensor['sensor']} covers the {covers} alone, not both devices"
        return Crossing(a, b, "none", reason=reason)
    crossing = find_crossing(a, b, _points(a, runs), _points(b, runs))
    reasons = [run.energy_reason for run in runs if run.energy_reason]
    if crossing.verdict == "none" and reasons:
        return Crossing(a, b, "none", reason=reasons[0])
    return crossing


def _points(label: str, runs: Sequence[PacedRun]) -> list[PowerPoint]:
    return [
        PowerPoint(run.rate_hz, run.energy.power_above_idle_w, run.energy.power_interval_95_w)
        for run in runs
        if run.backend == label and run.energy is not None and keeps_up(run.latency)
    ]


def keeps_up(latency: ArrivalTimes) -> bool:
    """Return whether at most 1 % of arrivals were skipped, so that the rate was as requested."""
    return latency.n_skipped <= MAX_SKIPPED * latency.n
