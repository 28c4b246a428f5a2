"""Define the experts: cheap online forecasters at several horizons, in a state of fixed size.

    persistence     the newest value
    season          the value one season before the one forecast
    drift           the newest value and the season's change since then
    level           the mean of 32 values
    trend           the best of 8 Holt filters
    seasonal trend  the best of 6 Holt-Winters filters, damped
    least squares   of the changes, with short and with long memory, and of the levels; one for
                    each horizon, direct: no forecast is fed back

The best filter is the one with the least squared error, remembered for some 100 slots. Least
squares keep a root S of the inverse Gram matrix P = S S' (Potter 1963; see `examples/rls.py`),
learn from an error clipped at three times its running size, and bound P by a ridge that is never
forgotten. Least squares whose error stays far above that of persistence begin again: no forgetting
would undo what garbage taught them.

Letters of shapes: B streams, H horizons, K experts, N filters, S filters with a season, F
regressors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgefold.train.models.sensors.past_values import N_REGRESSORS, Past
from edgefold.train.models.sensors.scale import within
from edgefold.train.models.sensors.slot import Slot

NAMES = (
    *("persistence", "season", "drift", "level", "trend", "seasonal trend"),
    *("changes, short memory", "changes, long memory", "levels"),
)
N_EXPERTS = len(NAMES)
DAMPED = 0.98
HOLT = tuple((a, b, p) for a in (0.1, 0.3, 0.6, 0.9) for b, p in ((0.0, 1.0), (0.1, 0.9)))
WINTERS = tuple((a, b, DAMPED) for a in (0.1, 0.4, 0.8) for b in (0.0, 0.1))
FILTERS = HOLT + WINTERS
"""Settings of the filters: smoothing of the level, smoothing of the trend, and damping of the
trend. The last ones (`WINTERS`) have a season."""
PULLS = tuple(g * (1 - a) for (a, _, _), g in zip(WINTERS, (0.3, 0.05) * 3, strict=True))
"""Share of an error that each filter with a season adds to the season."""
FORGET = (0.995, 0.9998, 0.998)
RIDGE_FLOOR = 1e-6
MEMORY = 0.99
ERROR_BOUND, LEVEL_BOUND, TREND_BOUND = 50.0, 1000.0, 10.0
"""Bounds in scales of the stream: the largest error that counts; how far a filter's level may be
from the newest value, and its season from 0; how far its trend may be from 0."""
CLIP, LEAST_TYPICAL = 3.0, 0.3
LOST = 5.0
"""Factor above persistence's running error from which least squares count as taught by garbage."""
LARGEST = 1e30


def initial_experts(n_streams: int, n_horizons: int, longest: int) -> dict[str, Tensor]:
    """Return the state of experts that have seen no value.

    `filters` (B, 3, N) holds level, trend and squared error of each filter; `season` (B, S,
    longest) the number that each filter with a season adds at each phase; `root`, `weights` and
    `error` the three least squares at each horizon. `longest` is the longest season, in slots.
    """
    return {
        "filters": torch.zeros(n_streams, 3, len(FILTERS)),
        "season": torch.zeros(n_streams, len(WINTERS), longest),
        **initial_least_squares(n_streams, n_horizons, len(FORGET)),
    }


def initial_least_squares(n_streams: int, n_horizons: int, n: int) -> dict[str, Tensor]:
    """Return the state of n least squares at each horizon that have seen no value."""
    return {
        "root": torch.eye(N_REGRESSORS).repeat(n_streams, n_horizons, n, 1, 1),
        "weights": torch.zeros(n_streams, n_horizons, n, N_REGRESSORS),
        "error": torch.ones(n_streams, n_horizons, n),
    }


