"""ReTreever and Transformer + Cross Attention, of one stream, in float64 numpy.

Feng et al. 2024, "Tree Cross Attention", sections 3.2 to 3.4 and appendix C, with the layers of
the published code: only queries are normalised, and the normalised row is the residual; keys and
values are of the rows as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.reference.numpy_layers import (
    Rows,
    Weights,
    attention,
    fed_forward,
    layer_norm,
    linear,
    log_density,
    relu,
    softmax,
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


def encoded(weights: Weights, config: Any, x: Rows, y: Rows) -> Rows:
    """Encode the points, and sort them by one input: the leaves, (N, D)."""
    rows = embedding(weights["embedding"]["of_points"], np.concatenate([x, y], -1))
    for k in range(config.n_encoder_layers):
        rows = layer(weights["encoder"][k], config.n_heads, rows, rows)
    leaves: Rows = rows[np.argsort(x[:, config.axis], kind="stable")]
    return leaves


def tree_of(
    weights: Weights, config: Any, leaves: Rows, frozen: Sequence[Rows] | None = None
) -> list[Rows]:
    """Build a binary tree, from the leaves up to the root: a node is the mean of its children.

    Before that, one layer lets the children attend to each other. With `frozen` the children have
    those values, level by level: a derivative then stops at them.
    """
    levels = [leaves]
    while len(levels[-1]) > 1:
        rows = levels[-1] if frozen is None else frozen[len(levels) - 1]
        pairs = (rows[at : at + 2] for at in range(0, len(rows), 2))
        levels.append(np.stack([joined(weights, config, pair) for pair in pairs]))
    return levels


def joined(weights: Weights, config: Any, children: Rows) -> Rows:
    one = weights["tree"]["aggregator"]
    node: Rows = layer(one, config.n_heads, children, children).mean(0)
    return node


def retreever(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """A binary tree over the leaves, sorted by one input; algorithm 1 searches it.

    From the root down, the child of the largest head-averaged weight is followed and the others are
    read; of the last family all children are. The target attends to what was read.
    """
    levels = tree_of(weights, config, encoded(weights, config, x, y))
    asked = embedding(weights["embedding"]["of_queries"], targets)
    reads = [searched(weights, config, row, levels)[0] for row in asked]
    pairs = zip(asked, reads, strict=True)
    after = [layer(weights["tree"], config.n_heads, row[None], read) for row, read in pairs]
    return predicted(weights["head"], np.concatenate(after))


def retreever_full(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    """ReTreever-Full, appendix B.1.2: the target attends to all leaves."""
    asked = embedding(weights["embedding"]["of_queries"], targets)
    leaves = encoded(weights, config, x, y)
    return predicted(weights["head"], layer(weights["tree"], config.n_heads, asked, leaves))


def searched(
    weights: Weights, config: Any, asked: Rows, levels: Sequence[Rows], leaf: int | None = None
) -> tuple[Rows, float, float]:
    """Search for one target (D,), along the path to a leaf, or where the largest weights lead.

    Returns:
        The nodes read; the log-probability of the decisions; and their entropy, by the rules that
        `decisions` and `entropy` of the settings name.
    """
    of, heads = weights["tree"]["attention"], config.n_heads
    normal = layer_norm(of["norm"], asked[None])
    query = np.stack(np.split(linear(of["q"], normal), heads, -1))  # (H, 1, D/H)
    place, log_chance = 0, 0.0
    read, entropies = [], []
    for level in reversed(range(len(levels) - 1)):
        family = levels[level][2 * place : 2 * place + 2]
        keys = np.stack(np.split(linear(of["k"], family), heads, -1))
        shares = softmax((query @ keys.swapaxes(-1, -2))[:, 0] / np.sqrt(keys.shape[-1]))
        policy = shares.mean(0)  # (children,)
        child = int(policy.argmax()) if leaf is None else (leaf >> level) - 2 * place
        read += [node for at, node in enumerate(family) if at != child or level == 0]
        place = 2 * place + child
        if level or config.decisions == "all":
            log_chance += float(np.log(policy[child]))
            each = policy[None] if config.entropy == "path" else shares
            entropies.append(-(each * np.log(each)).sum(-1).mean())
    if len(levels) == 1:
        read = list(levels[0])
    reduce = np.sum if config.entropy == "path" else np.mean
    return np.stack(read), log_chance, float(reduce(entropies)) if entropies else 0.0


def losses(
    weights: Weights,
    config: Any,
    context: tuple[Rows, Rows],
    targets: tuple[Rows, Rows],
    leaves: Sequence[int],
    frozen: tuple[Sequence[Rows], Rows] | None = None,
) -> tuple[Rows, Rows, list[Rows]]:
    """Return the loss of section 3.5 of each target, its likelihoods, and the tree.

    Args:
        weights, config: Of the model.
        context: Inputs and outputs of the points.
        targets: Inputs and outputs of the targets.
        leaves: The leaf to which the search of each target goes.
        frozen: Values at which derivatives stop: the levels of the tree, or none of them, and the
            rewards of the targets.
    """
    (x, y), (x_targets, y_targets), heads = context, targets, config.n_heads
    stopped = None if frozen is None else frozen[0] or None
    levels = tree_of(weights, config, encoded(weights, config, x, y), stopped)
    asked = embedding(weights["embedding"]["of_queries"], x_targets)
    likelihoods, policies = [], []
    for at, (row, leaf) in enumerate(zip(asked, leaves, strict=True)):
        read, log_chance, entropy = searched(weights, config, row, levels, leaf)
        after = layer(weights["tree"], heads, row[None], read)
        likelihood = log_density(y_targets[at], *predicted(weights["head"], after))
        reward = likelihood if frozen is None else frozen[1][at]
        likelihoods.append(likelihood)
        policies.append(reward * log_chance + config.entropy_weight * entropy)
    of_leaves = predicted(weights["head"], layer(weights["tree"], heads, asked, levels[0]))
    gains = np.array([np.squeeze(one) for one in likelihoods])
    terms = config.rl_weight * np.array([np.squeeze(one) for one in policies])
    terms = terms + config.ca_weight * log_density(y_targets, *of_leaves)
    return -(gains + terms), gains, levels
