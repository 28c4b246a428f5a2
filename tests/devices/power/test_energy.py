from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest

from edgefold.devices.power.figure import EnergyFigure
from edgefold.devices.power.sampler import Sampler, SamplerThread
from edgefold.runtime.errors import MeterError
from tests.devices.power_bench import (
    Bench,
    Load,
    SyntheticCounter,
    SyntheticPower,
    constant,
    ramp,
    spikes,
    square,
)

CALL_S = 0.005


def measure(
    bench: Bench,
    sensor: SyntheticPower | SyntheticCounter,
    idle_s: float = 3.0,
    work_s: float = 5.0,
    n_rounds: int = 1,
    call_s: float = CALL_S,
) -> tuple[EnergyFigure, float]:
    """The figure, and what a call really used."""
    meter = bench.meter(sensor)
    meter.idle(bench.sleep, idle_s)
    for _ in range(n_rounds):
        meter.work(bench.call(call_s), work_s)
        meter.idle(bench.sleep, idle_s)
    return meter.figure(), bench.true_j(meter.windows)


# Known energy in, the same out -------------------------------------------------------------------


@pytest.mark.parametrize("load", [constant(4.0), square(1.0, 4.0), ramp(1.0, 6.0)])
@pytest.mark.parametrize("kind", [SyntheticPower, SyntheticCounter])
def test_energy_above_idle_is_found_within_one_percent(
    load: Load, kind: type[SyntheticPower] | type[SyntheticCounter]
) -> None:
    bench = Bench(load)
    figure, truth_j = measure(bench, kind(bench), work_s=20.0)
    assert figure.energy_j == pytest.approx(truth_j, rel=0.01)
    assert figure.idle_power_w == pytest.approx(5.0, rel=1e-3)
    assert figure.n_calls == pytest.approx(20.0 / CALL_S, abs=2)


def test_work_below_idle_comes_out_negative() -> None:
    bench = Bench(constant(-0.5))
    figure, _ = measure(bench, SyntheticPower(bench))
    assert figure.energy_j == pytest.approx(-0.5 * CALL_S, rel=1e-3)


def test_idle_readings_below_zero_are_integrated() -> None:
    bench = Bench(constant(1.0), idle_w=-0.02)  # a shunt amplifier's offset
    figure, _ = measure(bench, SyntheticPower(bench, noise_w=0.05))
    assert figure.idle_power_w == pytest.approx(-0.02, abs=0.01)  # 0.05 W over some 150 samples
    assert figure.energy_j == pytest.approx(CALL_S, rel=0.02)


def test_a_steady_drift_of_idle_power_cancels_and_is_in_the_error() -> None:
    bench = Bench(constant(2.0), drift_w_per_s=0.05)
    figure, _ = measure(bench, SyntheticPower(bench))
    assert figure.energy_j == pytest.approx(2.0 * CALL_S, rel=0.01)
    assert figure.idle_after_w > figure.idle_before_w + 0.3
    assert figure.parts_j["drift"] > 0.05 * figure.energy_j


def test_more_rounds_are_one_figure_of_smaller_error() -> None:
    one, four = (
        measure(bench, SyntheticPower(bench, noise_w=1.0), n_rounds=n)[0]
        for n, bench in ((1, Bench(constant(2.0))), (4, Bench(constant(2.0))))
    )
    assert four.n_rounds == 4 and four.n_calls == pytest.approx(4 * one.n_calls, rel=0.01)
    assert four.standard_error_j < 0.8 * one.standard_error_j


def test_a_counter_and_a_power_sensor_fill_the_same_record() -> None:
    figures = []
    for kind in (SyntheticPower, SyntheticCounter):
        bench = Bench(constant(2.0))
        figures.append(measure(bench, kind(bench))[0])
    power, counter = figures
    assert power.energy_j == pytest.approx(counter.energy_j, rel=0.01)
    assert (power.sensor_step_unit, counter.sensor_step_unit) == ("W", "J")
    assert power.n_samples == pytest.approx(counter.n_samples, abs=2)


class Untold(SyntheticPower):
    """A sensor that rounds and whose driver does not tell how."""

    coarse_w = 0.5

    def read_w(self) -> float:
        return round(super().read_w() / self.coarse_w) * self.coarse_w


def test_a_power_that_stands_still_all_along_is_refused_where_its_step_is_not_told() -> None:
    bench = Bench(constant(0.01))
    with pytest.raises(MeterError, match=r"read 5 W throughout, also during work"):
        measure(bench, Untold(bench))


def test_idleness_within_one_untold_step_is_not_taken_for_certainty() -> None:
    bench = Bench(constant(0.4))
    figure, truth_j = measure(bench, Untold(bench))
    assert (figure.sensor_step, figure.sensor_step_known) == (Untold.coarse_w, False)
    assert figure.parts_j["quantisation"] > 0
    assert abs(figure.energy_j - truth_j) < figure.interval_95_j


