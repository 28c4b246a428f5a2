"""TNP-D and TNP-A by their paper's equations, of one stream, in float64 numpy.

Nguyen and Grover 2022: one encoder over the tokens of context and targets together. In TNP-D (and
in TNP-ND) every token attends to the tokens of the context and to nothing else.
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


def predicted(weights: Weights, config: Any, rows: Rows) -> tuple[Rows, Rows]:
    """Mean and deviation exp(s); 0.05 + 0.95 softplus(s) where it is bounded."""
    numbers = linear(weights["head_down"], relu(linear(weights["head_up"], rows)))
    mean, spread = np.split(numbers, 2, -1)
    return mean, 0.05 + 0.95 * np.logaddexp(0, spread) if config.bounded else np.exp(spread)


def tnp_d(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    return predicted(weights, config, encoded_targets(weights, config, x, y, targets))


def tnp_a(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows, given: Rows
) -> tuple[Rows, Rows]:
    """Section 4.2: each target given the values of the targets before it.

    A token (x, y) of a target attends to the context, to the targets before it and to itself; the
    token (x, 0), of which the prediction is made, to the context and to the targets before it.
    """
    n, m = len(x), len(targets)
    empty = np.zeros_like(given)
    inputs = [np.concatenate(pair, -1) for pair in ((x, y), (targets, given), (targets, empty))]
    tokens = mlp(weights["embedding"]["layers"], np.concatenate(inputs), 4)
    seen = [range(n)] * n + [range(n + j + 1) for j in range(m)] + [range(n + j) for j in range(m)]
    for k in range(config.n_layers):
        layer = weights["layers"][k]
        tokens = np.concatenate(
            [
                post_norm_layer(layer, config.n_heads, tokens[at : at + 1], tokens[list(own)])
                for at, own in enumerate(seen)
            ]
        )
    return predicted(weights, config, tokens[n + m :])


def tnp_a_sample(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows, numbers: Rows, order: list[int]
) -> Rows:
    """Draw the targets in an order, each given those before, from standard normal numbers (M, Y).

    numbers[i] is that of the i-th target in the order; the values return in the order of targets.
    """
    given = np.zeros_like(numbers)
    for at in range(len(order)):
        mean, std = tnp_a(weights, config, x, y, targets[order], given)
        given[at] = mean[at] + std[at] * numbers[at]
    drawn = np.empty_like(given)
    drawn[order] = given
    return drawn
