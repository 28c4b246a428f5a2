"""Compute the features of a stream for the network: numbers without units, always bounded.

z is the value in the coordinates of the mixture that forecast it: z = Phi^-1(F(value)), normal with
mean 0 and deviation 1 where the mixture is right. m is the weighted mean of the experts' forecasts,
s its running error. The quantum of a sensor is the step between the values that it can show.

Letters of shapes: B streams, K experts, W widths, S slots of a season.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgefold.train.models.sensors.experts import N_EXPERTS
from edgefold.train.models.sensors.mixture import SHARES, Mixture
from edgefold.train.models.sensors.past_values import N_REGRESSORS, Past
from edgefold.train.models.sensors.scale import within
from edgefold.train.models.sensors.slot import Slot

N_LAGS = 6
N_STEPS = 7
N_LIKELY = N_STEPS + 2
"""Number of values that may come exactly: m and its neighbours in steps of the sensor's quantum,
and the two ends of its range."""
MEMORIES = (0.8, 0.98, 0.998)
"""Shares of the running errors of m that remain after each value; the second is that of s."""
LEAST_TAIL = 1e-7
E_ABS_Z = math.sqrt(2 / math.pi)
LEVEL_RATE, EXTREME_RATE = 0.005, 2e-4
FIRST_MEANS = (E_ABS_Z, 1.0, 0.0, 0.0, 0.0, 0.0)
MEAN_RATES = (0.03, 0.03, 0.02, 0.02, 0.02, 0.05)
"""Rates of running means: |z|, z^2, repeats, values at the lower and the upper end, distance of
changes from multiples of the quantum."""
FIRST_ERROR, LEAST_ERROR = 1.25, 0.05
"""Running error of m before it is known, and the least one, in scales of the stream."""
SIDES = torch.tensor([-1.0, 1.0])
RANGE_BOUND, ERROR_BOUND = 1000.0, 30.0
"""Bounds in scales: how far the stream's slow mean may lie from the value, and its extremes from
this mean; and the largest error of m that counts."""
N_FEATURES = (
    (N_EXPERTS + 8) + (N_EXPERTS + 2 + N_LAGS + 3 + N_REGRESSORS) + 2 + N_EXPERTS + len(SHARES) + 6
    + N_LIKELY
)  # fmt: skip
PATIENCE, MOST_TURNS, LEAST_QUANTUM = 0.01, 1e4, 1e-30
"""Numbers of `_quantum`: how much a change may exceed the quantum, as a share for each change that
came since, and still replace it; the most quanta that are counted; the least divisor."""
LEAST_CHANGE, FEW_TURNS, COARSE = 1e-3, 16.0, 0.01
"""Bounds of steps: the least change that counts as a step, in scales; the number of quanta below
which a change shows whether changes are multiples of the quantum (float32 does not show it for
more); and the least quantum, in scales, whose steps are distinguished: normals of z are no
narrower."""
LEAST_RATIO, NUMBER_BOUND, MOST_MISSING = 1e-3, 8.0, 1e4
ABOVE, BELOW = (2.515517, 0.802853, 0.010328, 0.0), (1.0, 1.432788, 0.189269, 0.001308)
"""Coefficients of the normal quantile, of numerator and denominator: Abramowitz and Stegun 1964,
26.2.23."""


def normal_score(below: Tensor, above: Tensor) -> Tensor:
    """Return the normal quantile of the mass below a value, to 4.5e-4 and within +-5.2.

    It is computed from the smaller of the masses `below` and `above`.

    It need not be exact: it is only the coordinate in which `network` corrects a density.
    """
    tail = torch.minimum(below, above).clamp(LEAST_TAIL, 0.5)
    t = torch.sqrt(-2 * torch.log(tail))
    powers = t[..., None] ** torch.arange(4.0)
    over, under = (powers @ torch.tensor([ABOVE, BELOW]).T).unbind(-1)
    return torch.sign(below - above) * (t - over / under)


def initial_features(n_streams: int, longest: int) -> dict[str, Tensor]:
    """Return the memory that features need, for n_streams streams that have seen no value.

    `ends` and `extremes` (B, 2) hold the lower end of the stream's values with its sign changed,
    then the upper end. `longest` is the longest season, in slots.
    """
    zeros = torch.zeros
    return {
        "z": zeros(n_streams, N_LAGS),  # newest first
        "z_season": zeros(n_streams, longest),
        "running": zeros(n_streams, 2, len(MEMORIES)),  # squared errors of m, and their weight
        "error": zeros(n_streams, 1),  # s
        "means": torch.tensor(FIRST_MEANS).repeat(n_streams, 1),
        "repeat": zeros(n_streams, 1),  # whether the newest value was one
        "level": zeros(n_streams, 2),  # slow mean and variance
        "extremes": zeros(n_streams, 2),  # they come back to the mean slowly
        "ends": zeros(n_streams, 2),  # values that were extremes when they came
        "quantum": zeros(n_streams, 3),  # see `_quantum`
        "missing": zeros(n_streams, 1),  # slots since a value was measured
    }


def expected(weight: Tensor, forecast: Tensor) -> Tensor:
    """Return the mean of forecasts (B, K) with weights (B, K): (B, 1).

    It is exact where all forecasts are the same.
    """
    first = forecast[:, :1]
    return first + (weight * (forecast - first)).sum(-1, keepdim=True)


def learned(state: dict[str, Tensor], z: Tensor, middle: Tensor, slot: Slot) -> dict[str, Tensor]:
    """Return the features' memory after a slot; `z_season` is only the slot's own z, (B, 1).

    Args:
        state: Memory before the slot.
        z: Normal quantile of the slot's value under the density forecast for it, (B, 1).
        middle: Mean of the experts' forecasts of the slot, (B, 1).
        slot: The slot that came.
    """
    gate = slot.measured * slot.started
    z = z * gate
    sided = SIDES * slot.value
    level, extremes = _range(state["level"], state["extremes"], slot)
    reached = (sided >= extremes) & (slot.measured > 0)
    quantum, turned = _quantum(state["quantum"], state["means"][:, -1:], slot)
    repeat = (slot.value == slot.newest).float()
    means = torch.cat([z.abs(), z**2, repeat, (sided == state["ends"]).float(), turned], 1)
    rate = torch.tensor(MEAN_RATES) * gate
    return {
        "z": torch.cat([z, state["z"][:, :-1]], 1),
        "z_season": z,
        "running": _running(state, (slot.value - middle).abs(), slot.scale, gate),
        "means": state["means"] + rate * (means - state["means"]),
        "repeat": repeat,
        "level": level,
        "extremes": torch.minimum(
            torch.maximum(extremes, sided), SIDES * level[:, :1] + RANGE_BOUND * slot.scale
        ),
        "ends": torch.where(reached, sided, state["ends"]),
        "quantum": quantum,
        "missing": (state["missing"] + 1) * (1 - slot.measured),
    }


def _running(state: dict[str, Tensor], error: Tensor, scale: Tensor, gate: Tensor) -> Tensor:
    """Return the running squared errors of the experts' mean and their weights, (B, 2, 3).

    There are three, one for each share in `MEMORIES` that stays after a value. The newest `error`
    (B, 1), without its sign, counts where `gate` (B, 1) is 1.0, and only up to a bound. `scale`
    (B, 1) is the stream's mean absolute change.
    """
    most = scale * (6 * state["error"] / scale).clamp(6.0, ERROR_BOUND)
    new = torch.cat([torch.minimum(error, most) ** 2, torch.ones_like(error)], 1) * gate
    decay = 1 - (1 - torch.tensor(MEMORIES)) * gate
    return decay[:, None] * state["running"] + new[..., None]


def _range(level: Tensor, extremes: Tensor, slot: Slot) -> tuple[Tensor, Tensor]:
    """Return a stream's slow mean and variance after a slot, (B, 2), and its extremes, (B, 2).

    `level` (B, 2) is the mean and variance before the slot, `extremes` (B, 2) the lowest value with
    its sign changed and the highest one. These only move a little towards the mean: the slot's own
    value is not in them yet.
    """
    mean, variance = level.split(1, 1)
    apart = within(slot.value - mean, RANGE_BOUND, slot.scale)
    mean = slot.value - slot.started.clamp(max=1 - LEVEL_RATE) * apart
    variance = variance + LEVEL_RATE * slot.started * (apart**2 - variance)
    sided = SIDES * mean
    back = sided - slot.started.clamp(max=1 - EXTREME_RATE) * (sided - extremes)
    return torch.cat([mean, variance], 1), back


def _quantum(quantum: Tensor, distance: Tensor, slot: Slot) -> tuple[Tensor, Tensor]:
    """Return the memory of a sensor's step, (B, 3), and a change's distance from steps, (B, 1).

    The memory, `quantum` before the slot, holds the step or quantum, which is the least change
    other than 0 of late; the number of changes since it was found; and the last measured value. The
    distance of the newest change from whole quanta is in quanta: 0 for a sensor of whole degrees, a
    quarter in the mean for one without steps. For a repeat and for a change of many quanta it is
    the argument `distance` (B, 1), the mean distance so far.
    """
    least, since, last = quantum.split(1, 1)
    change = (slot.value - last).abs()
    moved = (change > LEAST_CHANGE * slot.scale) & (slot.measured * slot.started > 0)
    is_new = moved & ((change <= least * (1 + PATIENCE * since)) | (least == 0))
    turns = (change / least.clamp(min=LEAST_QUANTUM)).clamp(max=MOST_TURNS)
    tells = moved & (turns < FEW_TURNS)
    after = [
        torch.where(is_new, change, least),
        torch.where(is_new, 0.0, since + moved.float()),
        torch.where(slot.measured > 0, slot.value, last),
    ]
    return torch.cat(after, 1), torch.where(tells, (turns - torch.round(turns)).abs(), distance)


def _steps(quantum: Tensor, m: Tensor, scale: Tensor) -> Tensor:
    """Return rising values near m (B, 1), whole quanta away from the last value, (B, N_STEPS).

    A quantum is the sensor's step, the first column of the memory `quantum` (B, 3). If it is not
    above `COARSE` times `scale` (B, 1), the stream's mean absolute change, the values lie around m
    itself: rounding would only add noise.
    """
    least, _, last = quantum.split(1, 1)
    turns = ((m - last) / least.clamp(min=LEAST_QUANTUM)).clamp(-MOST_TURNS, MOST_TURNS)
    turns = torch.where(least > COARSE * scale, torch.round(turns), turns)
    half = N_STEPS // 2
    return last + least * (turns + torch.linspace(-half, half, N_STEPS))


def likely_values(state: dict[str, Tensor], m: Tensor, scale: Tensor) -> Tensor:
    """Return the values that the sensor may show exactly in the next slot, (B, N_LIKELY).

    They are values near m (B, 1), the mean of the experts' forecasts, whole steps of the sensor
    apart, and the two ends of its range. `state` is the features' memory, `scale` (B, 1) the
    stream's mean absolute change.
    """
    return torch.cat([_steps(state["quantum"], m, scale), SIDES * state["ends"]], 1)


def errors_of(running: Tensor, scale: Tensor) -> Tensor:
    """Return the running errors (B, 3) of the experts' mean: roots of weighted mean squares.

    `running` (B, 2, 3) is the result of `_running`: sums of squared errors and their weights. The
    result is at least a share of the stream's `scale` (B, 1), and a multiple of it at first.
    """
    squared, weight = running.unbind(1)
    roots = torch.sqrt(squared / weight.clamp(min=1e-3))
    roots = torch.where(weight > 1.5, roots, FIRST_ERROR * scale)
    return torch.maximum(roots, LEAST_ERROR * scale)


def features(
    state: dict[str, Tensor], ring: Tensor, mixture: Mixture, share: Tensor, forecast: Tensor,
    m: Tensor, likely: Tensor, error: Tensor, running: Tensor, past: Past, slot: Slot,
    scale: Tensor, weight: Tensor,
) -> Tensor:  # fmt: skip
    """Return the features of the slot after `slot`, (B, N_FEATURES).

    The last N_LIKELY of them are normal quantiles of the values that may come exactly.

    Args:
        state: Memory of the features after the slot.
        ring: Normal quantiles of a season of values, (B, S), with or without the slot's.
        mixture: Density that is forecast for the next slot.
        share: Shares of the mixture's widths, (B, W).
        forecast: Forecasts of the experts at the first horizon, (B, K).
        m: Weighted mean of these forecasts, (B, 1).
        likely: Values that the sensor may show exactly, (B, N_LIKELY).
        error: Running errors of the experts, (B, K).
        running: Running errors of m, (B, 3).
        past: What the experts read of the past, the slot included.
        slot: The newest slot.
        scale: Scale of the stream after the slot, (B, 1).
        weight: Number of changes of which the scale is the mean, (B, 1).
    """
    expert, season = mixture.expert[:, 0], slot.season
    s = running[:, 1:2]
    z_likely = normal_score(*mixture.tails(likely[:, None]))[:, 0]
    mean, variance = state["level"].split(1, 1)
    z_size, shares = state["means"].split([2, len(MEAN_RATES) - 2], 1)
    below, above = state["extremes"].split(1, 1)
    back = (slot.n + 1 - season.length) % ring.shape[1]
    seasonal = torch.where(season.length > 1, ring.gather(1, back), 0.0)
    spread = ((forecast - m).abs() * expert).sum(-1, keepdim=True)
    least = state["quantum"][:, :1]
    ratios = torch.cat([torch.cat([error, running, spread, scale, least], 1) / s, z_size], 1)
    numbers = torch.cat(
        [
            torch.cat([forecast - m, state["extremes"] - SIDES * m], 1) / s,
            state["z"],
            seasonal,
            (slot.value + below) / (above + below + 1e-3 * scale),
            (m - mean) / torch.sqrt(variance + 0.01 * scale**2),
            past.regressors[:, 0, 0],
        ],
        1,
    )
    counts = torch.cat([weight, state["missing"].clamp(max=MOST_MISSING)], 1)
    return torch.cat(
        [
            torch.log(ratios.clamp(LEAST_RATIO, 1 / LEAST_RATIO)),
            numbers.clamp(-NUMBER_BOUND, NUMBER_BOUND),
            torch.log1p(counts),
            expert,
            share,
            state["repeat"],
            shares,
            season.known,
            z_likely,
        ],
        -1,
    )
