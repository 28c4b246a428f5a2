"""TNP-D by its paper's equations, of one stream, in float64 numpy.

Nguyen and Grover 2022: one encoder over the tokens of context and targets together, in which every
token attends to the tokens of the context and to nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.numpy_layers import Rows, Weights, attention, layer_norm, linear, mlp, relu


def post_norm_layer(weights: Weights, n_heads: int, rows: Rows, context: Rows) -> Rows:
    """An encoder layer of Vaswani et al. 2017, section 3.1, with norms after the additions."""
    hidden = layer_norm(weights["norm"], rows + attention(weights, n_heads, rows, context))
    changed = linear(weights["down"], relu(linear(weights["up"], hidden)))
    return layer_norm(weights["last_norm"], hidden + changed)


def encoded_targets(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> Rows:
    """Section 4.1: tokens (x, y) of points and (x, 0) of targets, and what became of the latter."""
    hidden_y = np.zeros((len(targets), y.shape[-1]))
    points, asked = np.concatenate([x, y], -1), np.concatenate([targets, hidden_y], -1)
    tokens = mlp(weights["embedding"]["layers"], np.concatenate([points, asked]), 4)
    for k in range(config.n_layers):
        tokens = post_norm_layer(weights["layers"][k], config.n_heads, tokens, tokens[: len(x)])
    return tokens[len(x) :]


def tnp_d(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    rows = encoded_targets(weights, config, x, y, targets)
    numbers = linear(weights["head_down"], relu(linear(weights["head_up"], rows)))
    mean, log_std = np.split(numbers, 2, -1)
    return mean, np.exp(log_std)
