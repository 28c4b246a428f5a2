"""Forecast slots further ahead, directly at some horizons, with bands that hold what they state.

    row ─> errors of the forecasts that were made of it h slots before ─> weights, widths, factor
        └> experts' forecasts of the slot h slots later ─> mixture ─> quantiles times the factor

No forecast is fed back. An expert weighs more the smaller its mean error, which is remembered the
longer the further ahead a horizon is: errors of forecasts that overlap are alike, and say little
each. The factor widens or narrows the band around its median until 80 % of the values lie between
the quantiles at 10 and 90 % that were forecast for them. So the bands are taught by how earlier
ones held, as they were given out.

    persistence, season, seasonal trend, changes with long memory, levels    as in `experts`
    climate of 8, of 3 seasons     mean of the values at the slot's phase
    return                         the climate of 4 seasons, and what the newest value is above its
                                   own climate, halved every half season

Letters of shapes: B streams, R horizons, K experts, W widths, F regressors, S waiting forecasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.train.contract import State
from edgefold.train.models.sensors import experts as bank
from edgefold.train.models.sensors.mixture import Mixture
from edgefold.train.models.sensors.past_values import Past, values_at
from edgefold.train.models.sensors.slot import Slot

N_EXPERTS = 8
FITTED = slice(1, 3)
"""The least squares that are used: of changes with long memory, and of levels."""
FORGET = tuple(bank.FORGET)[FITTED]
"""Their memories."""
WIDTHS, SHARES = (0.3, 1.0, 2.5), (0.3, 0.6, 0.1)
"""Standard deviations of an expert's normals in its own errors, and their weights."""
POWER = 5.0
"""Weights of experts fall with their mean errors to this power."""
RATE, FACTOR_RATE = 0.02, 0.05
"""Shares of a new error in the mean and in the factor, one slot ahead; they fall with the root of
the horizon."""
MOST_RATE, EARLY = 0.1, 5.0
FIRST_FACTOR, FACTOR_BOUND, ERROR_BOUND = 0.85, 2.0, 6.0
LEAST_ERROR, FIRST_ERROR = 0.02, 1.25
"""Least mean error of an expert, and the one before the first value, in scales. No largest one: at
night the scale of a solar inverter is a small part of its errors by day."""
FIRST = 10
"""Number of slots that must have come before a forecast for anything to be learned from it."""
MEAN_TO_STD = 1.25
"""A normal's standard deviation in its mean absolute errors."""
BAND = tuple(SENSOR_LEVELS.index(level) for level in (0.1, 0.5, 0.9))
OUTSIDE = 0.2
"""Share of values outside the band of `BAND`."""
CLIMATES, RETURN, STRIDE = (8, 3), 4, 16
"""Numbers of seasons whose mean is a climate, and that of the return; and the slots that stand for
a season where there is none."""
LEAST_HALF = 4.0
SHAPE = (0, 1, 5, 6)
"""Experts whose weights a path reads: persistence, the season before, and both climates."""
N_USUAL = 24
"""Number of seasons whose mean is the usual value: it adds 1/24 to the variance of what is left."""
N_WAITING = 128
"""Most forecasts of a season ahead that wait: of longer seasons every second, third... slot's."""


@dataclass(frozen=True, slots=True)
class Matured:
    """Holds what was forecast of a slot, as it was made each horizon before.

    Attributes:
        forecast: By the experts, (B, R, K).
        band: The quantiles at 10, 50 and 90 %, (B, R, 3).
        known: 1.0 where a forecast is compared with the slot, else 0.0, (B, R, 1).
        stride: Number of slots from one forecast that is compared to the next, (B, R, 1).
    """

    forecast: Tensor
    band: Tensor
    known: Tensor
    stride: Tensor


