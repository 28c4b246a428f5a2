"""CMANP rewritten so that a device does as little as possible; it predicts what `Cmanp` predicts.

The state has two levels, because plain float32 sums stop growing after some million points:

    recent_sums (B, K*H, D/H + 1, L)   plain sums of the last points' weighted values; the last row
    recent_peak (B, K*H, 1, L)         is the sum of weights, the peak the largest score in it
    base_sums, base_rest               everything older, as pairs of floats whose sum is the value
    base_peak

    update, condition   points -> recent
    consolidate         recent -> base, by compensated sums (Knuth's TwoSum); recent is emptied
    refresh             recent + base -> keys and values of the query layers
    query               keys and values -> prediction

The latents (L) lie innermost, because a broadcast along many contiguous floats costs a runtime far
less than one along D/H: an update takes 2.1 times as long the other way round. Sums stay
unnormalised: that saves the divisions at every point (1.25 times), and makes consolidation an
addition. Layer norms are folded into the matrices behind them, and what is computed from learned
latents alone is a constant.

A narrow type (float16) is for what lies behind the state: refresh, query, and the cache between
them. What stays float32, and why (gp-small, gp-paper and series-co2 with every node rounded):

    the update       scores reach 460 at gp-small, where float16 resolves 0.25: a worst latent of
                     the state is off by 1e-2, for as long as the state lives, and by 4e-4 if the
                     values alone are half. The state is held to 1e-5, so no part of it is.
    W x + b, sin     in half it blurs x by 1e-3 and doubles the error of every prediction
    the last layer   so that predictions do not lie on float16's grid

Attention scores, softmax, layer norms and the residual stream of refresh and query lose nothing
that can be measured in half. Nothing there overflows, however large x and y are: the update's layer
norm bounds what follows it, and sines or a clip what a query begins with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.models.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.models.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
    rounded,
    scaled,
)
from edgefold.train.models.embeddings_device import embedding_on_device
from edgefold.train.models.layers import EMPTY, Attention, FeedForward
from edgefold.train.models.running_sums import CONSOLIDATE_EVERY, accumulated

if TYPE_CHECKING:
    from edgefold.train.models.cmanp import Cmanp

HIDDEN_SCORE = -3e38
"""Score of a masked row: it never raises a peak. Its value is 0, whatever its weight is."""

LEAST_EXPONENT = -87.0
"""e to this power, 1.6e-38, is close to the least normal float32. Many x86 cores compute smaller
ones 20 times slower, and no sum of float32 shows the difference."""

STATE = ("recent_sums", "recent_peak", "base_sums", "base_rest", "base_peak")


class BlockOnDevice(nn.Module):
    """All layers of block k, those of a stack and its own."""

    def __init__(self, model: Cmanp, k: int, n_streams: int, dtype: torch.dtype):
        super().__init__()

        def attention(layer: Attention) -> AttentionOnDevice:
            return AttentionOnDevice(layer, n_streams, dtype, k)

        def feedforward(layer: FeedForward) -> FeedForwardOnDevice:
            return FeedForwardOnDevice(layer, dtype, k)

        weight, bias = exact(model.context_attention.out)
        start = (model.block_latents[k].double() + bias[k]).repeat(n_streams, 1)
        self.context_out = Affine((weight[k], start), dtype)
        self.context_ff = feedforward(model.context_ff)
        self.latent_attention = attention(model.latent_attention)
        self.latent_ff = feedforward(model.latent_ff)
        own = model.block(k)
        self.attention, self.ff = attention(own.block_attention), feedforward(own.block_ff)
        self.self_attention = attention(own.block_self_attention)
        self.self_ff = feedforward(own.block_self_ff)
        self.query_attention = attention(own.query_attention)
        self.query_ff = feedforward(own.query_ff)

    def latents(self, attended: Tensor) -> Tensor:
        """The block's own latents after phase one; attended (B*L, D)."""
        latents = self.context_ff(self.context_out(attended))
        return self.latent_ff(self.latent_attention(latents))