def forecasts(
    state: dict[str, Tensor], ring: Tensor, past: Past, slot: Slot, scale: Tensor
) -> Tensor:
    """Return each expert's forecast at each horizon of the slots after `slot`, (B, H, K).

    Args:
        state: State of the experts after the slot, as `learned` returns it: `season` (B, S, 1) has
            only what the filters with a season add at the slot's phase.
        ring: What these filters add at each phase, (B, S, slots), as before the slot.
        past: What the experts read of the past, the slot included.
        slot: The newest slot.
        scale: Scale of the stream (its mean absolute change) after the slot, (B, 1).
    """
    newest = slot.value[..., None]
    fitted = (past.regressors * state["weights"]).sum(-1) * scale[..., None]
    each = [past.simple, *trends(state, ring, past, slot, scale), past.bases + fitted]
    return finite(torch.cat(each, -1), newest)


def finite(forecasts: Tensor, newest: Tensor) -> Tensor:
    """Return forecasts, and the newest value in place of each that is no finite number."""
    return torch.where(forecasts.abs() < LARGEST, forecasts, newest)  # false for NaN


def trends(
    state: dict[str, Tensor], ring: Tensor, past: Past, slot: Slot, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the forecasts of the experts "trend" and "seasonal trend", (B, H, 1) each.

    The arguments are those of `forecasts`.
    """
    newest, scale = slot.value[..., None], scale[..., None]
    squared = state["filters"][:, 2:]
    plain, seasonal = squared.split([len(HOLT), len(WINTERS)], -1)
    # Of a stream's first changes all errors count for the bound alike: in float64 as in float32 the
    # first filter is the best one then, not the one that is ahead by 1e-9.
    sizes = (of.float() for of in (plain, seasonal))
    best, best_seasonal = (of.argmin(-1, keepdim=True) for of in sizes)  # (B, 1, 1)
    place = best_seasonal * ring.shape[2] + slot.phase  # (B, H, 1)
    turns = ring.flatten(1)[..., None].gather(1, place)
    added = state["season"].gather(1, best_seasonal)
    turns = torch.where(slot.phase == slot.season.phase[..., None], added, turns)
    turns = within(turns, LEVEL_BOUND, scale)  # what spikes left there
    both = torch.cat([best, len(HOLT) + best_seasonal], -1)
    ahead = _filters_ahead(state["filters"], slot.horizon.float())
    holt, winters = ahead.gather(2, both.expand(-1, ahead.shape[1], -1)).split(1, -1)
    return holt, torch.where(past.season, winters + turns, newest)


def _filters_ahead(filters: Tensor, steps: Tensor) -> Tensor:
    """Return each filter's forecast `steps` (B, H, 1) slots ahead, without seasons, (B, H, N).

    `filters` (B, 3, N) are level, trend and squared error of each.
    """
    level, trend, _ = filters.split(1, 1)
    damping = torch.tensor([phi for _, _, phi in FILTERS])
    below = torch.where(damping < 1, damping, 0.5)
    sums = (below / (1 - below)) * (1 - below**steps)
    return level + trend * torch.where(damping < 1, sums, steps)


def learned(
    state: dict[str, Tensor], past: Past, slot: Slot, known: Tensor, usual: Tensor
) -> dict[str, Tensor]:
    """Return the experts' state after a slot; of `season` only the slot's entries, (B, S, 1).

    Args:
        state: State of the experts before the slot.
        past: What the experts read of the past when they forecast the slot, at each horizon.
        slot: The slot that came.
        known: 1.0 where the least squares of a horizon learn from it, else 0.0, (B, H, 1).
        usual: Running error of the expert "persistence", (B, H, 1).
    """
    phase = slot.season.phase[..., None].expand(-1, len(WINTERS), -1)
    season = state["season"].gather(2, phase).mT * slot.passed[..., None]  # (B, 1, N)
    season = within(season, LEVEL_BOUND, slot.scale[..., None])
    filters, error = _filtered(state["filters"], season, slot)
    return {
        "filters": filters,
        "season": (season + torch.tensor(PULLS) * error).mT,
        **least_squares(state, past.regressors, past.bases, slot, known, usual),
    }


def _filtered(filters: Tensor, season: Tensor, slot: Slot) -> tuple[Tensor, Tensor]:
    """Return filters after a slot, (B, 3, N), and the errors that their seasons learn, (B, 1, S).

    A filter is level, trend and squared error. `season` (B, 1, S) is the number that each filter
    with a season adds at the slot.
    """
    alpha, beta, phi = torch.tensor(FILTERS).T
    value, scale = slot.value[..., None], slot.scale[..., None]
    measured, started = slot.measured[..., None], slot.started[..., None]
    level, trend, squared = filters.split(1, 1)
    forecast = level + phi * trend
    added = torch.cat([season.new_zeros(len(season), 1, len(HOLT)), season], -1)
    error = (value - forecast - added) * (measured * started)
    scaled = (error / scale).clamp(-ERROR_BOUND, ERROR_BOUND)
    reach = LEVEL_BOUND * scale
    level = forecast + alpha * error
    level = torch.minimum(torch.maximum(level, value - reach), value + reach)
    level = torch.where(started > 0, level, value)
    trend = within(phi * trend + alpha * beta * error, TREND_BOUND, scale)
    squared = torch.where(measured > 0, MEMORY * squared + scaled**2, squared)
    return torch.cat([level, trend, squared], 1), scale * scaled[..., len(HOLT) :]


def least_squares(
    state: dict[str, Tensor],
    regressors: Tensor,
    bases: Tensor,
    slot: Slot,
    known: Tensor,
    usual: Tensor,
    forget: tuple[float, ...] = FORGET,
) -> dict[str, Tensor]:
    """Return the state of L least squares after a slot, by Potter's update.

    Args:
        state: Before the slot: `root` (B, H, L, F, F) is the root of the inverse Gram matrix,
            `weights` (B, H, L, F) are the coefficients, `error` (B, H, L) the running errors.
        regressors: Of each, as the past was when the slot was forecast, (B, H, L, F).
        bases: Numbers to which each adds its forecast, (B, H, L).
        slot: The slot that came.
        known: 1.0 where the least squares of a horizon learn from it, else 0.0, (B, H, 1).
        usual: Running error of the expert "persistence", (B, H, 1).
        forget: Share of the Gram matrix of each that remains after a slot.
    """
    scale = slot.scale[..., None]
    lost = state["error"] * scale > LOST * torch.maximum(usual, scale)  # (B, H, L)
    root = torch.where(lost[..., None, None], torch.eye(N_REGRESSORS), state["root"])
    weights = torch.where(lost[..., None], 0.0, state["weights"])
    running = torch.where(lost, 1.0, state["error"])
    kept = torch.tensor(forget)[:, None, None]
    wanted = (slot.value[..., None] - bases) / scale
    error = wanted - (regressors * weights).sum(-1)  # (B, H, L)
    bound = CLIP * running.clamp(min=LEAST_TYPICAL)
    clipped = torch.minimum(torch.maximum(error, -bound), bound) * known
    seen = regressors[..., None, :] @ root  # x' S, (B, H, L, 1, F)
    whole = kept + (seen * seen).sum(-1, keepdim=True)  # (B, H, L, 1, 1)
    grow = kept**-0.5 - 1
    shrink = (1 + grow) / (whole + torch.sqrt(kept * whole))
    # One coordinate's share of the ridge a slot: all in turn cost a fifteenth of all at once.
    turn = (slot.n % N_REGRESSORS)[:, :, None, None, None]
    row = root.gather(3, turn.expand(-1, *root.shape[1:3], -1, N_REGRESSORS))  # (B, H, L, 1, F)
    ridge = 0.5 * N_REGRESSORS * RIDGE_FLOOR * (1 - kept)
    rows = torch.cat([seen, row], -2)
    products = root @ rows.mT  # (B, H, L, F, 2)
    learns = known[..., None, None]
    taken = torch.cat([shrink, ridge.expand_as(shrink)], -1) * learns  # (B, H, L, 1, 2)
    gain = products[..., 0] / whole[..., 0]  # (B, H, L, F)
    size = torch.minimum(error.abs(), 2 * bound)
    return {
        "root": (1 + grow * learns) * root - (taken * products) @ rows,
        "weights": weights + gain * clipped[..., None],
        "error": running + (1 - MEMORY) * (size - running) * known,
    }