# The error covers the truth ----------------------------------------------------------------------


def coverage(run: Callable[[int], tuple[EnergyFigure, float]]) -> tuple[int, float]:
    """How many of 100 runs have the truth in the 95 % interval; mean error told over real one."""
    runs = [run(seed) for seed in range(100)]
    hits = sum(abs(f.energy_j - truth_j) <= f.interval_95_j for f, truth_j in runs)
    told = float(np.mean([f.standard_error_j for f, _ in runs]))
    real = math.sqrt(float(np.mean([(f.energy_j - truth_j) ** 2 for f, truth_j in runs])))
    return hits, told / real


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("memory_s", "step_w"),
    [(0.0, None), (0.05, None), (0.3, None), (0.0, 0.1), (0.1, 0.5)],
    ids=["white", "short memory", "long memory", "quantised", "coarse and with memory"],
)
def test_the_95_percent_interval_of_sampled_power_covers_the_truth(
    memory_s: float, step_w: float | None
) -> None:
    def run(seed: int) -> tuple[EnergyFigure, float]:
        bench = Bench(constant(2.0 + 0.01 * seed), idle_w=5.0 + 0.003 * seed)
        sensor = SyntheticPower(bench, seed, noise_w=0.5, memory_s=memory_s, step_w=step_w)
        return measure(bench, sensor, 2.5, 4.0, call_s=0.04)

    hits, ratio = coverage(run)
    assert hits >= 90
    assert 0.7 < ratio < 2  # nor is the error a blanket that covers everything


def test_the_interval_covers_the_truth_where_the_step_hides_all_noise() -> None:
    def run(seed: int) -> tuple[EnergyFigure, float]:
        bench = Bench(constant(2.0 + 0.0137 * seed), idle_w=5.0 + 0.0071 * seed)
        sensor = SyntheticPower(bench, seed, 0.01, step_w=0.2)
        return measure(bench, sensor, 2.5, 4.0, call_s=0.04)

    hits, _ = coverage(run)
    assert hits >= 90


def test_the_interval_covers_the_truth_while_idle_power_drifts() -> None:
    def run(seed: int) -> tuple[EnergyFigure, float]:
        bench = Bench(constant(2.0), drift_w_per_s=0.002 * (seed - 50))
        sensor = SyntheticPower(bench, seed, noise_w=0.3)
        return measure(bench, sensor, 2.5, 4.0, call_s=0.04)

    hits, _ = coverage(run)
    assert hits >= 90


@pytest.mark.parametrize("memory_s", [0.02, 0.2])
def test_the_interval_of_a_counter_covers_the_truth_among_other_work(memory_s: float) -> None:
    def run(seed: int) -> tuple[EnergyFigure, float]:
        bench = Bench(constant(2.0))
        noise, state = np.random.default_rng(seed), [0.0]

        def background(duration_s: float) -> float:  # what else the machine does, in W
            kept = math.exp(-duration_s / memory_s)
            state[0] = kept * state[0] + math.sqrt(1 - kept**2) * float(noise.normal())
            return 0.5 * state[0]

        bench.background = background
        return measure(bench, SyntheticCounter(bench), 2.5, 4.0, call_s=0.04)

    hits, ratio = coverage(run)
    assert hits >= 90
    assert 0.7 < ratio < 2


# What a sensor cannot show -----------------------------------------------------------------------


@pytest.mark.parametrize("spacing_s", [0.1, 0.02, 0.0137])  # the second is the sampling period
def test_spikes_shorter_than_the_period_are_marked(spacing_s: float) -> None:
    bench = Bench(spikes(spacing_s, 0.002, 20.0))
    figure, truth_j = measure(bench, SyntheticPower(bench, noise_w=0.05), work_s=20.0)
    assert figure.n_lone_samples > 0
    assert any("not known" in sentence for sentence in figure.unresolved)
    # Samples at random places meet them in proportion, so the mean is honest though uncertain.
    assert abs(figure.energy_j - truth_j) < 2 * figure.interval_95_j


def test_a_counter_marks_spikes_and_includes_them() -> None:
    bench = Bench(spikes(0.5, 0.005, 20.0))
    figure, truth_j = measure(bench, SyntheticCounter(bench), work_s=20.0)
    assert figure.n_lone_samples > 0
    assert any("includes their energy" in sentence for sentence in figure.unresolved)
    assert figure.energy_j == pytest.approx(truth_j, rel=0.01)


@pytest.mark.parametrize("load", [constant(4.0), square(1.0, 4.0), ramp(2.0, 6.0)])
@pytest.mark.parametrize("kind", [SyntheticPower, SyntheticCounter])
def test_loads_slower_than_the_period_are_not_marked(
    load: Load, kind: type[SyntheticPower] | type[SyntheticCounter]
) -> None:
    bench = Bench(load)
    assert measure(bench, kind(bench))[0].n_lone_samples == 0