class CmanpOnDevice(StreamingModel):
    """The rewrite of one model for a fixed number of streams; see the top of this file."""

    ordered = False
    consolidate_every = CONSOLIDATE_EVERY
    queries: Tensor
    first_queries: Tensor
    start: Tensor

    def __init__(self, model: Cmanp, n_streams: int, dtype: str = "float32"):
        super().__init__()
        c = self.config = model.config
        self.n_inputs, self.n_outputs, self.input_range = c.n_inputs, c.n_outputs, model.input_range
        self.n_streams, self.dtype = n_streams, getattr(torch, dtype)
        self.head, self.all_heads = c.width // c.n_heads, c.n_blocks * c.n_heads
        self.embedding = embedding_on_device(model.embedding, dtype)
        self._fold_context_attention(model)
        self._fold_first_queries(model)
        blocks = (BlockOnDevice(model, k, n_streams, self.dtype) for k in range(c.n_blocks))
        self.blocks = cast("list[BlockOnDevice]", nn.ModuleList(blocks))
        self._fold_head(model)

    def _fold_head(self, model: Cmanp) -> None:
        c = self.config
        self.head_up = Affine(fold(model.head_norm, model.head_up), self.dtype)
        weight, bias = exact(model.head_down)
        self.mean = Affine((weight[:, : c.n_outputs], bias[: c.n_outputs]))
        self.log_std = Affine((weight[:, c.n_outputs :], bias[c.n_outputs :]))

    @torch.no_grad()
    def _fold_context_attention(self, model: Cmanp) -> None:
        """The fixed queries, and one matrix for all blocks' keys and one for all values.

        Each head's values end with the constant 1, so that the attention's normaliser is one more
        feature of its sum.
        """
        c, layer, n = self.config, model.context_attention, self.head
        assert layer.context_norm is not None
        weight, bias = scaled(fold(layer.norm, layer.q), c.n_heads)
        queries = normalise(model.block_latents.double()) @ weight + bias[:, None]  # (K, L, D)
        queries = queries.view(c.n_blocks, -1, c.n_heads, n).permute(0, 2, 3, 1)
        self.register_buffer("queries", queries.reshape(self.all_heads, n, -1).float())
        weight, bias = fold(layer.context_norm, layer.k)
        self.keys = Affine((weight.transpose(0, 1).reshape(c.width, -1), bias.reshape(-1)))
        weight, bias = fold(layer.context_norm, layer.v)
        weight = F.pad(weight.transpose(0, 1).reshape(c.width, self.all_heads, n), (0, 1))
        bias = F.pad(bias.reshape(self.all_heads, n), (0, 1), value=1.0)
        self.values = Affine((weight.reshape(c.width, -1), bias.reshape(-1)))

    @torch.no_grad()
    def _fold_first_queries(self, model: Cmanp) -> None:
        """The first block's queries come from learned latents: constants, like those above."""
        first, n_heads = model.block(0).block_attention, self.config.n_heads
        weight, bias = scaled(fold(first.norm, first.q), n_heads)
        latents = model.input_latents.double()
        queries = (normalise(latents) @ weight + bias).view(1, -1, n_heads, self.head)
        self.register_buffer("first_queries", rounded(queries.transpose(1, 2), self.dtype))
        self.register_buffer("start", rounded(latents.repeat(self.n_streams, 1), self.dtype))

    def initial_state(self, n_streams: int = 1) -> State:
        lead, n_latents = (n_streams, self.all_heads), self.config.n_latents
        sums = self.queries.new_zeros(*lead, self.head + 1, n_latents)
        peak = self.queries.new_full((*lead, 1, n_latents), EMPTY)
        return {name: (peak if "peak" in name else sums).clone() for name in STATE}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        normal = normalise(self.embedding(x, y))  # (B, D), shared by all blocks
        keys = self.keys(normal).view(-1, self.all_heads, 1, self.head)
        values = self.values(normal).view(-1, self.all_heads, self.head + 1, 1)
        scores = keys @ self.queries  # (B, K*H, 1, L)
        peak = torch.maximum(state["recent_peak"], scores)
        added = values * torch.exp(scores - peak)
        return self._grown(state, peak, added, normal.sum(1))

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        n_points = x.shape[1]
        x, y = x.reshape(-1, self.n_inputs), y.reshape(-1, self.n_outputs)  # (B*U, ...)
        real = None if mask is None else mask.reshape(-1, 1)
        if real is not None:
            x, y = torch.where(real, x, 0.0), torch.where(real, y, 0.0)
        normal = normalise(self.embedding(x, y))
        keys = self.keys(normal).view(-1, n_points, self.all_heads, self.head)
        values = self.values(normal)
        if real is not None:
            values = torch.where(real, values, 0.0)
        values = values.view(-1, n_points, self.all_heads, self.head + 1)
        scores = keys.transpose(1, 2) @ self.queries  # (B, K*H, U, L)
        if mask is not None:
            scores = torch.where(mask.reshape(-1, 1, n_points, 1), scores, HIDDEN_SCORE)
        peak = torch.maximum(state["recent_peak"], scores.amax(2, keepdim=True))
        weights = torch.exp((scores - peak).clamp(min=LEAST_EXPONENT))
        added = values.permute(0, 2, 3, 1) @ weights
        return self._grown(state, peak, added, values.sum((1, 2, 3)))

    def _grown(self, state: State, peak: Tensor, added: Tensor, finite: Tensor) -> State:
        kept = torch.exp(state["recent_peak"] - peak)
        return {
            "recent_sums": state["recent_sums"] * kept + added,
            "recent_peak": peak,
            # Finite points give bounded normalised rows and values, and those finite sums: the sum
            # of the rows or of their values stands for the whole step.
            "finite": finite,
        }

    def consolidate(self, state: State) -> State:
        """Add the recent sums to the base by compensated summation, and empty them."""
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

    def refresh(self, state: State) -> Cache:
        """Everything behind the running attentions, to the query layers' keys and values.

        Block by block, though the first phase of all blocks could run as one batch: a block's
        tensors stay in a core's cache, and the largest (the attention weights) exist once.
        """
        sums, peak, base, rest, base_peak = (state[name] for name in STATE)
        top = torch.maximum(base_peak, peak)
        both = (base + rest) * torch.exp(base_peak - top) + sums * torch.exp(peak - top)
        weighted, count = both.split([self.head, 1], 2)
        # A latent that has seen nothing has count 0: it attends to nothing, which is the prior.
        attended = (weighted / count.clamp(min=1e-30)).to(self.dtype)
        hidden = self.start
        cache: Cache = {}
        for k, (block, heads) in enumerate(
            zip(self.blocks, attended.split(self.config.n_heads, 1), strict=True)
        ):
            rows = heads.reshape(len(peak), self.config.width, -1).mT  # (B, L, D)
            normal = normalise(block.latents(rows.reshape(-1, self.config.width)))
            queries = block.attention.queries(normalise(hidden)) if k else self.first_queries
            keys_values = block.attention.keys_values(normal)
            hidden = block.ff(block.attention.attend(hidden, queries, *keys_values))
            hidden = block.self_ff(block.self_attention(hidden))
            keys, values = block.query_attention.keys_values(normalise(hidden))
            cache |= {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}
        return cache

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """What the query layers make of targets x (B, M, X): (B*M, D)."""
        hidden = self.embedding(x.reshape(-1, self.n_inputs)).to(self.dtype)  # (B*M, D)
        for k, block in enumerate(self.blocks):
            queries = block.query_attention.queries(normalise(hidden))
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            hidden = block.query_ff(block.query_attention.attend(hidden, queries, keys, values))
        return hidden

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        shape = (*x.shape[:2], self.n_outputs)
        hidden = torch.relu(self.head_up(normalise(self.decoded(cache, x)))).float()
        mean, std = self.mean(hidden), torch.exp(self.log_std(hidden))
        return {"mean": mean.view(shape), "std": std.view(shape)}
