"""Keep points on a device, and let the latents of several blocks attend to them.

A point is kept in one of two forms, with the capacity N:

    KeptKeys      keys (B, K*H, N, D/H + 1) and values (B, K*H, N, D/H) of every block
    KeptPoints    points (B, N, D + 1), the normalised row and a 1

Empty slots need no mask. A kept key ends with 0, an empty one is 0 and ends with -1, and the
queries' last number is `NEGLIGIBLE` less the score of slot 0: an empty slot's score is that far
below a real one, whatever its size, and no weight is a denormal number. Empty values are 0, so that
a stream that has seen nothing attends to nothing, which is the prior. (A mask that is added to the
scores would cost a pass over them.)

Where the scores of all heads together are large, attention goes head by head, so that they stay in
a core's cache and the largest tensor of the graph is smaller by the number of heads.

Letters of shapes: B streams, N points, K blocks, L latents, H heads, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import State
from edgefold.train.layers.attention import NEGLIGIBLE, Attention
from edgefold.train.layers.buffer_attention import with_key_column
from edgefold.train.layers.device_layers import (
    Affine,
    ResidualNorm,
    Weights,
    constant_rows,
    exact,
    fold,
    scaled,
)
from edgefold.train.states.point_buffer import PointBuffer

Contexts = list[tuple[Tensor, Tensor]]
"""Keys (B, heads, N, D/H + 1) and values (B, heads, N, D/H) of the points, for each group of
heads."""

MOST_SCORES = 2**18
"""Number of attention scores that are computed together, 1 MB of them: about half of a core's
cache."""


def folded_contexts(layers: Sequence[Attention]) -> list[tuple[Weights, Weights]]:
    """Return the weights of each layer's keys and values, which read normalised points.

    The layer norm is folded in. Each key gets one number more, a last 0, which marks a real point.
    """
    contexts = []
    for layer in layers:
        assert layer.context_norm is not None
        weight, bias = (
            with_key_column(weights, layer.n_heads, 0.0)
            for weights in fold(layer.context_norm, layer.k)
        )
        contexts.append(((weight, bias), fold(layer.context_norm, layer.v)))
    return contexts


class KeptKeys(nn.Module):
    """Keeps the keys and values of each point for every block in the state.

    Args:
        c: The settings of the model, of which sizes, `capacity` and `when_full` are taken.
        layers: The trained attention of each block's latents to the points.
        heads_at_once: Number of heads that attend at once: `contexts` returns groups of so many.
    """

    def __init__(self, c: Any, layers: Sequence[Attention], heads_at_once: int):
        super().__init__()
        self.step, self.n_heads, self.capacity = heads_at_once, c.n_heads, c.capacity
        head, all_heads = c.width // c.n_heads, c.n_blocks * c.n_heads
        rows = {"keys": (all_heads, head + 1), "values": (all_heads, head)}
        self.buffer = PointBuffer(c.capacity, c.when_full, rows, axis=2)
        keys, values = (
            Affine((torch.cat([w for w, _ in sides], 1), torch.cat([b for _, b in sides])))
            for sides in zip(*folded_contexts(layers), strict=True)
        )
        self.keys, self.values = keys, values

    def initial_state(self, n_streams: int) -> State:
        state = self.buffer.initial_state(n_streams)
        return state | {"keys": state["keys"] - 1}

    def rows(self, normal: Tensor) -> State:
        """Compute the rows that the state keeps of normalised points (B, D), by tensor name."""
        shapes = self.buffer.rows
        return {
            name: layer(normal).view(-1, *shapes[name])
            for name, layer in (("keys", self.keys), ("values", self.values))
        }

    def contexts(self, state: State, k: int) -> Contexts:
        """Return block k's keys and values of the points, without a reservoir's spare slot."""
        starts = range(k * self.n_heads, (k + 1) * self.n_heads, self.step)
        return [
            (
                state["keys"][:, first : first + self.step, : self.capacity],
                state["values"][:, first : first + self.step, : self.capacity],
            )
            for first in starts
        ]


class KeptPoints(nn.Module):
    """Keeps each normalised point and a 1 in the state, from which keys and values are computed.

    Their biases multiply the 1. So an empty slot, which holds zeros, gets the value 0 and a key
    that ends with -1, the mark of an empty slot; keys of points end with 0.

    Args:
        c: The settings of the model, of which sizes, `capacity` and `when_full` are taken.
        layers: The trained attention of each block's latents to the points.
        heads_at_once: Number of heads that attend at once: `contexts` returns groups of so many.
    """

    def __init__(self, c: Any, layers: Sequence[Attention], heads_at_once: int):
        super().__init__()
        self.step, self.capacity = heads_at_once, c.capacity
        self.buffer = PointBuffer(c.capacity, c.when_full, {"points": (c.width + 1,)})
        groups = c.n_heads // heads_at_once
        self.keys, self.values = nn.ModuleList(), nn.ModuleList()
        for (key, key_bias), (value, value_bias) in folded_contexts(layers):
            last = with_key_column(torch.zeros(c.width).double(), c.n_heads, 1.0)
            keys = torch.vstack([key, key_bias + last]).chunk(groups, 1)
            values = torch.vstack([value, value_bias]).chunk(groups, 1)
            for products, sides, bias in (
                (self.keys, keys, -last.chunk(groups)[0]),
                (self.values, values, torch.zeros(c.width // groups)),
            ):
                products.append(nn.ModuleList(Affine((side, bias)) for side in sides))

    def initial_state(self, n_streams: int) -> State:
        return self.buffer.initial_state(n_streams)

    def rows(self, normal: Tensor) -> State:
        """Compute the rows that the state keeps of normalised points (B, D), by tensor name."""
        return {"points": F.pad(normal, (0, 1), value=1.0)}

    def contexts(self, state: State, k: int) -> Contexts:
        """Compute block k's keys and values of the points, without a reservoir's spare slot."""
        points = state["points"][:, : self.capacity]
        shape = (len(points), self.capacity, self.step, -1)
        rows = points.flatten(0, 1)
        keys, values = (cast(nn.ModuleList, side[k]) for side in (self.keys, self.values))
        return [
            (key(rows).view(shape).transpose(1, 2), value(rows).view(shape).transpose(1, 2))
            for key, value in zip(keys, values, strict=True)
        ]


class ContextAttention(nn.Module):
    """Lets latents attend to kept points, and to no empty slot.

    The last number of a key is 0 for a point and -1 for an empty slot; that of a query is so large
    that an empty slot gets no weight.

    Args:
        layer: The trained attention.
        n_streams: B, the number of streams.
        start: Latents of the first block, (B*L, D), which are constants; None for other blocks.
    """

    first_kept: Tensor | None
    first_queries: Tensor | None
    same: Tensor
    last: Tensor

    def __init__(self, layer: Attention, n_streams: int, start: Tensor | None):
        super().__init__()
        self.n_streams, self.n_heads = n_streams, layer.n_heads
        self.norm = ResidualNorm(layer.norm, layer.residual, torch.float32)
        weight, bias = scaled(self.norm.read_by(layer.q), layer.n_heads)
        query = (
            with_key_column(weight, layer.n_heads, 0.0),
            with_key_column(bias, layer.n_heads, NEGLIGIBLE),
        )
        self.out = Affine(exact(layer.out))
        # The first block's queries come from learned latents: constants.
        self.q = Affine(query) if start is None else None
        kept = queries = None
        if start is not None:
            kept, fixed = constant_rows(layer, start)
            queries = self._split(with_key_column(fixed, layer.n_heads, NEGLIGIBLE)).float()
        self.register_buffer("first_kept", None if kept is None else kept.float())
        self.register_buffer("first_queries", queries)
        self.register_buffer("same", torch.eye(layer.q.weight.shape[-1] // layer.n_heads + 1))
        self.register_buffer("last", self.same[-1])

    def _split(self, queries: Tensor) -> Tensor:
        return queries.view(self.n_streams, -1, self.n_heads, queries.shape[-1] // self.n_heads)

    def _hiding(self, keys: Tensor) -> Tensor:
        """Return a matrix (B, heads, D/H + 1, D/H + 1) that is multiplied to the queries.

        A key (B, heads, N, D/H + 1) of an empty slot is 0 but for its last number, -1, so its score
        is minus the query's last number. From that the matrix subtracts the query's score with the
        first slot: an empty slot then scores `NEGLIGIBLE` below the first one, whatever its size.
        """
        return self.same - keys[:, :, :1].mT * self.last

    def forward(self, hidden: Tensor, contexts: Contexts) -> Tensor:
        """Return the latents `hidden` (B*L, D) after they attended to the points.

        `contexts` holds the points' keys and values for each group of heads.
        """
        queries, kept = self.first_queries, self.first_kept
        if self.q is not None:
            normal = self.norm(hidden)
            queries, kept = self._split(self.q(normal)), self.norm.kept(hidden, normal)
        assert queries is not None and kept is not None
        groups = queries.transpose(1, 2).split(self.n_heads // len(contexts), 1)
        attended = [
            torch.softmax(q @ self._hiding(keys) @ keys.mT, -1) @ values
            for q, (keys, values) in zip(groups, contexts, strict=True)
        ]  # (B, heads, L, D/H)
        rows = torch.cat(attended, 1).transpose(1, 2).reshape(hidden.shape)
        return self.out(rows) + kept
