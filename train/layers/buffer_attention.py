"""Attend to the points of a `PointBuffer`, each in one of its N slots, as devices run it.

Empty slots are hidden without a step of their own: every query ends with the constant 1, and every
key with 0 or, where its slot is empty, with `-NEGLIGIBLE`. Masks that are added to the scores would
cost a pass over the scores. The rows of empty slots are copies of slot 0 (`Slots.filled`), so that
their scores are that far below a real one, whatever its size, and no weight is a denormal number.
Values of empty slots are 0, so that an empty buffer is attended to with the result 0.

Keys need no bias: it adds the same number to all scores of a query.

Letters: B streams, H heads, D width, N slots of the buffer.

    queries (B, H, rows, D/H + 1)    keys (B, H, D/H + 1, N)    values (B, H, N, D/H)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import NEGLIGIBLE
from edgefold.train.layers.device_layers import Affine, Weights, rounded, scaled

MOST_SCORES = 1 << 20
"""Number of scores that are computed at once, where that leaves `LEAST_ROWS` rows: they stay in a
core's cache, and memory grows with N and not with N^2."""
LEAST_ROWS = 64


def softmax(scores: Tensor) -> Tensor:
    """Return the attention weights of scores (..., N): their softmax over the last axis."""
    return torch.softmax(scores, -1)


def with_key_column(columns: Tensor, n_heads: int, last: float) -> Tensor:
    """Append the number `last` to each head's part of columns (..., D): (..., H*(D/H + 1))."""
    return F.pad(columns.unflatten(-1, (n_heads, -1)), (0, 1), value=last).flatten(-2)


class Slots(NamedTuple):
    """Holds which slots of a buffer have a point, in the forms that attention layers need.

    Attributes:
        hidden: Number that is added to the keys: 0, and in the last column of each head
            `-NEGLIGIBLE` where a slot is empty, (B*N, H*(D/H + 1)).
        real: 1 where a slot holds a point, else 0, (B*N, 1).
        visible: True where a slot holds a point, (B, N).
    """

    hidden: Tensor
    real: Tensor
    visible: Tensor

    def filled(self, points: Tensor) -> Tensor:
        """Return the points (B, N, D) as rows (B*N, D), with slot 0 copied into empty slots."""
        return torch.where(self.visible[..., None], points, points[:, :1]).flatten(0, 1)


class BufferAttention(nn.Module):
    """Computes queries, keys and values of rows (B*rows, D), and attention without an output layer.

    Args:
        q, k, v: Weights of the three projections, with any layer norm folded in; the bias of k has
            no effect.
        n_heads: H, the number of heads.
        n_streams: B, the number of streams.
    """

    k: Tensor
    ends: Tensor

    def __init__(self, q: Weights, k: Weights, v: Weights, n_heads: int, n_streams: int):
        super().__init__()
        self.n_heads, self.n_streams = n_heads, n_streams
        width = k[0].shape[-1]
        self.head = width // n_heads
        weight, bias = scaled(q, n_heads)
        query = with_key_column(weight, n_heads, 0.0), with_key_column(bias, n_heads, 1.0)
        self.q = Affine(query)
        self.register_buffer("k", rounded(with_key_column(k[0], n_heads, 0.0), torch.float32))
        self.register_buffer("ends", with_key_column(torch.zeros(1, width), n_heads, 1.0))
        self.v = Affine(v)

    def slots(self, visible: Tensor) -> Slots:
        """Return the `Slots` for this width; visible (B, N) is True where a slot holds a point."""
        real = visible.reshape(-1, 1).float()
        return Slots((real - 1) * NEGLIGIBLE * self.ends, real, visible)

    def queries(self, rows: Tensor) -> Tensor:
        """Return the queries (B, H, rows, D/H + 1) of rows (B*rows, D); each ends with a 1."""
        return self._by_head(self.q(rows)).transpose(1, 2)

    def keys_values(self, rows: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return keys (B, H, D/H + 1, N) and values (B, H, N, D/H) of a buffer's rows (B*N, D)."""
        return self.keys(rows, slots), self.values(rows, slots)

    def keys(self, rows: Tensor, slots: Slots) -> Tensor:
        """Return the keys (B, H, D/H + 1, N) of the buffer's rows (B*N, D).

        A key ends with 0; in an empty slot it ends with `-NEGLIGIBLE`, which hides the slot.
        """
        return self._by_head(torch.addmm(slots.hidden, rows, self.k)).permute(0, 2, 3, 1)

    def values(self, rows: Tensor, slots: Slots) -> Tensor:
        """Return the values (B, H, N, D/H) of the buffer's rows (B*N, D); 0 for empty slots."""
        return self._by_head(self.v(rows) * slots.real).transpose(1, 2)

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.view(self.n_streams, -1, self.n_heads, rows.shape[-1] // self.n_heads)

    def attended(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend from queries to keys and values; return (B*rows, D), the averages of all heads.

        Queries are (B, H, rows, D/H + 1), keys (B, H, D/H + 1, N), values (B, H, N, D/H). No output
        layer is applied.
        """
        averages = self.averaged(queries, keys, values)
        return averages.transpose(1, 2).reshape(-1, self.n_heads * self.head)

    def averaged(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        weights_of: Callable[[Tensor], Tensor] = softmax,
    ) -> Tensor:
        """Return sums of values (B, H, N, n), weighed by queries and keys: (B, H, rows, n).

        Queries are (B, H, rows, D/H + 1), keys (B, H, D/H + 1, N); n is any number of columns. The
        function `weights_of` turns scores (..., N) into weights. The rows are computed in blocks,
        of about `MOST_SCORES` scores each.
        """
        n_rows = max(LEAST_ROWS, MOST_SCORES // (self.n_streams * self.n_heads * keys.shape[-1]))
        blocks = [queries] if queries.shape[2] <= n_rows else queries.split(n_rows, 2)
        parts = [weights_of(block @ keys) @ values for block in blocks]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
