"""Define the two encoders of CANP, ANP and BANP (Kim et al. 2019), and the rows they share.

    path 1   point -> MLP -> self-attention -> value   targets attend to the values, by x only
             x     -> MLP -> key, query
    path 2   point -> MLP -> self-attention -> mean over the points -> MLP

All that depends on one point only is computed when the point comes, and kept: both paths' queries,
keys and values of self-attention, and the key for the targets' queries. The rest depends on all
points.

Letters of shapes: B streams, N points, M targets, X inputs, Y outputs, H heads, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Cache
from edgefold.train.layers.attention import (
    NEGLIGIBLE,
    LayerNorm,
    Linear,
    join_heads,
    mlp,
    split_heads,
)
from edgefold.train.layers.buffer_attention import BufferAttention, Slots
from edgefold.train.layers.device_layers import Affine, Weights, composed, exact, linear_layers
from edgefold.train.models.neural_processes.neural_process import Context
from edgefold.train.models.neural_processes.np_layers import masked
from edgefold.train.settings import SizedConfig

N_KEPT = 7
"""Number of rows of width D that are kept of a point: query, key and value of path 1, those of path
2, and the key for targets."""

ScoresBy = Literal["head", "width"]

HIDDEN = -1e9
"""Logarithm of the weight of a point that does not count: finite, so that no softmax is NaN."""

UNSEEN = math.exp(-NEGLIGIBLE)
"""Weight of an empty slot, which holds a copy of a point: it counts so many times."""

FOUND = ("keys", "values", "log_weight")
"""Names of the cache entries to which a query attends."""


@dataclass(frozen=True, slots=True)
class CanpConfig(SizedConfig):
    """Holds the sizes of a CANP, and how many points it keeps.

    Attributes:
        first_relu: Whether a ReLU lies before the self-attention of path 1, as one does in path 2.
            The published code has none there.
        scores_by: By whose square root scores are divided: that of a "head", D/H, or of the whole
            "width", D, as in the published code.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    width: int = 128
    n_heads: int = 8
    first_relu: bool = True
    scores_by: ScoresBy = "head"
    capacity: int = 256
    when_full: str = "refuse"


def log_weight(weight: Tensor) -> Tensor:
    """Return log(weight), (..., 1, 1, N), which is added to scores of attention to N points.

    Each point then counts `weight` (..., N) times; with a weight of 0 it is hidden.
    """
    logs = torch.where(weight > 0, torch.log(weight.clamp(min=UNSEEN)), HIDDEN)
    return logs[..., None, None, :]


