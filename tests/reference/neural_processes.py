"""CNP, NP, CANP and ANP by their papers' equations, of one stream, in float64 numpy.

Garnelo et al. 2018a and 2018b, Kim et al. 2019, in the sizes of the later papers: two encodings of
the context, side by side, and a decoder of three layers. Predictions are (M, S, Y), with S = 1
where there is no latent; `noise` (S, D) are the latent's standard normal numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.reference.numpy_layers import Rows, Weights, layer_norm, linear, mlp, relu, softmax

LEAST = 0.1
"""Of deviations, of predictions and latents (Le et al. 2018)."""


def softplus(x: Rows) -> Rows:
    return np.logaddexp(0, x)


def pooled_encoding(weights: Weights, points: Rows) -> Rows:
    """Four layers of each point, the mean over the points, two layers (Garnelo et al. 2018a)."""
    rows = linear(weights["of_mean"][0], relu(mlp(weights["of_point"], points, 3)))
    return mlp(weights["of_mean"][1], rows.mean(0), 2)


def residual_attention(
    weights: Weights, n_heads: int, queries: Rows, keys: Rows, values: Rows
) -> Rows:
    """The attention block of Lee et al. 2019, equations 6 and 7; scores divided by sqrt(D)."""
    q = linear(weights["q"], queries)
    heads = (
        np.stack(np.split(rows, n_heads, -1))
        for rows in (q, linear(weights["k"], keys), linear(weights["v"], values))
    )
    of_q, of_k, of_v = heads
    read = softmax(of_q @ of_k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])) @ of_v
    hidden = layer_norm(weights["norm"], q + np.concatenate(list(read), -1))
    return layer_norm(weights["out_norm"], hidden + relu(linear(weights["out"], hidden)))


def decoded(weights: Weights, first: Rows, second: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """Predict from encodings (M, D) and (S, D): mean and deviation, (M, S, Y)."""
    shape = len(targets), len(second), -1
    sides = first[:, None], second[None], targets[:, None]
    inputs = np.concatenate([np.broadcast_to(s, (*shape[:2], s.shape[-1])) for s in sides], -1)
    numbers = mlp(weights["rest"], relu(linear(weights["first"], inputs)), 2)
    mean, raw = np.split(numbers, 2, -1)
    return mean, LEAST + (1 - LEAST) * softplus(raw)


def sampled(encoding: Rows, noise: Rows) -> Rows:
    """Samples (S, D) of a latent, whose mean and deviation are in its encoding, (2 D,)."""
    mean, raw = np.split(encoding, 2)
    return mean + (LEAST + (1 - LEAST) / (1 + np.exp(-raw))) * noise


def pooling_encodings(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    """Encode a context for targets by both encoders: (M, D), the same for all, and (D,)."""
    points = np.concatenate([x, y], -1)
    first, second = (pooled_encoding(weights["encoders"][k], points) for k in range(2))
    return np.repeat(first[None], len(targets), 0), second


def attentive_encodings(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    """Encode a context for targets by both encoders: (M, D) and (D,)."""
    own, heads = weights["encoders"], config.n_heads
    points = np.concatenate([x, y], -1)
    rows = mlp(own["cross_path"]["embed"], points, 2)
    values = residual_attention(own["cross_path"]["attention"], heads, rows, rows, rows)
    of_x, of_targets = (mlp(own["of_inputs"], inputs, 2) for inputs in (x, targets))
    first = residual_attention(own["cross"], heads, of_targets, of_x, values)
    rows = relu(mlp(own["pooled_path"]["embed"], points, 2))
    rows = residual_attention(own["pooled_path"]["attention"], heads, rows, rows, rows)
    return first, mlp(own["after"], rows.mean(0), 2)


def pooling_process(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows, noise: Rows | None
) -> tuple[Rows, Rows]:
    first, second = pooling_encodings(weights, config, x, y, targets)
    samples = second[None] if noise is None else sampled(second, noise)
    return decoded(weights["decoder"], first, samples, targets)


def attentive_process(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows, noise: Rows | None
) -> tuple[Rows, Rows]:
    first, second = attentive_encodings(weights, config, x, y, targets)
    samples = second[None] if noise is None else sampled(second, noise)
    return decoded(weights["decoder"], first, samples, targets)
