"""Define attention and the layers around it, with an optional leading axis of independent copies.

The blocks of a model may do the same thing to different latents with different weights. `stack`
gives every layer a leading axis of such copies, so that K blocks run as one batched product instead
of K small ones: x is then (*stack, B, rows, D), copies before streams. `stack=()` is an ordinary
layer. A call of a layer gives its output alone; `added` also adds the residual connection.

Letters of shapes: B streams, D numbers in a row (the width), H heads of D/H numbers each, N points.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Reads = Literal["normalised", "raw"]
"""Form of the rows that keys and values are made of: after a layer norm, or as they are, as in the
published code of tree cross attention."""

Residual = Literal["input", "normalised"]
"""Form of the input that is added to a layer's output: as it is, or after the layer's norm, as in
the published code of latent bottlenecks and of tree cross attention (Feng et al. 2023, 2024)."""

EMPTY = -1e30
"""Logarithm of the summed weights of an attention that has seen no point: finite, so that a
difference of two such logarithms is never NaN."""

HIDDEN = -3e4
"""Number that is added to the score of a hidden point: its weight becomes 0, and float16 holds the
number."""

NEGLIGIBLE = 32.0
"""Distance below the largest score of a row from which a weight has no effect: it is below 1e-13,
and a million such weights do not reach the last digit of a float32. A graph hides points by this
much, and not by more than 87, where weights are denormal numbers, for which processors take many
times as long."""


def broadcast_like(parameter: Tensor, x: Tensor) -> Tensor:
    """Reshape a parameter (*stack, D) so that it broadcasts over x (*stack, ..., D).

    The result is (*stack, 1, ..., 1, D), with as many axes as x.
    """
    stack = parameter.shape[:-1]
    return parameter.reshape(*stack, *(1,) * (x.ndim - parameter.ndim), parameter.shape[-1])


class Linear(nn.Module):
    """Computes `x @ weight + bias` for each copy in the stack.

    Shapes: weight (*stack, D_in, D_out), bias (*stack, D_out); x (*stack, ..., D_in). A stack has
    one axis at most.
    """

    def __init__(self, n_in: int, n_out: int, bias: bool = True, stack: tuple[int, ...] = ()):
        super().__init__()
        bound = 1 / math.sqrt(n_in)  # the default of torch.nn.Linear
        self.weight = nn.Parameter(torch.empty(*stack, n_in, n_out).uniform_(-bound, bound))
        self.bias = (
            nn.Parameter(torch.empty(*stack, n_out).uniform_(-bound, bound)) if bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.ndim == 2:
            return F.linear(x, self.weight.mT, self.bias)
        # One product a copy; broadcasting the weights over streams would copy them for each.
        rows = x.flatten(1, -2)
        if self.bias is None:
            product = torch.bmm(rows, self.weight)
        else:
            product = torch.baddbmm(self.bias[:, None], rows, self.weight)
        return product.unflatten(1, x.shape[1:-1])


def mlp(
    n_in: int, width: int, n_out: int, n_layers: int, between: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Build `n_layers` linear layers, n_in -> width -> ... -> n_out, with a function between."""
    widths = [n_in, *[width] * (n_layers - 1), n_out]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [Linear(before, after), between()]
    return nn.Sequential(*layers[:-1])


class LayerNorm(nn.Module):
    """Normalises the rows (..., D) of x, with a scale and a shift for each copy in the stack."""

    eps = 1e-5

    def __init__(self, width: int, stack: tuple[int, ...] = ()):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(*stack, width))
        self.bias = nn.Parameter(torch.zeros(*stack, width))

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.ndim == 1:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        normal = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return normal * broadcast_like(self.weight, x) + broadcast_like(self.bias, x)


class PreNormLayer(nn.Module):
    """Normalises its input x by `norm`; a base class of layers with a residual connection."""

    norm: LayerNorm
    residual: Residual

    def kept(self, x: Tensor) -> Tensor:
        """Return what is added to the output for rows x: x, or x normalised."""
        return self.norm(x) if self.residual == "normalised" else x

    def added(self, x: Tensor, *context: Tensor) -> Tensor:
        """Return the output for rows x, and a context if the layer reads one, with the residual."""
        output: Tensor = self(x, *context)
        return self.kept(x) + output


