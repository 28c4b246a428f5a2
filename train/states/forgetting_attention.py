"""Let a running attention forget: a point's weight falls by half in each half-life.

Half-lives are counted in points. The score of a point falls with its age a, the number of points
learned after it:

    attended = sum_i w_i v_i / sum_i w_i,   w_i = exp(s_i - rate a_i),   rate = ln 2 / half-life

With fixed queries that is still an attention in constant memory (Feng et al. 2024, section 3.1.1):
its sums change by one factor, exp(-rate), at each point. The newest point always has its full
weight, so that a new point still counts after a million others. `decayed_attention` forgets with
time instead.

The device's state is that of `running_attention` (recent sums and base sums) and `recent_age`, the
number of points in its recent sums, (B, 1, 1, 1). The base ages at `consolidate`; until then
`attended` ages the base as it reads it. A peak, the largest score in a sum, falls with the points
that it belongs to. It is rounded there, so factors are computed from the difference of two peaks,
which is exact: the sums make up for the rounding of the peak.

Letters of shapes: B streams, U points, K blocks, H heads, L latents, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from edgefold.train.contract import State
from edgefold.train.layers.attention import EMPTY, Attention
from edgefold.train.states.running_attention import (
    HIDDEN_SCORE,
    LEAST_EXPONENT,
    STATE,
    RunningAttentionOnDevice,
    attend_further,
)
from edgefold.train.states.running_sums import accumulated


def require_half_lives(half_lives: Sequence[float]) -> None:
    """Check that each half-life is 0 or at least one point; raise ValueError otherwise."""
    for half_life in half_lives:
        if not (half_life == 0 or 1 <= half_life < math.inf):
            raise ValueError(
                f"half_lives has {half_life!r}, must be points from 1 on, or 0 for never"
            )


def rates_of(half_lives: Sequence[float], n_latents: int) -> Tensor:
    """Return the number that a latent's scores lose at each point, (L,), from half-lives in points.

    The half-lives are given to the latents in turn; a half-life of 0 means never to forget.
    """
    rates = [math.log(2) / half_life if half_life else 0.0 for half_life in half_lives]
    return torch.tensor([rates[latent % len(rates)] for latent in range(n_latents)])


def ages_of(points: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the age of each of U points (B, U, ...), and how many of them are real.

    The age is the number of real points after a point, (B, U). The number of real points is (B, 1).
    The mask (B, U) is True for real points.
    """
    real = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
    so_far = real.cumsum(1)
    return so_far[:, -1:] - so_far, so_far[:, -1:]


def aged(scores: Tensor, ages: Tensor, rates: Tensor) -> Tensor:
    """Return scores (..., H, L, U) lowered by the rates (L,) times the ages (B, U) of U points."""
    return scores - rates[:, None] * ages[:, None, None, None]


def attend_and_forget(
    state: State, scores: Tensor, v: Tensor, mask: Tensor | None, rates: Tensor
) -> State:
    """Return the state of the latents' attention after U points that age all points before them.

    Args:
        state: `attended` (B, K, H, L, D/H), the attention to all points so far, and `log_count`
            (B, K, H, L, 1), the logarithm of its normaliser.
        scores: Scores of the points, (B, K, H, L, U), -inf where masked.
        v: Values of the points, (B, K, H, U, D/H).
        mask: True for real points, (B, U); None if all are.
        rates: Number that a latent's scores lose at each point, (L,).
    """
    ages, n_real = ages_of(v[:, 0, 0], mask)
    log_count = aged(state["log_count"], n_real, rates)
    before = {"attended": state["attended"], "log_count": log_count}
    return attend_further(before, aged(scores, ages, rates), v)


class ForgettingAttentionOnDevice(RunningAttentionOnDevice):
    """Lets latents attend to points that lose weight with age, on a device; constants are folded.

    Args:
        layer: Attention layers of K blocks, with a leading axis of K.
        latents: Latents of each block, (K, L, D).
        rates: Number that a latent's scores lose at each point, (L,).
    """

    rates: Tensor

    def __init__(self, layer: Attention, latents: Tensor, rates: Tensor):
        super().__init__(layer, latents)
        self.register_buffer("rates", rates)

    def initial_state(self, n_streams: int = 1) -> State:
        state = super().initial_state(n_streams)
        return {**state, "recent_age": self.queries.new_zeros(n_streams, 1, 1, 1)}

    def update(self, state: State, normal: Tensor) -> State:
        keys = self.keys(normal).view(-1, self.all_heads, 1, self.head)
        values = self.values(normal).view(-1, self.all_heads, self.head + 1, 1)
        scores = keys @ self.queries  # (B, K*H, 1, L)
        peak = torch.maximum(state["recent_peak"] - self.rates, scores)
        share = torch.exp((state["recent_peak"] - peak) - self.rates)
        return {
            "recent_sums": state["recent_sums"] * share + values * torch.exp(scores - peak),
            "recent_peak": peak,
            "recent_age": state["recent_age"] + 1.0,
            "finite": normal.sum(1),
        }

    def condition(self, state: State, normal: Tensor, n_points: int, mask: Tensor | None) -> State:
        keys = self.keys(normal).view(-1, n_points, self.all_heads, self.head)
        values = self.values(normal)
        ages, n_real = ages_of(normal.view(-1, n_points, normal.shape[-1]), mask)
        forgotten = self.rates * n_real[..., None, None]  # (B, 1, 1, L)
        scores = keys.transpose(1, 2) @ self.queries  # (B, K*H, U, L)
        scores = scores - self.rates * ages[:, None, :, None]
        if mask is not None:
            values = torch.where(mask.reshape(-1, 1), values, 0.0)
            scores = torch.where(mask[:, None, :, None], scores, HIDDEN_SCORE)
        values = values.view(-1, n_points, self.all_heads, self.head + 1)
        peak = torch.maximum(state["recent_peak"] - forgotten, scores.amax(2, keepdim=True))
        share = torch.exp((state["recent_peak"] - peak) - forgotten)
        weights = torch.exp((scores - peak).clamp(min=LEAST_EXPONENT))
        return {
            "recent_sums": state["recent_sums"] * share + values.permute(0, 2, 3, 1) @ weights,
            "recent_peak": peak,
            "recent_age": state["recent_age"] + n_real[..., None, None],
            "finite": values.sum((1, 2, 3)),
        }

    def consolidate(self, state: State) -> State:
        """Let the sums of older points forget, add the recent sums to them, and empty these."""
        sums, peak, base, rest, base_peak = (state[name] for name in STATE)
        forgotten = self.rates * state["recent_age"]
        next_peak = torch.maximum(base_peak - forgotten, peak)
        keep = torch.exp((base_peak - next_peak) - forgotten)
        added = sums * torch.exp(peak - next_peak)
        next_base, next_rest = accumulated(base * keep, rest * keep, added)
        return {
            "recent_sums": sums * 0.0,  # zeros_like would be a constant, kept in memory
            "recent_peak": peak * 0.0 + EMPTY,
            "recent_age": state["recent_age"] * 0.0,
            "base_sums": next_base,
            "base_rest": next_rest,
            "base_peak": next_peak,
        }

    def attended(self, state: State) -> Tensor:
        sums, peak, base, rest, base_peak = (state[name] for name in STATE)
        forgotten = self.rates * state["recent_age"]
        top = torch.maximum(base_peak - forgotten, peak)
        share = torch.exp((base_peak - top) - forgotten)
        both = (base + rest) * share + sums * torch.exp(peak - top)
        weighted, count = both.split([self.head, 1], 2)
        return weighted / count.clamp(min=1e-30)
