"""CMANP's weights as the step graphs use them: norms folded into the matrices behind them.

A layer norm's scale g and shift b before a matrix W are another matrix and a bias:

    (n * g + b) W  =  n (diag(g) W)  +  b W

so every norm in a graph is the plain normalisation n, which all blocks share where they read the
same tensor. Everything here is float64 numpy; the graph builder rounds once, at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from edgefold.train.models.attention import Attention, FeedForward, LayerNorm, Linear
from edgefold.train.models.cmanp import Cmanp

Array = NDArray[np.float64]


def values_of(tensor: Tensor) -> Array:
    """A parameter as float64 numpy."""
    return tensor.detach().double().cpu().numpy()


def bias_of(linear: Linear) -> Array:
    """A layer's bias, (*stack, D_out)."""
    assert linear.bias is not None
    return values_of(linear.bias)


def fold(norm: LayerNorm, linear: Linear) -> tuple[Array, Array]:
    """Weight (*stack, D_in, D_out) and bias (*stack, D_out) of `linear(norm(x))` over plain n."""
    scale, shift = values_of(norm.weight), values_of(norm.bias)
    weight = values_of(linear.weight)
    bias = np.einsum("...i,...io->...o", shift, weight)
    if linear.bias is not None:
        bias = bias + bias_of(linear)
    return scale[..., None] * weight, bias


def normalised(latents: Array) -> Array:
    """The plain layer normalisation of learned latents, (..., D): their queries are constants."""
    centred = latents - latents.mean(-1, keepdims=True)
    normal: Array = centred / np.sqrt(latents.var(-1, keepdims=True) + LayerNorm.eps)
    return normal


def _block(pair: tuple[Array, Array], k: int) -> tuple[Array, Array]:
    weight, bias = pair
    return weight[k], bias[k]


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """q (scaled by 1/sqrt(D/H)), k, v over plain normalised inputs, and the output layer."""

    q: tuple[Array, Array]
    k: tuple[Array, Array]
    v: tuple[Array, Array]
    out: tuple[Array, Array]

    @classmethod
    def of(cls, layer: Attention) -> AttentionWeights:
        """Fold an attention's norms."""
        context_norm = layer.norm if layer.context_norm is None else layer.context_norm
        weight, bias = fold(layer.norm, layer.q)
        scale = 1 / math.sqrt(weight.shape[-1] // layer.n_heads)
        return cls(
            (weight * scale, bias * scale),
            fold(context_norm, layer.k),
            fold(context_norm, layer.v),
            (values_of(layer.out.weight), bias_of(layer.out)),
        )

    def block(self, k: int) -> AttentionWeights:
        """The k-th of a stack."""
        return AttentionWeights(*(_block(p, k) for p in (self.q, self.k, self.v, self.out)))


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """The two halves of the GEGLU's rise, over plain normalised inputs, and its fall."""

    value: tuple[Array, Array]
    gate: tuple[Array, Array]
    fall: tuple[Array, Array]

    @classmethod
    def of(cls, layer: FeedForward) -> FeedForwardWeights:
        """Fold a feed-forward's norm."""
        weight, bias = fold(layer.norm, layer.rise)
        half = weight.shape[-1] // 2
        return cls(
            (weight[..., :half], bias[..., :half]),
            (weight[..., half:], bias[..., half:]),
            (values_of(layer.fall.weight), bias_of(layer.fall)),
        )

    def block(self, k: int) -> FeedForwardWeights:
        """The k-th of a stack."""
        return FeedForwardWeights(*(_block(p, k) for p in (self.value, self.gate, self.fall)))


@dataclass(frozen=True, slots=True)
class FoldWeights:
    """What `update` needs: the fixed queries, and one matrix for all blocks' keys and values.

    Attributes:
        queries: (K*H, D/H, L), scaled.
        keys: weight (D, K*H*D/H) and bias, head by head.
        values: weight (D, K*H*(D/H + 1)) and bias; each head's last column is the constant 1, so
            that the attention's normaliser is one more feature of its sum.
    """

    queries: Array
    keys: tuple[Array, Array]
    values: tuple[Array, Array]

    @classmethod
    def of(cls, model: Cmanp) -> FoldWeights:
        """Fold and reorder the reading attention's weights."""
        config, read = model.config, AttentionWeights.of(model.read)
        n_heads, n_blocks, width = config.n_heads, config.n_blocks, config.width
        head = width // n_heads
        latents = values_of(model.block_latents)  # (K, L, D)
        queries = normalised(latents) @ read.q[0] + read.q[1][:, None]  # (K, L, D)
        queries = queries.reshape(n_blocks, -1, n_heads, head).transpose(0, 2, 3, 1)
        key_weight = read.k[0].transpose(1, 0, 2).reshape(width, -1)  # (D, K*D)
        value_weight = np.zeros((width, n_blocks, n_heads, head + 1))
        value_weight[..., :head] = (
            read.v[0].transpose(1, 0, 2).reshape(width, n_blocks, n_heads, head)
        )
        value_bias = np.ones((n_blocks, n_heads, head + 1))
        value_bias[..., :head] = read.v[1].reshape(n_blocks, n_heads, head)
        return cls(
            queries.reshape(n_blocks * n_heads, head, -1),
            (key_weight, read.k[1].reshape(-1)),
            (value_weight.reshape(width, -1), value_bias.reshape(-1)),
        )
