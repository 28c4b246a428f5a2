"""What a network sees of a stream: numbers without units, bounded whatever comes.

z is the value in the coordinates of the mixture that forecast it: z = Phi^-1(F(value)), normal with
mean 0 and deviation 1 where the mixture is right. m is the experts' weighted mean, s its running
error.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from edgefold.train.models.sensors.experts import N_EXPERTS
from edgefold.train.models.sensors.mixture import SHARES, Mixture
from edgefold.train.models.sensors.past import N_REGRESSORS, Past
from edgefold.train.models.sensors.slot import Season, Slot

N_LAGS = 6
N_STEPS = 7
N_LIKELY = N_STEPS + 2
"""Values that may come exactly: m and its neighbours in steps of the sensor's quantum, and the ends
of its range."""
MEMORIES = (0.8, 0.98, 0.998)
"""Of the running errors of m; the second is s."""
LEAST_TAIL, Z_BOUND = 1e-7, 6.0
Z_RATE, REPEAT_RATE, LEVEL_RATE, EXTREME_RATE = 0.03, 0.02, 0.005, 2e-4
RANGE_BOUND, ERROR_BOUND = 1000.0, 30.0
"""How far the stream's slow mean and its extremes may lie from where they belong, and the largest
error of m that counts, in scales."""
E_ABS_Z = math.sqrt(2 / math.pi)
N_FEATURES = (
    (N_EXPERTS + 8) + (N_EXPERTS + 2 + N_LAGS + 3 + N_REGRESSORS) + 2 + N_EXPERTS + len(SHARES) + 6
    + N_LIKELY
)  # fmt: skip
PATIENCE, QUANTUM_RATE, MOST_TURNS, LEAST_QUANTUM = 0.01, 0.05, 1e4, 1e-30
"""How much greater than the quantum a change may be for each that came since, to replace it."""
LEAST_RATIO, NUMBER_BOUND, MOST_MISSING = 1e-3, 8.0, 1e4
ABOVE, BELOW = (2.515517, 0.802853, 0.010328), (1.0, 1.432788, 0.189269, 0.001308)
"""Coefficients of the normal quantile: Abramowitz and Stegun 1964, 26.2.23."""


def normal_score(below: Tensor, above: Tensor) -> Tensor:
    """Phi^-1 of the mass below, from both tails, to 4.5e-4 and within +-5.2.

    As the coordinate in which a density is corrected it need not be exact: see `network`.
    """
    tail = torch.minimum(below, above).clamp(LEAST_TAIL, 0.5)
    t = torch.sqrt(-2 * torch.log(tail))
    size = t - _polynomial(ABOVE, t) / _polynomial(BELOW, t)
    return torch.where(above < below, size, -size)


def _polynomial(coefficients: tuple[float, ...], t: Tensor) -> Tensor:
    """The polynomial with these coefficients, of rising power."""
    found = torch.full_like(t, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        found = found * t + coefficient
    return found


def initial_features(n_streams: int, longest: int) -> dict[str, Tensor]:
    """What features remember of a stream that has seen nothing."""
    zeros = torch.zeros
    return {
        "z": zeros(n_streams, N_LAGS),  # newest first
        "z_season": zeros(n_streams, longest),
        "z_size": torch.tensor([E_ABS_Z, 1.0]).repeat(n_streams, 1),  # of |z| and of z^2
        "squared": zeros(n_streams, len(MEMORIES)),
        "weight": zeros(n_streams, len(MEMORIES)),
        "repeats": zeros(n_streams, 2),  # running share; whether the newest was one
        "level": zeros(n_streams, 2),  # slow mean and variance
        "extremes": zeros(n_streams, 2),
        "missing": zeros(n_streams, 1),  # slots since a value was measured
        "quantum": zeros(n_streams, 4),  # see `_quantum`
        "ends": zeros(n_streams, 4),  # least and greatest value of late; how often it is just that
    }


def expected(weight: Tensor, forecast: Tensor) -> Tensor:
    """m: the weighted mean of forecasts (B, K), (B, 1)."""
    return (weight * forecast).sum(-1, keepdim=True)


def learned(state: dict[str, Tensor], z: Tensor, middle: Tensor, slot: Slot) -> dict[str, Tensor]:
    """The memory after a slot; `z_season` is one row of its ring, (B, 1).

    Args:
        state: The memory.
        z: Of the slot's value, (B, 1).
        middle: m, by which the slot was forecast, (B, 1).
        slot: The slot.
    """
    gate = slot.measured * slot.started
    z = z * gate
    first = 1 - slot.started
    memory = torch.tensor(MEMORIES)
    error = (slot.value - middle).abs()
    size = _error(state, slot.scale)[:, 1:2]
    most = torch.minimum(6 * torch.maximum(size, slot.scale), ERROR_BOUND * slot.scale)
    squared = torch.minimum(error, most) ** 2
    decay = 1 - (1 - memory) * gate
    repeat = (slot.value == slot.newest).float()
    mean, variance = state["level"].split(1, 1)
    apart = slot.value - mean
    reach = RANGE_BOUND * slot.scale
    mean = mean + LEVEL_RATE * apart
    mean = torch.minimum(torch.maximum(mean, slot.value - reach), slot.value + reach)
    mean = torch.where(first > 0, slot.value, mean)
    variance = variance + LEVEL_RATE * (torch.minimum(apart.abs(), reach) ** 2 - variance)
    extremes = state["extremes"] + EXTREME_RATE * (mean - state["extremes"])
    ends = _ends(state["ends"], extremes, slot)
    low, high = extremes.split(1, 1)
    low, high = torch.minimum(low, slot.value), torch.maximum(high, slot.value)
    extremes = torch.cat([torch.maximum(low, mean - reach), torch.minimum(high, mean + reach)], 1)
    extremes = torch.where(first > 0, slot.value, extremes)
    z_size = torch.cat([z.abs(), z**2], 1) - state["z_size"]
    return {
        "z": torch.cat([z, state["z"][:, :-1]], 1),
        "z_season": z,
        "z_size": state["z_size"] + Z_RATE * gate * z_size,
        "squared": decay * state["squared"] + gate * squared,
        "weight": decay * state["weight"] + gate,
        "repeats": torch.cat(
            [state["repeats"][:, :1] + REPEAT_RATE * gate * (repeat - state["repeats"][:, :1]),
             repeat], 1
        ),
        "level": torch.cat([mean, torch.where(first > 0, 0.0, variance)], 1),
        "extremes": extremes,
        "quantum": _quantum(state["quantum"], slot),
        "ends": ends,
        "missing": torch.where(slot.measured > 0, 0.0, state["missing"] + 1),
    }  # fmt: skip


def _quantum(quantum: Tensor, slot: Slot) -> Tensor:
    """What is known of a sensor's steps, (B, 4), after a slot.

    The quantum, which is the least change other than 0 of late; the changes since it was found; how
    far changes are from its multiples, in quanta; the last value that was measured. A sensor of
    whole degrees has a quantum of 1 and a distance of 0; without steps the distance is a quarter.
    """
    least, since, distance, last = quantum.split(1, 1)
    change = (slot.value - last).abs()
    moved = (change > 0) & (slot.measured * slot.started > 0)
    found = moved & ((change <= least * (1 + PATIENCE * since)) | (least == 0))
    turns = (change / least.clamp(min=LEAST_QUANTUM)).clamp(max=MOST_TURNS)
    apart = (turns - torch.round(turns)).abs()
    return torch.cat(
        [
            torch.where(found, change, least),
            torch.where(found, 0.0, since + moved.float()),
            torch.where(moved, distance + QUANTUM_RATE * (apart - distance), distance),
            torch.where(slot.measured > 0, slot.value, last),
        ],
        1,
    )


def _ends(ends: Tensor, extremes: Tensor, slot: Slot) -> Tensor:
    """The ends of the range as values that came, and how often they come, (B, 4), after a slot.

    extremes: The ends as the stream's memory has them, without the slot, (B, 2).
    """
    end, share = ends.split(2, 1)
    side = torch.tensor([-1.0, 1.0])
    reached = (side * (slot.value - extremes) >= 0) | (slot.started == 0)
    share = share + REPEAT_RATE * ((slot.value == end).float() - share)
    found = torch.cat([torch.where(reached, slot.value, end), share], 1)
    return torch.where(slot.measured > 0, found, ends)


def _steps(state: dict[str, Tensor], m: Tensor) -> Tensor:
    """The values next to m (B, 1) that are whole quanta from the last one, rising, (B, N_STEPS)."""
    least, _, _, last = state["quantum"].split(1, 1)
    turns = torch.round((m - last) / least.clamp(min=LEAST_QUANTUM))
    turns = turns.clamp(-MOST_TURNS, MOST_TURNS)
    half = N_STEPS // 2
    return last + least * (turns + torch.linspace(-half, half, N_STEPS))


def _error(state: dict[str, Tensor], scale: Tensor) -> Tensor:
    """The running errors of m, (B, 3)."""
    running = torch.sqrt(state["squared"] / state["weight"].clamp(min=1e-3))
    running = torch.where(state["weight"] > 1.5, running, 1.25 * scale)
    return torch.maximum(running, 0.05 * scale)


def features(
    state: dict[str, Tensor], ring: Tensor, mixture: Mixture, share: Tensor, forecast: Tensor,
    error: Tensor, past: Past, slot: Slot, season: Season, scale: Tensor, weight: Tensor,
) -> Tensor:  # fmt: skip
    """The features of the slot after `slot`, (B, N_FEATURES).

    The last N_LIKELY are z of the values that may come exactly.

    Args:
        state: The memory after the slot.
        ring: z of a season of slots, (B, S), with or without the slot's.
        mixture: The density of the coming slot, of one horizon.
        share: Of its widths, (B, W).
        forecast: Of the experts at the first horizon, (B, K).
        error: Their running errors, (B, K).
        past: At the position after the slot.
        slot: The newest.
        season: At the slot after it.
        scale: After the slot, (B, 1).
        weight: How many changes the scale is the mean of, (B, 1).
    """
    expert = mixture.expert[:, 0]
    m = expected(expert, forecast)
    running = _error(state, scale)
    s = running[:, 1:2]
    likely = torch.cat([_steps(state, m), state["ends"][:, :2]], 1)
    z_likely = normal_score(*mixture.tails(likely[:, None]))[:, 0]
    mean, variance = state["level"].split(1, 1)
    low, high = state["extremes"].split(1, 1)
    back = (slot.n + 1 - season.length) % ring.shape[1]
    seasonal = torch.where(season.length > 1, ring.gather(1, back), 0.0)
    spread = ((forecast - m).abs() * expert).sum(-1, keepdim=True)
    least, _, distance, _ = state["quantum"].split(1, 1)
    ratios = torch.cat(
        [torch.cat([error, running, spread, scale, least], 1) / s, state["z_size"]], 1
    )
    apart = torch.cat([forecast - m, m - low, high - m], 1) / s
    numbers = torch.cat(
        [
            apart,
            state["z"],
            seasonal,
            (slot.value - low) / (high - low + 1e-3 * scale),
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
            state["repeats"],
            distance,
            state["ends"][:, 2:],
            season.known,
            z_likely,
        ],
        -1,
    )
