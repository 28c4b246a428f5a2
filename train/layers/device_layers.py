"""Define layers as devices run them: rows in one matrix, layer norms folded into later products.

A layer norm's scale and shift become part of the weights of the product that reads it. Where one
node of a graph is enough, one operation is written here, and all that is known beforehand is a
constant. The layers serve every model that is made of the layers in `train.layers`.

Letters of shapes: B streams, D width, H heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import (
    Attention,
    FeedForward,
    LayerNorm,
    Linear,
    Residual,
)

Weights = tuple[Tensor, Tensor]
"""Weight (D_in, D_out) and bias (D_out,) of a linear layer, in float64, so that however they are
folded they are rounded only once, at the end."""


class Affine(nn.Module):
    """Computes x (rows, D_in) @ weight + bias; the bias may also be a matrix (rows, D_out)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weights: Weights, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.register_buffer("weight", rounded(weights[0], dtype))
        self.register_buffer("bias", rounded(weights[1], dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a float64 tensor as a constant of type `dtype`, rounded once.

    Rounding by torch itself would go from float64 to half by float32, which rounds twice.
    """
    name = str(dtype).removeprefix("torch.")
    return torch.from_numpy(tensor.detach().contiguous().numpy().astype(name))


def exact(linear: Linear) -> Weights:
    """Return a linear layer's weight and bias in float64, with its axis of copies if it has one.

    The bias is 0 where the layer has none.
    """
    weight = linear.weight.double()
    return weight, weight[..., 0, :] * 0 if linear.bias is None else linear.bias.double()


def fold(norm: LayerNorm, linear: Linear) -> Weights:
    """Fold a layer norm into the linear layer that reads it; return the weights of the result.

    The result gives `linear(norm(x))` from the plainly normalised x, n: (n g + b) W = n (diag(g) W)
    + b W, where g and b are the norm's scale and shift.
    """
    weight = linear.weight.double()
    bias = torch.einsum("...i,...io->...o", norm.bias.double(), weight)
    if linear.bias is not None:
        bias = bias + linear.bias.double()
    return norm.weight.double()[..., None] * weight, bias


def scaled(weights: Weights, n_heads: int) -> Weights:
    """Multiply the weights of queries by the 1/sqrt(D/H) of attention."""
    factor = 1 / math.sqrt(weights[0].shape[-1] // n_heads)
    return weights[0] * factor, weights[1] * factor


def block_of(weights: Weights, k: int) -> Weights:
    """Return the weights of copy k of a layer; those of a layer without copies as they are."""
    return (weights[0][k], weights[1][k]) if weights[0].ndim == 3 else weights


def normalise(x: Tensor) -> Tensor:
    """Normalise the rows of x without scale and shift, which are folded into later layers."""
    return F.layer_norm(x, x.shape[-1:], eps=LayerNorm.eps)


class ResidualNorm(nn.Module):
    """Normalises rows (rows, D) for the products of a layer.

    Scale and shift are folded into the products, unless the result is the residual, too: then one
    node gives it with both.

    Args:
        norm: The trained norm.
        residual: What the layer adds to its output.
        dtype: Type of the constants.
        k: Number of the copy that is taken, where the norm has a leading axis of copies.
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, norm: LayerNorm, residual: Residual, dtype: torch.dtype, k: int = 0):
        super().__init__()
        self.is_kept = residual == "normalised"
        self._norm = (norm,)  # a tuple, so that the trained norm is no part of this module
        for name in ("weight", "bias"):
            values = getattr(norm, name).double()
            own = rounded(values[k] if values.ndim == 2 else values, dtype)
            self.register_buffer(name, own if self.is_kept else None)

    def read_by(self, linear: Linear) -> Weights:
        """Return the weights of a linear layer that reads what this layer gives."""
        return exact(linear) if self.is_kept else fold(self._norm[0], linear)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, LayerNorm.eps)

    def kept(self, x: Tensor, normal: Tensor) -> Tensor:
        """Return what the layer adds to its output: `normal`, this layer's result, or its x."""
        return normal if self.is_kept else x