def test_noise_alone_is_not_marked() -> None:
    for seed in range(20):
        bench = Bench(constant(2.0))
        figure, _ = measure(bench, SyntheticPower(bench, seed, noise_w=0.5))
        assert figure.n_lone_samples == 0


def test_calls_shorter_than_the_period_are_told() -> None:
    bench = Bench(constant(2.0))
    figure, _ = measure(bench, SyntheticPower(bench))
    (sentence,) = figure.unresolved
    assert "one call (5 ms) is shorter than two sampling periods of 20 ms" in sentence


# Refusals ----------------------------------------------------------------------------------------


def test_a_window_too_short_for_the_sensor_is_refused() -> None:
    bench = Bench(constant(2.0))
    with pytest.raises(MeterError, match=r"0\.505 s is too short.*measure for 1 s"):
        measure(bench, SyntheticPower(bench), work_s=0.5)


def test_a_sensor_that_stands_still_is_refused() -> None:
    for kind, words in ((SyntheticCounter, "too coarse"), (SyntheticPower, "not connected")):
        bench = Bench(constant(0.0), idle_w=0.0)
        with pytest.raises(MeterError, match=words):
            measure(bench, kind(bench))


def test_windows_out_of_turn_are_refused() -> None:
    bench = Bench(constant(2.0))
    meter = bench.meter(SyntheticPower(bench))
    meter.idle(bench.sleep, 2.0)
    meter.work(bench.call(CALL_S), 2.0)
    with pytest.raises(MeterError, match=r"idle\(\), work\(\), idle\(\) in turn"):
        meter.figure()


def test_a_counter_left_unread_for_too_long_is_refused() -> None:
    bench = Bench(constant(2.0))
    meter = bench.meter(SyntheticCounter(bench))
    bench.wait(1.0)
    bench.sampler = None  # nobody samples
    bench.wait(70.0)
    meter.sampler.sample()
    with pytest.raises(MeterError, match="not read for 70 s and may have wrapped"):
        meter.sampler.trace()


def measure_busy(kind: type[SyntheticPower] | type[SyntheticCounter], share: float) -> EnergyFigure:
    """A machine that gives the sampler no turn for a share of the time, ten samples in a row."""
    bench = Bench(constant(2.0))
    meter = bench.meter(kind(bench))
    calls = 0

    def stall() -> None:
        nonlocal calls
        calls += 1
        bench.working = True
        bench.sampler = None if int(calls * share) > int((calls - 1) * share) else meter.sampler
        bench.wait(0.2)

    meter.idle(bench.sleep, 2.0)
    meter.work(stall, 8.0)
    bench.sampler = meter.sampler
    meter.idle(bench.sleep, 2.0)
    return meter.figure()


def test_missed_samples_are_counted_and_told() -> None:
    figure = measure_busy(SyntheticPower, share=0.2)
    assert figure.n_missed == pytest.approx(80, abs=12)  # a fifth of 8 s, 50 a second
    assert figure.energy_j / figure.call_s == pytest.approx(2.0, rel=1e-3)
    assert any("samples were missed on a busy machine" in s for s in figure.unresolved)


def test_too_many_missed_samples_of_power_are_refused() -> None:
    with pytest.raises(MeterError, match=r"was read .* times in 8 s"):
        measure_busy(SyntheticPower, share=0.5)


def test_a_counter_loses_nothing_by_missed_samples() -> None:
    figure = measure_busy(SyntheticCounter, share=0.5)
    assert figure.n_missed > 150 and figure.unresolved == ()
    assert figure.energy_j / figure.call_s == pytest.approx(2.0, rel=1e-3)


def test_a_failure_in_the_middle_leaves_no_figure() -> None:
    bench = Bench(constant(2.0))

    class Dying(SyntheticPower):
        def read_w(self) -> float:
            if bench.now_s > 106:
                raise MeterError("/sys/rail is not there")
            return super().read_w()

    with pytest.raises(MeterError, match="/sys/rail is not there"):
        measure(bench, Dying(bench))


# The loop that drives it -------------------------------------------------------------------------


def test_the_loop_samples_once_a_period_until_told_to_stop() -> None:
    bench = Bench(constant(2.0))
    sampler = Sampler(SyntheticPower(bench), bench.clock)

    def wait(duration_s: float) -> bool:
        bench.now_s += duration_s + 1e-6  # a thread wakes a little late
        return bench.now_s > 110.0

    sampler.run(wait)
    trace = sampler.trace()
    slots = np.floor((trace.times_s - 100.0) / 0.02)
    assert len(trace.missed_s) == 0
    assert np.array_equal(slots, np.arange(500))
    assert np.diff(trace.times_s).std() > 0.005  # at random places, so that nothing keeps step


def test_the_thread_ends_with_its_context() -> None:
    bench = Bench(constant(2.0))
    sampler = Sampler(SyntheticPower(bench), bench.clock)
    before = threading.active_count()
    with SamplerThread(sampler):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