class FeedForward(PreNormLayer):
    """Computes a pre-norm GEGLU of rows (Shazeer 2020, eq. 6): D -> 2 x hidden -> D.

    `hidden` is 128 as published.
    """

    hidden = True

    def __init__(
        self,
        width: int,
        hidden: int,
        stack: tuple[int, ...] = (),
        residual: Residual = "input",
    ):
        super().__init__()
        self.residual = residual
        self.norm = LayerNorm(width, stack)
        self.up = Linear(width, 2 * hidden, stack=stack)
        self.down = Linear(hidden, width, stack=stack)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return self.down(value * F.gelu(gate))


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split the columns of rows (..., rows, D) into heads: return (..., H, rows, D/H)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(-2, -3)


def join_heads(x: Tensor) -> Tensor:
    """Join the heads (..., H, rows, D/H) to rows (..., rows, D); the inverse of `split_heads`."""
    return x.transpose(-2, -3).flatten(-2)


class Attention(PreNormLayer):
    """Attends from rows to a context with H heads, after normalising both (pre-norm).

    The layers q, k and v have no bias, the output layer has one. Queries and context have layer
    norms of their own if `cross`; without it there is only the queries' norm, which serves the
    context too. Called with one argument it is self-attention. `query_gain` multiplies the initial
    W_q and W_k, which start equal when `tied` (an inducing point then attends to points near it
    from the first step).
    """

    hidden = True

    def __init__(
        self,
        width: int,
        n_heads: int,
        *,
        cross: bool,
        stack: tuple[int, ...] = (),
        query_gain: float = 1.0,
        tied: bool = False,
        residual: Residual = "input",
        reads: Reads = "normalised",
    ):
        super().__init__()
        self.n_heads = n_heads
        self.residual = residual
        self.reads: Reads = reads
        self.norm = LayerNorm(width, stack)
        self.context_norm = LayerNorm(width, stack) if cross else None
        self.q = Linear(width, width, bias=False, stack=stack)
        self.k = Linear(width, width, bias=False, stack=stack)
        self.v = Linear(width, width, bias=False, stack=stack)
        self.out = Linear(width, width, stack=stack)
        with torch.no_grad():
            self.q.weight.mul_(query_gain)
            self.k.weight.copy_(self.q.weight if tied else self.k.weight * query_gain)

    def queries(self, x: Tensor) -> Tensor:
        """Return the queries of rows x by head, (..., H, rows, D/H), scaled by 1/sqrt(D/H)."""
        q = split_heads(self.q(self.norm(x)), self.n_heads)
        return q / math.sqrt(q.shape[-1])

    def read(self, context: Tensor) -> Tensor:
        """Return the rows of a context in the form that keys and values are made of."""
        if self.reads == "raw":
            return context
        norm = self.norm if self.context_norm is None else self.context_norm
        normal: Tensor = norm(context)
        return normal

    def keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of the rows of a context by head, each (..., H, rows, D/H)."""
        context = self.read(context)
        return (
            split_heads(self.k(context), self.n_heads),
            split_heads(self.v(context), self.n_heads),
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return softmax(q k^T) v, passed through the output layer: (..., rows, D).

        Queries q are (..., H, rows, D/H), keys k and values v (..., H, N, D/H). `visible` (B, N) is
        True for keys that take part. Where none does, the result is the output layer's bias.
        """
        batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3])
        q, k, v = (
            t.expand(*batch, *t.shape[-3:]).flatten(0, -4) if batch else t for t in (q, k, v)
        )
        hidden = None
        if visible is not None:
            hidden = torch.where(visible, 0.0, HIDDEN).to(q.dtype)[:, None, None]
        attended = F.scaled_dot_product_attention(q, k, v, hidden, scale=1.0)
        if visible is not None:
            attended = attended * visible.any(-1)[:, None, None, None]
        return self.out(join_heads(attended.unflatten(0, batch) if batch else attended))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        return self.attend(self.queries(x), *self.keys_values(x if context is None else context))
