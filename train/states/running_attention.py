"""Let learned latents attend to a stream of points, in constant memory.

The queries never change, so that softmax(q k^T) v over all points so far is a running average (Feng
et al. 2024, section 3.1.1). In PyTorch it is kept normalised, with the logarithm of its normaliser:

    attended (B, ..., L, D/H), log_count (B, ..., L, 1)

On a device the state has two levels, because plain float32 sums stop growing after some million
points:

    recent_sums (B, K*H, D/H + 1, L)   plain sums of the last points' weighted values; the last row
    recent_peak (B, K*H, 1, L)         is the sum of weights, the peak the largest score in it
    base_sums, base_rest               the same of older points, as pairs whose sum is the value
    base_peak

    update, condition   points -> recent
    consolidate         recent -> base, by compensated sums (Knuth's TwoSum); recent is emptied
    merge               both states -> base, by compensated sums; recent is emptied
    attended            recent + base -> what the latents attend to

The latents (L) lie innermost, because a broadcast along many contiguous floats costs a runtime far
less than one along D/H. Sums stay unnormalised: that saves the divisions at every point, and makes
consolidation an addition.

Letters of shapes: B streams, U points, K blocks, H heads, L latents, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import State
from edgefold.train.layers.attention import EMPTY, Attention
from edgefold.train.layers.device_layers import Affine, fold, normalise, scaled
from edgefold.train.states.running_sums import accumulated, settled, two_sum

HIDDEN_SCORE = -3e38
"""Score of a masked row. It never raises a peak, and the row's value is 0, whatever its weight
is."""

LEAST_EXPONENT = -87.0
"""Least exponent of a weight: e to this power, 1.6e-38, is close to the least normal float32. Many
x86 cores compute with smaller numbers 20 times slower, and no sum of float32 shows the
difference."""

STATE = ("recent_sums", "recent_peak", "base_sums", "base_rest", "base_peak")


def empty_attention(like: Tensor, *shape: int) -> State:
    """Return the state of an attention that has seen no point; shape is (B, ..., L, D/H).

    `like` gives the type and the device of the tensors.
    """
    return {
        "attended": like.new_zeros(*shape),
        "log_count": like.new_full((*shape[:-1], 1), EMPTY),
    }


def scores_values(
    layer: Attention, latents: Tensor, points: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute scores and values of embedded points (B, U, D) for latents (K, L, D).

    The mask (B, U) is True for real points.

    Returns:
        Scores (B, K, H, L, U), -inf where masked, and values (B, K, H, U, D/H).
    """
    points = points.expand(len(latents), *points.shape)
    k, v = (t.transpose(0, 1) for t in layer.keys_values(points))  # (B, K, H, U, D/H)
    scores = layer.queries(latents) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, None], -torch.inf)
    return scores, v


def attend_further(state: State, scores: Tensor, v: Tensor) -> State:
    """Return the state, `attended` and `log_count`, after U more points.

    `attended` is the rolling average of Feng et al. 2024 (section 3.1.1, second display). Scores
    are (B, ..., L, U), -inf where masked, and values v (B, ..., U, D/H). The paper's update of the
    normaliser, `log c + softplus(t)`, is written as logaddexp: the same, also for the empty state.
    """
    log_count = torch.logaddexp(state["log_count"], scores.logsumexp(-1, keepdim=True))
    share = torch.exp(state["log_count"] - log_count)
    attended = share * state["attended"] + torch.exp(scores - log_count) @ v
    return {"attended": attended, "log_count": log_count}


def attend_at_once(scores: Tensor, v: Tensor) -> Tensor:
    """Attend to a whole context by one softmax (Feng et al. 2024, 3.1): return (B, ..., L, D/H).

    Scores are (B, ..., L, U), -inf where masked, and values (B, ..., U, D/H). A latent with no
    visible point has count 0 and attends to nothing: the result is 0, as in the empty state.
    """
    top = scores.amax(-1, keepdim=True).clamp(min=EMPTY).detach()
    weights = torch.exp(scores - top)
    count = weights.sum(-1, keepdim=True)
    return (weights @ v) / count.clamp(min=1e-30)


def merged(left: State, right: State) -> State:
    """Join the states of two streams: return the state after the points of both, in any order."""
    log_count = torch.logaddexp(left["log_count"], right["log_count"])
    attended = sum(
        torch.exp(side["log_count"] - log_count) * side["attended"] for side in (left, right)
    )
    assert isinstance(attended, Tensor)
    return {"attended": attended, "log_count": log_count}


