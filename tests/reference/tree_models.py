"""ReTreever and Transformer + Cross Attention, of one stream, in float64 numpy.

Feng et al. 2024, "Tree Cross Attention", sections 3.2 to 3.4 and appendix C, with the layers of
the published code: only queries are normalised, and the normalised row is the residual; keys and
values are of the rows as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.numpy_layers import (
    Rows,
    Weights,
    attention,
    fed_forward,
    layer_norm,
    linear,
    relu,
)

N_LAYERS = 4
"""Of an embedding."""


def elu(x: Rows) -> Rows:
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)


def embedding(weights: Weights, x: Rows) -> Rows:
    for k in range(N_LAYERS):
        x = linear(weights[2 * k], elu(x) if k else x)
    return x


def layer(weights: Weights, n_heads: int, rows: Rows, context: Rows) -> Rows:
    """Attention to a context that is not normalised, then the feed-forward layer."""
    of = weights["attention"]
    normal = layer_norm(of["norm"], rows)
    return fed_forward(weights["ff"], normal + attention(of, n_heads, normal, context))


def predicted(weights: Weights, rows: Rows) -> tuple[Rows, Rows]:
    """The predictor, without a norm before it: mean and deviation exp(s)."""
    mean, log_std = np.split(linear(weights["down"], relu(linear(weights["up"], rows))), 2, -1)
    return mean, np.exp(log_std)


def transformer_ca(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    """Self-attention over the context, and one cross attention of the targets."""
    rows = embedding(weights["embedding"]["of_points"], np.concatenate([x, y], -1))
    for k in range(config.n_layers):
        rows = layer(weights["encoders"][k], config.n_heads, rows, rows)
    asked = embedding(weights["embedding"]["of_queries"], targets)
    asked = layer(weights["queries"][0], config.n_heads, asked, rows)
    return predicted(weights["head"], asked)


def retreever(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """A binary tree over the leaves, sorted by the first input; algorithm 1 searches it.

    A node is the mean of its children after one layer among them. From the root down, the child
    of the largest head-averaged weight is followed and the others are read; of the last family all
    children are. The target attends to what was read.
    """
    rows = embedding(weights["embedding"]["of_points"], np.concatenate([x, y], -1))
    for k in range(config.n_encoder_layers):
        rows = layer(weights["encoder"][k], config.n_heads, rows, rows)
    levels = [list(rows[np.argsort(x[:, config.axis], kind="stable")])]
    while len(levels[-1]) > 1:
        pairs = (levels[-1][at : at + 2] for at in range(0, len(levels[-1]), 2))
        levels.append([joined(weights, config, np.stack(pair)) for pair in pairs])
    asked = embedding(weights["embedding"]["of_queries"], targets)
    rows = np.stack([after_search(weights, config, row, levels) for row in asked])
    return predicted(weights["head"], rows)


def joined(weights: Weights, config: Any, children: Rows) -> Rows:
    one = weights["tree"]["aggregator"]
    node: Rows = layer(one, config.n_heads, children, children).mean(0)
    return node


def after_search(weights: Weights, config: Any, asked: Rows, levels: list[list[Rows]]) -> Rows:
    of, heads = weights["tree"]["attention"], config.n_heads
    normal = layer_norm(of["norm"], asked[None])
    query = np.stack(np.split(linear(of["q"], normal), heads, -1))  # (H, 1, D/H)
    place, read = 0, []
    for level in reversed(levels[:-1]):
        family = level[2 * place : 2 * place + 2]
        keys = np.stack(np.split(linear(of["k"], np.stack(family)), heads, -1))
        scores = (query @ keys.swapaxes(-1, -2))[:, 0] / np.sqrt(keys.shape[-1])  # (H, children)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        best = int((shares / shares.sum(-1, keepdims=True)).mean(0).argmax())
        read += [node for at, node in enumerate(family) if at != best or level is levels[0]]
        place = 2 * place + best
    if len(levels) == 1:
        read = levels[0]
    after: Rows = layer(weights["tree"], heads, asked[None], np.stack(read))[0]
    return after