class Further:
    """Forecasts of several streams at horizons (numbers of slots ahead) of 2 and more.

    Args:
        horizons: The horizons, rising; one season is added as the last.
    """

    def __init__(self, horizons: tuple[int, ...]):
        self._horizons = horizons
        self._n = len(horizons) + 1

    def initial_state(self, n_streams: int) -> State:
        """Return the state of n_streams streams that have seen no row."""
        zeros, n, n_kept = torch.zeros, self._n, N_EXPERTS + len(BAND)
        return {
            **bank.initial_least_squares(n_streams, n, len(FORGET)),
            "newest": zeros(n_streams, n, n_kept),
            "waiting": zeros(n_streams, sum(h - 1 for h in self._horizons), n_kept),
            "waiting_season": zeros(n_streams, N_WAITING, n_kept),
            "total": zeros(n_streams, n, N_EXPERTS),
            "weight": zeros(n_streams, n, 1),
            "factor": torch.full((n_streams, n, 1), FIRST_FACTOR),
            "shape": torch.full((n_streams, n, len(SHAPE)), 1 / N_EXPERTS),
        }

    def matured(self, state: State, slot: Slot, settled: Tensor) -> Matured:
        """Return the forecasts of a slot that were made at each horizon before it.

        `settled` (B, 1) is 1.0 where the slot has a value and the stream a scale.
        """
        length = slot.horizon[:, -1:]  # of the season, or what stands for it
        stride = _stride(length)
        then = slot.n[..., None] - length
        place = _place(then, stride)
        waited = state["waiting_season"].gather(1, place.expand(-1, -1, N_EXPERTS + len(BAND)))
        kept = torch.cat([*self._oldest(state), waited], 1)
        forecast, band = kept.split([N_EXPERTS, len(BAND)], -1)
        due = torch.ones_like(slot.horizon[:, :-1], dtype=torch.bool)
        of_season = ((then % stride) == stride - 1) & (slot.age[..., None] >= length.float())
        known = (slot.n[..., None] >= slot.horizon + FIRST) & torch.cat([due, of_season], 1)
        return Matured(
            forecast,
            band,
            known.float() * settled[..., None],
            torch.cat([torch.ones_like(slot.horizon[:, :-1]), stride], 1).float(),
        )

    def learned(self, state: State, row: Matured, past: Past, slot: Slot) -> State:
        """Return what the stream learns from a slot; queues and forecasts are not in it."""
        scale, known = slot.scale[..., None], row.known
        usual = _error(state, scale)
        fitted = bank.least_squares(state, *of_fitted(past), slot, known, usual[..., :1], FORGET)
        value, root = slot.value[..., None], torch.sqrt(slot.horizon.float())
        rate = (RATE * row.stride / root).clamp(max=MOST_RATE) * known
        error = torch.minimum((value - row.forecast).abs(), ERROR_BOUND * usual)
        low, middle, high = row.band.split(1, -1)
        side = torch.where(value > middle, high - middle, middle - low)
        outside = ((value - middle).abs() > state["factor"] * side).float()
        # Bands that were made before errors were known teach nothing.
        n_bands = slot.n[..., None] - 2 * slot.horizon - 2 * FIRST
        early = row.stride / (n_bands.clamp(min=0) + slot.horizon + EARLY)
        step = torch.maximum(FACTOR_RATE * row.stride / root, early).clamp(max=0.5)
        step = step * known * (n_bands >= 0)
        factor = state["factor"] * torch.exp(step * (outside - OUTSIDE))
        return {
            **fitted,
            "total": (1 - rate) * state["total"] + known * error,
            "weight": (1 - rate) * state["weight"] + known,
            "factor": factor.clamp(1 / FACTOR_BOUND, FACTOR_BOUND),
        }

    def forecast(
        self, state: State, trends: Tensor, past: Past, values: Tensor, slot: Slot, scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Forecast the slots after `slot`.

        Args:
            state: What the stream has learned, with the slot.
            trends: Forecasts of the expert "seasonal trend", (B, R, 1).
            past: What the experts read of the past, the slot included.
            values: The last values, (B, N); the slot's own need not be among them.
            slot: The newest slot.
            scale: Scale of the stream (its mean absolute change) after the slot, (B, 1).

        Returns:
            The experts' forecasts and their weights, (B, R, K) each; the means of their mixture,
            (B, R); and its quantiles at `SENSOR_LEVELS` without the factor, (B, R, Q).
        """
        newest, scale = slot.value[..., None], scale[..., None]
        regressors, bases = of_fitted(past)
        fitted = bases + (regressors * state["weights"]).sum(-1) * scale
        each = torch.cat([past.simple[..., :2], trends, fitted, *_climates(values, slot)], -1)
        each = bank.finite(each, newest)
        error = _error(state, scale)
        weight = (-POWER * torch.log(error)).softmax(-1)
        widths, shares = scale.new_tensor(WIDTHS), scale.new_tensor(SHARES)
        mixture = Mixture(
            each.repeat_interleave(len(WIDTHS), -1),
            (MEAN_TO_STD * error[..., None] * widths).flatten(-2),
            (weight[..., None] * shares).flatten(-2),
            weight,
        )
        levels = scale.new_tensor(SENSOR_LEVELS).expand(*each.shape[:2], -1)
        return each, weight, mixture.middle()[..., 0], mixture.quantiles(levels)

    def kept(
        self, state: State, forecast: Tensor, weight: Tensor, quantiles: Tensor, slot: Slot
    ) -> State:
        """Return what is kept of the newest forecasts, as `forecast` returned them."""
        newest = torch.cat([forecast, quantiles[..., list(BAND)]], -1)
        made = state["newest"].split(1, 1)  # after the slot before
        queues = list[Tensor]()
        for made_of, queue in zip(made, self._queues(state), strict=False):
            queues += [made_of, queue[:, :-1]] if queue.shape[1] > 1 else [made_of]
        return {
            "newest": newest,
            "shape": weight[..., list(SHAPE)],
            "waiting": torch.cat(queues, 1),
            "waiting_season": newest[:, -1:],
            "waiting_slot": _place(slot.n[..., None], _stride(slot.horizon[:, -1:]))[:, 0, 0],
        }

    def _queues(self, state: State) -> tuple[Tensor, ...]:
        """Return the forecasts that wait, a tensor for each horizon, the newest first."""
        return state["waiting"].split([h - 1 for h in self._horizons], 1)

    def _oldest(self, state: State) -> list[Tensor]:
        return [queue[:, -1:] for queue in self._queues(state)]


def banded(quantiles: Tensor, factor: Tensor) -> Tensor:
    """Return quantiles (B, R, Q), widened or narrowed around their median by a factor (B, R, 1)."""
    middle = quantiles[..., BAND[1], None]
    return middle + factor * (quantiles - middle)


def of_fitted(past: Past) -> tuple[Tensor, Tensor]:
    """Return the regressors (B, R, L, F) and the bases (B, R, L) of the L least squares in use."""
    return past.regressors[:, :, FITTED], past.bases[..., FITTED]


def usual_value(values: Tensor, slot: Slot) -> Tensor:
    """Return the mean of the values one, two ... `N_USUAL` seasons before a slot, (B, 1).

    `values` (B, N) are the last values. Without a season the result means nothing.
    """
    back = slot.season.length * torch.arange(1, N_USUAL + 1)
    held, is_there = values_at(values, (slot.n - back)[:, None], slot)
    return slot.value + _mean(held - slot.value[..., None], is_there)[:, 0]


def _error(state: State, scale: Tensor) -> Tensor:
    """Return each expert's mean absolute error, (B, R, K), bounded below in scales (B, 1, 1)."""
    # In the unit of the values: beside a tiny scale, the error of one that is no value overflows.
    error = state["total"] / state["weight"].clamp(min=1.0)
    error = torch.where(state["weight"] > 0, error, FIRST_ERROR * scale)
    return torch.maximum(error, LEAST_ERROR * scale)


def _climates(values: Tensor, slot: Slot) -> list[Tensor]:
    """Return the forecasts of both climates and of the return, (B, R, 1) each."""
    newest, known = slot.value[..., None], slot.season.known[..., None] > 0
    length = torch.where(known, slot.season.length[..., None], STRIDE)  # (B, 1, 1)
    first = (slot.horizon + length - 1) // length
    ahead = slot.n[..., None] + slot.horizon - length * first
    seasons = length * torch.arange(max(*CLIMATES, RETURN))
    apart, is_there = values_at(values, ahead - seasons, slot)
    now, was_there = values_at(values, slot.n[..., None] - length - seasons[..., :RETURN], slot)
    long, short, back = (
        _mean(apart[..., :n] - newest, is_there[..., :n]) for n in (*CLIMATES, RETURN)
    )
    here = _mean(now - newest, was_there)
    half = (0.5 * length.float()).clamp(min=LEAST_HALF)
    left = torch.exp2(-slot.horizon.float() / half)
    return [newest + long, newest + short, newest + back - left * here]


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Return the mean over the last axis of the values that count; 0 where there are none."""
    return (values * counted).sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1.0)


def _stride(length: Tensor) -> Tensor:
    """Return how many slots of a season of `length` share one place among those that wait."""
    return (length + N_WAITING - 3) // (N_WAITING - 2)


def _place(n: Tensor, stride: Tensor) -> Tensor:
    """Return the place at which the forecast made after slot n waits for a season."""
    return (n.clamp(min=0) // stride) % N_WAITING