def constant_rows(layer: Attention, rows: Tensor, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return residual and scaled queries of learned rows (L, D), each (L, D) in float64.

    They are constants of the device form. k is the number of the copy, where the layer has some.
    """
    norm = ResidualNorm(layer.norm, layer.residual, torch.float64, k)
    start = rows.detach().double()
    normal = norm(start)
    weight, bias = block_of(scaled(norm.read_by(layer.q), layer.n_heads), k)
    return norm.kept(start, normal), normal @ weight + bias


class FeedForwardOnDevice(nn.Module):
    """Adds a GEGLU of x (rows, D) to its residual; value and gate are separate products.

    Args:
        layer: The trained layer.
        dtype: Type of the constants.
        k: Number of the copy that is taken, where the layer has a leading axis of copies.
    """

    def __init__(self, layer: FeedForward, dtype: torch.dtype, k: int = 0):
        super().__init__()
        self.norm = ResidualNorm(layer.norm, layer.residual, dtype, k)
        weight, bias = block_of(self.norm.read_by(layer.up), k)
        half = weight.shape[-1] // 2
        self.value = Affine((weight[:, :half], bias[:half]), dtype)
        self.gate = Affine((weight[:, half:], bias[half:]), dtype)
        self.down = Affine(block_of(exact(layer.down), k), dtype)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        changed = self.down(self.value(normal) * F.gelu(self.gate(normal)))
        return changed + self.norm.kept(x, normal)


class AttentionOnDevice(nn.Module):
    """Attends between rows (B*rows, D) and adds the residual; keys are kept transposed.

    Keys are (B, H, D/H, rows), queries and values (B, H, rows, D/H).

    Args:
        layer: The trained layer.
        n_streams: B, the number of streams.
        dtype: Type of the constants.
        k: Number of the copy that is taken, where the layer has a leading axis of copies.
    """

    def __init__(self, layer: Attention, n_streams: int, dtype: torch.dtype, k: int = 0):
        super().__init__()
        self.n_streams, self.n_heads = n_streams, layer.n_heads
        self.norm = ResidualNorm(layer.norm, layer.residual, dtype, k)
        own = layer.context_norm
        keys, values = (
            self.norm.read_by(side) if own is None else fold(own, side)
            for side in (layer.k, layer.v)
        )
        query = scaled(self.norm.read_by(layer.q), layer.n_heads)
        self.q = Affine(block_of(query, k), dtype)
        self.k = Affine(block_of(keys, k), dtype)
        self.v = Affine(block_of(values, k), dtype)
        self.out = Affine(block_of(exact(layer.out), k), dtype)

    def split(self, x: Tensor) -> Tensor:
        """Split the columns of rows (B*rows, D) into heads: return (B, rows, H, D/H)."""
        return x.view(self.n_streams, -1, self.n_heads, x.shape[-1] // self.n_heads)

    def queries(self, normal: Tensor) -> Tensor:
        return self.split(self.q(normal)).transpose(1, 2)

    def keys_values(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.split(self.k(normal)), self.split(self.v(normal))
        return keys.permute(0, 2, 3, 1), values.transpose(1, 2)

    def attend(self, kept: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the sum of the output and the residual `kept` (B*rows, D)."""
        attended = torch.softmax(queries @ keys, -1) @ values  # (B, H, rows, D/H)
        return self.out(attended.transpose(1, 2).reshape(kept.shape)) + kept

    def read(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let rows x (B*rows, D) attend to keys and values; return the sum with the residual."""
        normal = self.norm(x)
        return self.attend(self.norm.kept(x, normal), self.queries(normal), keys, values)

    def forward(self, x: Tensor) -> Tensor:
        """Let the rows x (B*rows, D) of each stream attend to each other, and add the residual."""
        normal = self.norm(x)
        kept = self.norm.kept(x, normal)
        return self.attend(kept, self.queries(normal), *self.keys_values(normal))


def linear_layers(module: nn.Module) -> list[Weights]:
    """Return the weights and biases of all linear layers in a module, in their order."""
    return [exact(layer) for layer in module.modules() if isinstance(layer, Linear)]


def composed(first: Weights, second: Weights) -> Weights:
    """Return the weights of one linear layer that does what two in a row do."""
    return first[0] @ second[0], first[1] @ second[0] + second[1]


def side_by_side(layers: list[Weights], following: Weights) -> Weights:
    """Join n layers D -> D and the layer `following` them, nD -> D_out, into one, nD -> D_out.

    `following` reads the n outputs side by side; the joined layer reads the n inputs side by side.
    """
    weight, bias = following
    parts = zip(layers, weight.chunk(len(layers)), strict=True)
    weights, biases = zip(*(composed(own, (part, bias * 0)) for own, part in parts), strict=True)
    return torch.vstack(weights), bias + sum(biases)


def join_products(*parts: Weights) -> Weights:
    """Join linear layers of the same input into one, whose output holds theirs side by side."""
    weights, biases = zip(*parts, strict=True)
    return torch.cat(weights, -1), torch.cat(biases, -1)