def filled(points: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Fill the empty places of a buffer's points (B, N, ...); return points and weights (B, N).

    A place holds a point where visible (B, N) is True, and has the weight 1. Empty ones become
    copies of the first point with the tiny weight `UNSEEN`, so that attention ignores them, and no
    weight becomes a denormal number.
    """
    shown = visible.reshape(*visible.shape, *(1,) * (points.ndim - 2))
    return torch.where(shown, points, points[:, :1]), visible.float().clamp(min=UNSEEN)


class ResidualAttention(nn.Module):
    """Attends from queries to keys and values, adds the query to the result and normalises it.

    The equations are 6 and 7 of Lee et al. (2019): h = LN(q + attended), then LN(h + relu(W h)).
    `scores_by` is described at `CanpConfig`.
    """

    hidden = True

    def __init__(self, width: int, n_heads: int, scores_by: ScoresBy = "head"):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v = (Linear(width, width, bias=False) for _ in range(3))
        self.out = Linear(width, width)
        self.norm = LayerNorm(width)
        self.out_norm = LayerNorm(width)
        self.scale = 1 / math.sqrt(width // n_heads if scores_by == "head" else width)

    def keys(self, rows: Tensor) -> Tensor:
        """Return the keys of rows, (..., D), scaled: scores are plain products with queries."""
        keys: Tensor = self.k(rows) * self.scale
        return keys

    def attend(self, q: Tensor, k: Tensor, v: Tensor, log_weight: Tensor) -> Tensor:
        """Attend from queries q (..., M, D) to keys k and values v (..., N, D): return (..., M, D).

        `log_weight` (..., 1, 1, N) is added to the scores: the logarithm of each point's weight.
        """
        heads = [*(split_heads(rows, self.n_heads) for rows in (q, k, v)), log_weight]
        lead = torch.broadcast_shapes(*(part.shape[:-3] for part in heads))
        queries, keys, values, hidden = (
            part.expand(*lead, *part.shape[-3:]).flatten(0, -4) for part in heads
        )
        hidden = hidden.to(q.dtype)
        attended = F.scaled_dot_product_attention(queries, keys, values, hidden, scale=1.0)
        return self.after(q, join_heads(attended.unflatten(0, lead)))

    def after(self, q: Tensor, attended: Tensor) -> Tensor:
        """Return the layer's output from queries and what they attended to, all (..., M, D)."""
        rows = self.norm(q + attended)
        finished: Tensor = self.out_norm(rows + torch.relu(self.out(rows)))
        return finished


class EncoderPath(nn.Module):
    """Maps points to rows by a small MLP, then by self-attention among them.

    `relu` says whether there is a ReLU between the two.
    """

    def __init__(
        self, n_columns: int, width: int, n_heads: int, scores_by: ScoresBy, relu: bool = True
    ):
        super().__init__()
        self.relu = relu
        self.embed = mlp(n_columns, width, width, 2)
        self.attention = ResidualAttention(width, n_heads, scores_by)

    def points(self, points: Tensor) -> list[Tensor]:
        """Return self-attention's query, key and value of points (..., X + Y), each (..., D)."""
        rows, of = self.embed(points), self.attention
        rows = torch.relu(rows) if self.relu else rows
        return [of.q(rows), of.keys(rows), of.v(rows)]


class AttentiveEncoders(nn.Module):
    """Encodes points twice: in rows that targets attend to, and in one of `n_pooled` numbers."""

    def __init__(self, config: CanpConfig, n_pooled: int):
        super().__init__()
        n_inputs, width, by = config.n_inputs, config.width, config.scores_by
        path = n_inputs + config.n_outputs, width, config.n_heads, by
        self.cross_path = EncoderPath(*path, config.first_relu)
        self.pooled_path = EncoderPath(*path)
        self.of_inputs = mlp(n_inputs, width, width, 2)
        self.cross = ResidualAttention(width, config.n_heads, by)
        self.after = mlp(width, width, n_pooled, 2)

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the rows that are kept of points x (..., X), y (..., Y): (..., N_KEPT, D)."""
        points = torch.cat([x, y], -1)
        key = self.cross.keys(self.of_inputs(x))
        return torch.stack(
            [*self.cross_path.points(points), *self.pooled_path.points(points), key], -2
        )

    def context(self, rows: Tensor, mask: Tensor) -> Context:
        """Return rows (B, N, N_KEPT, D) and weights (B, N), both 0 where mask (B, N) is False."""
        return masked(rows, mask), mask.float()

    def found(self, points: Tensor, weight: Tensor) -> Cache:
        """Return the keys, values and log-weights of the points, to which targets attend.

        Args:
            points: Rows kept of the points, (..., N, N_KEPT, D); zeros in places without a point.
            weight: Number of times that each point counts, (..., N); a bootstrap counts some twice.
                A weight below 1 marks a place without a point.

        Returns:
            `keys` and `values` (..., N, D), `log_weight` (..., 1, 1, N). Values of places without
                a point are 0; a context without points gives the prior.
        """
        q, k, v, keys = (points[..., row, :] for row in (0, 1, 2, N_KEPT - 1))
        logs = log_weight(weight.to(points))
        rows = self.cross_path.attention.attend(q, k, v, logs)
        values = torch.where(weight[..., None] >= 1, self.cross.v(rows), 0.0)
        return {"keys": keys, "values": values, "log_weight": logs}

    def pooled(self, points: Tensor, weight: Tensor) -> Tensor:
        """Encode the context as one vector, a mean over its points: (..., 1, n_pooled).

        `points` (..., N, N_KEPT, D) are the rows kept of each point; `weight` (..., N) is how often
        each counts, below 1 in places without a point.
        """
        q, k, v = (points[..., row, :] for row in (3, 4, 5))
        weight = weight.to(points)
        rows = self.pooled_path.attention.attend(q, k, v, log_weight(weight))
        total = (torch.where(weight[..., None] >= 1, rows, 0.0) * weight[..., None]).sum(-2)
        encoded: Tensor = self.after(total / weight.sum(-1, keepdim=True).clamp(min=1.0))
        return encoded[..., None, :]

    def queries(self, x: Tensor) -> Tensor:
        """Return the queries (..., D) of targets at x (..., X)."""
        queries: Tensor = self.cross.q(self.of_inputs(x))
        return queries

    def at(self, context: Cache, x: Tensor) -> Tensor:
        """Let targets x (..., M, X) attend to the keys and values in `context`: (..., M, D).

        The function `found` makes the context from points.
        """
        return self.cross.attend(self.queries(x), *(context[name] for name in FOUND))


ROWS = ("rows_cross", "rows_pooled", "rows_x")
"""Names of the rows (D,) that a device keeps of a point."""


def without_bias(linear: Linear) -> Weights:
    """Return the weights of a layer that has no bias, with a bias of 0."""
    weight = linear.weight.double()
    return weight, weight.new_zeros(weight.shape[-1])


def norm_on_device(norm: LayerNorm) -> LayerNorm:
    """Return a copy of a layer norm, with parameters of its own."""
    copy = LayerNorm(len(norm.weight))
    copy.load_state_dict(norm.state_dict())
    return copy


class ResidualAttentionOnDevice(nn.Module):
    """Attends, as `ResidualAttention` does, to the rows (B*N, D) of a buffer, on a device.

    Args:
        layer: The trained layer.
        n_streams: B, the number of streams.
        before: Weights of a linear layer between rows and the layers of queries and keys, if there
            is one.
    """

    def __init__(self, layer: ResidualAttention, n_streams: int, before: Weights | None = None):
        super().__init__()
        q, k = without_bias(layer.q), without_bias(layer.k)
        if before is not None:
            q, k = composed(before, q), composed(before, k)
        v = without_bias(layer.v)
        own = layer.scale * math.sqrt(q[0].shape[-1] // layer.n_heads)  # 1 where a head scales
        self.kernel = BufferAttention((q[0] * own, q[1] * own), k, v, layer.n_heads, n_streams)
        self.residual, self.out = Affine(q), Affine(exact(layer.out))
        self.norm, self.out_norm = norm_on_device(layer.norm), norm_on_device(layer.out_norm)

    def forward(self, rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let rows (B*rows, D) attend to keys and values; return the layer's output (B*rows, D).

        Keys are (B, H, D/H + 1, N), values (B, H, N, D/H).
        """
        attended = self.kernel.attended(self.kernel.queries(rows), keys, values)
        return self.after(self.residual(rows) + attended)

    def after(self, total: Tensor) -> Tensor:
        """Return the layer's output from `total`, queries plus what they attended to, (rows, D)."""
        hidden = self.norm(total)
        return self.out_norm(hidden + torch.relu(self.out(hidden)))

    def among(self, rows: Tensor, slots: Slots) -> Tensor:
        """Let the rows (B*N, D) of each stream attend to those of slots with a point: (B*N, D)."""
        return self(rows, *self.kernel.keys_values(rows, slots))


class EmbeddingsOnDevice(nn.Module):
    """Computes the three embeddings of a point that a device keeps: two of (x, y), one of x."""

    def __init__(self, paths: tuple[EncoderPath, EncoderPath], of_inputs: Weights, n_outputs: int):
        super().__init__()
        layers = [linear_layers(path.embed) for path in paths]
        weight, bias = of_inputs
        blind = torch.cat([weight, weight.new_zeros(n_outputs, weight.shape[1])])  # to y
        firsts = [*(own[0] for own in layers), (blind, bias)]
        self.relus = [path.relu for path in paths]
        weights, biases = zip(*firsts, strict=True)
        self.first = Affine((torch.hstack(weights), torch.hstack(biases)))
        self.second = nn.ModuleList(Affine(own[1]) for own in layers)

    def forward(self, points: Tensor) -> list[Tensor]:
        """Return the embeddings of points (rows, X + Y), each (rows, D), in the order of `ROWS`."""
        *halves, of_x = torch.relu(self.first(points)).chunk(3, -1)
        rows = [layer(half) for layer, half in zip(self.second, halves, strict=True)]
        shown = zip(rows, self.relus, strict=True)
        return [*(torch.relu(row) if relu else row for row, relu in shown), of_x]
