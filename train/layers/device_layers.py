"""Layers as devices run them: rows in one matrix, layer norms folded into the products behind them.

What one node of a graph can do is one operation here, and what is known beforehand is a constant.
The layers serve every model that is made of those in `layers`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import Attention, FeedForward, LayerNorm, Linear

Weights = tuple[Tensor, Tensor]
"""Weight (D_in, D_out) and bias, in float64: every folding is rounded once, at the end."""


class Affine(nn.Module):
    """x (rows, D_in) @ weight + bias, where bias may be a whole (rows, D_out) value."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weights: Weights, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("weight", rounded(weights[0], dtype))
        self.register_buffer("bias", rounded(weights[1], dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A constant in its final type, rounded once: torch goes from float64 to half by float32."""
    name = str(dtype).removeprefix("torch.")
    return torch.from_numpy(tensor.detach().contiguous().numpy().astype(name))


def exact(linear: Linear) -> Weights:
    """A layer's weight and bias, (*stack, ...), in float64."""
    assert linear.bias is not None
    return linear.weight.double(), linear.bias.double()


def fold(norm: LayerNorm, linear: Linear) -> Weights:
    """`linear(norm(x))` over the plain normalisation n: (n g + b) W = n (diag(g) W) + b W."""
    weight = linear.weight.double()
    bias = torch.einsum("...i,...io->...o", norm.bias.double(), weight)
    if linear.bias is not None:
        bias = bias + linear.bias.double()
    return norm.weight.double()[..., None] * weight, bias


def scaled(weights: Weights, n_heads: int) -> Weights:
    """Weights of queries with the 1/sqrt(D/H) of attention in them."""
    factor = 1 / math.sqrt(weights[0].shape[-1] // n_heads)
    return weights[0] * factor, weights[1] * factor


def block_of(weights: Weights, k: int) -> Weights:
    """The k-th of a stack; weights without a stack stay."""
    return (weights[0][k], weights[1][k]) if weights[0].ndim == 3 else weights


def normalise(x: Tensor) -> Tensor:
    """Layer normalisation without scale and shift: those are folded into what follows."""
    return F.layer_norm(x, x.shape[-1:], eps=LayerNorm.eps)


class FeedForwardOnDevice(nn.Module):
    """x (rows, D) plus the GEGLU, whose two halves are products of their own."""

    def __init__(self, layer: FeedForward, dtype: torch.dtype, k: int = 0):
        super().__init__()
        weight, bias = block_of(fold(layer.norm, layer.up), k)
        half = weight.shape[-1] // 2
        self.value = Affine((weight[:, :half], bias[:half]), dtype)
        self.gate = Affine((weight[:, half:], bias[half:]), dtype)
        self.down = Affine(block_of(exact(layer.down), k), dtype)

    def forward(self, x: Tensor) -> Tensor:
        normal = normalise(x)
        return self.down(self.value(normal) * F.gelu(self.gate(normal))) + x


class AttentionOnDevice(nn.Module):
    """Attention over (B*rows, D); keys are kept transposed, (B, H, D/H, rows)."""

    def __init__(self, layer: Attention, n_streams: int, dtype: torch.dtype, k: int = 0):
        super().__init__()
        self.n_streams, self.n_heads = n_streams, layer.n_heads
        norm = layer.norm if layer.context_norm is None else layer.context_norm
        query = scaled(fold(layer.norm, layer.q), layer.n_heads)
        self.q = Affine(block_of(query, k), dtype)
        self.k = Affine(block_of(fold(norm, layer.k), k), dtype)
        self.v = Affine(block_of(fold(norm, layer.v), k), dtype)
        self.out = Affine(block_of(exact(layer.out), k), dtype)

    def split(self, x: Tensor) -> Tensor:
        """(B*rows, D) -> (B, rows, H, D/H)."""
        return x.view(self.n_streams, -1, self.n_heads, x.shape[-1] // self.n_heads)

    def queries(self, normal: Tensor) -> Tensor:
        return self.split(self.q(normal)).transpose(1, 2)

    def keys_values(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.split(self.k(normal)), self.split(self.v(normal))
        return keys.permute(0, 2, 3, 1), values.transpose(1, 2)

    def attend(self, x: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended = torch.softmax(queries @ keys, -1) @ values  # (B, H, rows, D/H)
        return self.out(attended.transpose(1, 2).reshape(x.shape)) + x

    def forward(self, x: Tensor) -> Tensor:
        """Self-attention."""
        normal = normalise(x)
        return self.attend(x, self.queries(normal), *self.keys_values(normal))


def linear_layers(module: nn.Module) -> list[Weights]:
    """Weights of the linear layers in a module, in their order."""
    return [exact(layer) for layer in module.modules() if isinstance(layer, Linear)]


def composed(first: Weights, second: Weights) -> Weights:
    """Two linear layers in a row as one."""
    return first[0] @ second[0], first[1] @ second[0] + second[1]


def side_by_side(layers: list[Weights], following: Weights) -> Weights:
    """Layers D -> D and a layer over their outputs side by side, as one layer over their inputs."""
    weight, bias = following
    parts = zip(layers, weight.chunk(len(layers)), strict=True)
    weights, biases = zip(*(composed(own, (part, bias * 0)) for own, part in parts), strict=True)
    return torch.vstack(weights), bias + sum(biases)


def join_products(*parts: Weights) -> Weights:
    """Several products of one input as one."""
    weights, biases = zip(*parts, strict=True)
    return torch.cat(weights, -1), torch.cat(biases, -1)
