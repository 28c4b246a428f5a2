"""Let learned latents attend to a stream of events and forget with time, in constant memory.

The score of an event falls with its age: s_i - rate (t - t_i). With fixed queries that is still an
attention in constant memory (Feng et al. 2024, section 3.1.1): relative to the present, its sums
change by one factor, exp(-rate gap), at each event, where gap is the time since the event before.
So the sums are bounded for ever, and the newest event always has a weight. The normaliser, sum_i
exp(s_i - rate (t - t_i)), says how many events came lately: that is the excitation of a Hawkes
process. An average loses this number. So the latents read

    sum_i w_i v_i / (1 + sum_i w_i)   and   log(1 + sum_i w_i),   w_i = exp(s_i - rate (t - t_i)),

which is an attention to the events and to a silent event of score 0 and value 0, and the logarithm
of the weights that it counts. After a long time without events both are 0, as in the beginning.

Letters of shapes: B streams, N events, K blocks, H heads, L latents, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from edgefold.train.contract import State
from edgefold.train.layers.attention import EMPTY, Attention
from edgefold.train.states.running_attention import RunningAttentionOnDevice, attend_further

CHUNK = 25
"""Number of events of a sequence that are attended to as one matrix: memory and time grow with it,
and the number of steps from chunk to chunk falls."""
PEAK_HELD = 16.0
"""Exponent by which a device's sums may fall below their scale until a new scale is taken."""
LEAST_COUNT = 1e-30
"""Smallest count of which the logarithm is taken."""


def attend_next(state: State, scores: Tensor, v: Tensor, aged: Tensor) -> State:
    """Return the state of the latents' attention after one more event of each stream.

    Args:
        state: `attended` (B, ..., L, D/H), the attention to all events so far, and `log_count`
            (B, ..., L, 1), the logarithm of its normaliser.
        scores: Scores of the event, (B, ..., L, 1).
        v: Values of the event, (B, ..., 1, D/H).
        aged: Rate times the time since the event before, (B, ..., L, 1).
    """
    log_count = (state["log_count"] - aged).clamp(min=EMPTY)
    return attend_further({"attended": state["attended"], "log_count": log_count}, scores, v)


def attend_along(scores: Tensor, v: Tensor, times: Tensor, rates: Tensor) -> State:
    """Return the states of `attend_next` before the first event and after each, for training.

    Args:
        scores: Scores of the events, (B, K, H, L, N).
        v: Values of the events, (B, K, H, N, D/H).
        times: Times since the start of each sequence, (B, N), float64, so that their differences
            are exact to float32.
        rates: Rates of forgetting, (K, H, L), for one unit of time.

    Returns:
        `attended` (B, N + 1, K, H, L, D/H) and `log_count` (B, N + 1, K, H, L, 1).
    """
    attended = scores.new_zeros(*scores.shape[:-1], 1, v.shape[-1])
    log_count = scores.new_full((*scores.shape[:-1], 1), EMPTY)
    before, chunks = times.new_zeros(len(times), 1), [(attended, log_count[..., None])]
    for start in range(0, scores.shape[-1], CHUNK):
        part = slice(start, start + CHUNK)
        now = times[:, part]
        ages = (now[:, :, None] - now[:, None]).clamp(min=0.0)  # (B, C, C)
        later = torch.ones_like(ages[0], dtype=torch.bool).triu(1)
        logits = scores[..., None, part] - _per_latent(ages, rates)
        logits = logits.masked_fill(later, -torch.inf)
        carried = (log_count - _per_latent(now - before, rates)).clamp(min=EMPTY)
        counts = torch.logaddexp(carried, logits.logsumexp(-1))  # (B, K, H, L, C)
        weights, share = torch.exp(logits - counts[..., None]), torch.exp(carried - counts)
        along = weights @ v[..., None, part, :] + share[..., None] * attended
        chunks.append((along, counts[..., None]))
        attended, log_count, before = along[..., -1:, :], counts[..., -1:], now[:, -1:]
    names = ("attended", "log_count")
    both = zip(names, zip(*chunks, strict=True), strict=True)
    return {name: torch.cat(parts, 4).movedim(4, 1) for name, parts in both}


def _per_latent(ages: Tensor, rates: Tensor) -> Tensor:
    """Multiply ages (B, ...) by the latents' rates (K, H, L): return (B, K, H, L, ...)."""
    ages = ages.to(rates.dtype).reshape(len(ages), 1, 1, 1, *ages.shape[1:])
    return rates.reshape(*rates.shape, *(1,) * (ages.ndim - 4)) * ages


def beside_a_silent_one(state: State) -> tuple[Tensor, Tensor]:
    """Return what latents read from the state, with one more event, of score 0 and value 0.

    It is the attention, (B, ..., L, D/H), and the logarithm of the sum of weights, (B, ..., L, 1).
    """
    log_count = state["log_count"]
    return state["attended"] * torch.sigmoid(log_count), F.softplus(log_count)


class DecayedAttentionOnDevice(RunningAttentionOnDevice):
    """Lets latents attend to events that lose weight with time, on a device; constants are folded.

    State: `sums` (B, K*H, D/H + 1, L), of which the last row is the sum of weights, and `peak` (B,
    K*H, 1, L), the logarithm of their scale: about the largest score that counts now, at least 0,
    the score of a silent event that latents always see. Sums are kept divided by exp(peak).

    Args:
        layer: Attention layers of K blocks, with a leading axis of K.
        latents: Latents of each block, (K, L, D).
        rates: Rates of forgetting, (K, H, L), for one unit of time.
    """

    rates: Tensor

    def __init__(self, layer: Attention, latents: Tensor, rates: Tensor):
        super().__init__(layer, latents)
        self.register_buffer("rates", rates.detach().float().reshape(self.all_heads, 1, -1))

    def initial_state(self, n_streams: int = 1) -> State:
        lead, n_latents = (n_streams, self.all_heads), self.queries.shape[-1]
        return {
            "sums": self.queries.new_zeros(*lead, self.head + 1, n_latents),
            "peak": self.queries.new_zeros(*lead, 1, n_latents),
        }

    def after(self, state: State, normal: Tensor, gap: Tensor) -> State:
        """Return the state after one event of each stream.

        Args:
            state: State before the event.
            normal: Embedded and normalised event, (B, D).
            gap: Time since the event before, (B,).
        """
        keys = self.keys(normal).view(-1, self.all_heads, 1, self.head)
        values = self.values(normal).view(-1, self.all_heads, self.head + 1, 1)
        scores = keys @ self.queries  # (B, K*H, 1, L)
        sums, peak = state["sums"], state["peak"]
        aged = gap[:, None, None, None] * self.rates
        # The largest it may be is the logarithm of what the sums hold now. Lowered at each event,
        # it would be rounded at each event; the sums, which are small, lose less.
        level = peak + sums[:, :, -1:].clamp(min=LEAST_COUNT).log() - aged
        held = torch.where(peak - level < PEAK_HELD, peak, level)
        top = torch.maximum(held, scores).clamp(min=0.0)
        share, added = torch.exp((peak - top) - aged), torch.exp(scores - top)
        return {"sums": sums * share + values * added, "peak": top}

    def attended(self, state: State) -> Tensor:
        """Return the attention that the latents read, (B, K*H, D/H + 1, L).

        The last row of each head is the logarithm of the sum of weights, the silent event's 1
        included.
        """
        weighted, count = state["sums"].split([self.head, 1], 2)
        total = count + torch.exp(-state["peak"])
        return torch.cat([weighted / total, state["peak"] + total.log()], 2)
