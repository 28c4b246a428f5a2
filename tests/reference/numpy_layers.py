"""The layers of the papers in float64 numpy, one stream at a time, as plain as they are written.

`Weights` reads a model's parameters by their names; a layer here takes the weights of its part.
Rows are (N, D). Nothing here is fast, and nothing knows of masks, streams or caches: a test removes
masked points before it calls these functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

Rows = NDArray[np.float64]
EPSILON = 1e-5
"""Of every layer norm, added to the variance."""


class Weights:
    """The parameters of a part of a model: `weights["blocks.0"]["attention"]("q.weight")`."""

    def __init__(self, arrays: Mapping[str, Rows], prefix: str = ""):
        self._arrays, self._prefix = arrays, prefix

    @classmethod
    def of(cls, model: nn.Module) -> Weights:
        return cls({name: t.detach().double().numpy() for name, t in model.state_dict().items()})

    def __getitem__(self, part: str | int) -> Weights:
        return Weights(self._arrays, f"{self._prefix}{part}.")

    def __call__(self, name: str) -> Rows:
        return self._arrays[self._prefix + name]

    def has(self, name: str) -> bool:
        return self._prefix + name in self._arrays

    def copy(self, k: int) -> Weights:
        """Return copy k of layers that have a leading axis of copies."""
        own = {n: a[k] for n, a in self._arrays.items() if n.startswith(self._prefix)}
        return Weights(own, self._prefix)


def linear(weights: Weights, x: Rows) -> Rows:
    product = x @ weights("weight")
    return product + weights("bias") if weights.has("bias") else product


def relu(x: Rows) -> Rows:
    return np.maximum(x, 0)


def gelu(x: Rows) -> Rows:
    """x times the chance of a standard normal number below x (Hendrycks and Gimpel 2016)."""
    chances: Rows = (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return x * chances


def log_density(y: Rows, mean: Rows, std: Rows) -> Rows:
    """Return the log density (...) of rows y (..., Y) under normal distributions."""
    density = -(((y - mean) / std) ** 2) / 2 - np.log(std) - np.log(2 * np.pi) / 2
    return np.asarray(density.sum(-1))


def mlp(weights: Weights, x: Rows, n_layers: int) -> Rows:
    """Linear layers, numbered 0, 2, 4, ... among the modules, with ReLU between them."""
    for k in range(n_layers):
        x = linear(weights[2 * k], relu(x) if k else x)
    return x


def layer_norm(weights: Weights, x: Rows, epsilon: float = EPSILON) -> Rows:
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    normal: Rows = centred / deviation * weights("weight") + weights("bias")
    return normal


def softmax(scores: Rows) -> Rows:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    shares: Rows = weights / weights.sum(-1, keepdims=True)
    return shares


def attention(weights: Weights, n_heads: int, queries: Rows, context: Rows) -> Rows:
    """Multi-head attention of rows that are normalised already (Vaswani et al. 2017, 3.2)."""
    q, k, v = (
        np.stack(np.split(linear(weights[name], rows), n_heads, -1))  # (H, rows, D/H)
        for name, rows in (("q", queries), ("k", context), ("v", context))
    )
    read = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ v
    return linear(weights["out"], np.concatenate(list(read), -1))


def attended(weights: Weights, n_heads: int, rows: Rows, context: Rows | None = None) -> Rows:
    """Pre-norm attention as LBANP's and CMANP's authors run it: the residual is normalised.

    Queries and context have norms of their own; in self-attention the context is the queries.
    """
    normal = layer_norm(weights["norm"], rows)
    read = normal if context is None else layer_norm(weights["context_norm"], context)
    return normal + attention(weights, n_heads, normal, read)


def fed_forward(weights: Weights, rows: Rows) -> Rows:
    """A pre-norm GEGLU (Shazeer 2020, eq. 6), whose residual is normalised, too."""
    normal = layer_norm(weights["norm"], rows)
    value, gate = np.split(linear(weights["up"], normal), 2, -1)
    return normal + linear(weights["down"], value * gelu(gate))


def gaussian_head(weights: Weights, rows: Rows, names: tuple[str, str, str]) -> tuple[Rows, Rows]:
    """Layer norm, two linear layers with a ReLU; mean and deviation exp(s) of each output."""
    norm, up, down = names
    numbers = linear(weights[down], relu(linear(weights[up], layer_norm(weights[norm], rows))))
    mean, log_std = np.split(numbers, 2, -1)
    return mean, np.exp(log_std)