class RunningAttentionOnDevice(nn.Module):
    """Lets the latents of K blocks attend to points, with sums of recent and of older points.

    The fixed queries are constants. One matrix makes all blocks' keys and one all values. The
    values of each head end with the constant 1, so that the attention's normaliser is one more
    feature of its sum.

    Args:
        layer: Attention layers of K blocks, with a leading axis of K.
        latents: Latents of each block, (K, L, D).
    """

    queries: Tensor

    @torch.no_grad()
    def __init__(self, layer: Attention, latents: Tensor):
        super().__init__()
        assert layer.context_norm is not None
        n_blocks, _, width = latents.shape
        self.head, self.all_heads = width // layer.n_heads, n_blocks * layer.n_heads
        n = self.head
        weight, bias = scaled(fold(layer.norm, layer.q), layer.n_heads)
        queries = normalise(latents.double()) @ weight + bias[:, None]  # (K, L, D)
        queries = queries.view(n_blocks, -1, layer.n_heads, n).permute(0, 2, 3, 1)
        self.register_buffer("queries", queries.reshape(self.all_heads, n, -1).float())
        weight, bias = fold(layer.context_norm, layer.k)
        self.keys = Affine((weight.transpose(0, 1).reshape(width, -1), bias.reshape(-1)))
        weight, bias = fold(layer.context_norm, layer.v)
        weight = F.pad(weight.transpose(0, 1).reshape(width, self.all_heads, n), (0, 1))
        bias = F.pad(bias.reshape(self.all_heads, n), (0, 1), value=1.0)
        self.values = Affine((weight.reshape(width, -1), bias.reshape(-1)))

    def initial_state(self, n_streams: int = 1) -> State:
        lead, n_latents = (n_streams, self.all_heads), self.queries.shape[-1]
        sums = self.queries.new_zeros(*lead, self.head + 1, n_latents)
        peak = self.queries.new_full((*lead, 1, n_latents), EMPTY)
        return {name: (peak if "peak" in name else sums).clone() for name in STATE}

    def update(self, state: State, normal: Tensor) -> State:
        """Learn one point of each stream, embedded and normalised, (B, D), for all blocks."""
        keys = self.keys(normal).view(-1, self.all_heads, 1, self.head)
        values = self.values(normal).view(-1, self.all_heads, self.head + 1, 1)
        scores = keys @ self.queries  # (B, K*H, 1, L)
        peak = torch.maximum(state["recent_peak"], scores)
        added = values * torch.exp(scores - peak)
        return self._grown(state, peak, added, normal.sum(1))

    def condition(self, state: State, normal: Tensor, n_points: int, mask: Tensor | None) -> State:
        """Learn embedded and normalised points, (B*U, D), with U = n_points for each stream.

        The mask (B, U) is True for real points. Rows that it hides must be finite too.
        """
        keys = self.keys(normal).view(-1, n_points, self.all_heads, self.head)
        values = self.values(normal)
        if mask is not None:
            values = torch.where(mask.reshape(-1, 1), values, 0.0)
        values = values.view(-1, n_points, self.all_heads, self.head + 1)
        scores = keys.transpose(1, 2) @ self.queries  # (B, K*H, U, L)
        if mask is not None:
            scores = torch.where(mask.reshape(-1, 1, n_points, 1), scores, HIDDEN_SCORE)
        peak = torch.maximum(state["recent_peak"], scores.amax(2, keepdim=True))
        weights = torch.exp((scores - peak).clamp(min=LEAST_EXPONENT))
        added = values.permute(0, 2, 3, 1) @ weights
        return self._grown(state, peak, added, values.sum((1, 2, 3)))

    def _grown(self, state: State, peak: Tensor, added: Tensor, finite: Tensor) -> State:
        share = torch.exp(state["recent_peak"] - peak)
        return {
            "recent_sums": state["recent_sums"] * share + added,
            "recent_peak": peak,
            # Finite points give bounded normalised rows and values, and those finite sums: the sum
            # of the rows or of their values stands for the whole step.
            "finite": finite,
        }

    def consolidate(self, state: State) -> State:
        """Add the recent sums to those of older points by compensated sums, and empty them."""
        sums, peak, base, rest, base_peak = (state[name] for name in STATE)
        next_peak = torch.maximum(base_peak, peak)
        keep = torch.exp(base_peak - next_peak)  # exactly 1 unless the peak rose
        added = sums * torch.exp(peak - next_peak)
        next_base, next_rest = accumulated(base * keep, rest * keep, added)
        return {
            "recent_sums": sums * 0.0,  # zeros_like would be a constant, kept in memory
            "recent_peak": peak * 0.0 + EMPTY,
            "base_sums": next_base,
            "base_rest": next_rest,
            "base_peak": next_peak,
        }

    def merge(self, state: State, other: State) -> State:
        """Join the states of two streams: return the state after the points of both.

        Sums are added as `consolidate` adds them. The ones with the lower peak are multiplied by
        exp(lower peak - higher peak), which float32 rounds: a point's weight changes by a relative
        error below 2e-7 each time that another state with a higher peak joins.
        """
        peaks = [side[name] for side in (state, other) for name in ("base_peak", "recent_peak")]
        peak = torch.maximum(torch.maximum(*peaks[:2]), torch.maximum(*peaks[2:]))
        own, recent, others, others_recent = (torch.exp(one - peak) for one in peaks)
        # One sum after the other: so few of them are in memory at once.
        total, error = two_sum(state["base_sums"] * own, state["recent_sums"] * recent)
        rest = state["base_rest"] * own + error
        total, error = two_sum(total, other["base_sums"] * others)
        rest = (rest + other["base_rest"] * others) + error
        total, error = two_sum(total, other["recent_sums"] * others_recent)
        base, rest = settled(total, rest + error)
        return {
            "recent_sums": state["recent_sums"] * 0.0,
            "recent_peak": state["recent_peak"] * 0.0 + EMPTY,
            "base_sums": base,
            "base_rest": rest,
            "base_peak": peak,
            "finite": base.flatten(1).sum(1),  # what overflows anywhere makes the base NaN
        }

    def attended(self, state: State) -> Tensor:
        """Return the result of the latents' attention to all points, (B, K*H, D/H, L)."""
        sums, peak, base, rest, base_peak = (state[name] for name in STATE)
        top = torch.maximum(base_peak, peak)
        both = (base + rest) * torch.exp(base_peak - top) + sums * torch.exp(peak - top)
        weighted, count = both.split([self.head, 1], 2)
        # A latent that has seen nothing has count 0: it attends to nothing, which is the prior.
        return weighted / count.clamp(min=1e-30)
