"""Models that predict all targets of a query jointly, of one stream, in float64 numpy.

The head is that of TNP-ND (Nguyen and Grover 2022, section 4.3), which LBANP-ND, LBANP-END (Feng et
al. 2023, sections 3.2.1 and B.5) and CMANP-AND (Feng et al. 2024, section 3.3.1) share. A
prediction is the mean (M, Y) and the covariance (M Y, M Y) of the targets, target after target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference.latent_models import (
    cmanp_rows,
    encoder_block,
    lbanp_last_rows,
    lbanp_rows,
    query_layer,
)
from tests.reference.numpy_layers import Rows, Weights, layer_norm, linear, mlp, relu
from tests.reference.transformers import encoded_targets, post_norm_layer

Joint = Callable[..., tuple[Rows, Rows]]
Exchange = Callable[[Weights, Any, Rows], Rows]
Covariance = Callable[[Weights, Any, Rows, Rows], Rows]
N_LAYERS = 2
"""Of the attention between targets."""


def among_targets(weights: Weights, config: Any, rows: Rows) -> Rows:
    """TNP-ND, LBANP-ND and CMANP-AND: targets attend to each other."""
    for k in range(N_LAYERS):
        rows = post_norm_layer(weights["layers"][k], config.n_heads, rows, rows)
    return rows


def by_equations(weights: Weights, config: Any, rows: Rows) -> Rows:
    """LBANP-END, equations of appendix B.5, of the same layers; one cross-attention is the last.

    LQEMB_i = SelfAttention(CrossAttention(LQEMB_i-1, QEMB)), then CrossAttention(QEMB, LQEMB_Q).
    """
    latents = weights("latents")
    for k in range(N_LAYERS):
        latents = post_norm_layer(weights["target_attention"][k], config.n_heads, latents, rows)
        latents = post_norm_layer(weights["latent_attention"][k], config.n_heads, latents, latents)
    return post_norm_layer(weights["last_attention"], config.n_heads, rows, latents)


def by_blocks(weights: Weights, config: Any, rows: Rows) -> Rows:
    """LBANP-END as its authors run it: LBANP's blocks over targets, each read by a query layer."""
    latents, hidden = weights("latents"), rows
    for k in range(N_LAYERS):
        block = weights["blocks"][k]
        latents = encoder_block(block, config.n_heads, latents, rows)
        hidden = query_layer(block, config.n_heads, hidden, latents)
    return hidden


def cholesky(weights: Weights, config: Any, rows: Rows, factor: Rows) -> Rows:
    """L L^T with L = tril(P P^T); where it is bounded, L_ii is 0.05 + 0.95 tanh(|P_i|^2)."""
    lower = np.tril(factor @ factor.T)
    if config.bounded:
        np.fill_diagonal(lower, 0.05 + 0.95 * np.tanh(np.diagonal(lower)))
    product: Rows = lower @ lower.T
    return product


def low_rank(weights: Weights, config: Any, rows: Rows, factor: Rows) -> Rows:
    """P P^T + diag(exp(d)), where d is computed of each target's row by four layers."""
    own: Rows = np.exp(mlp(weights["diagonal"], rows, 4))
    joint: Rows = factor @ factor.T + np.diag(own.ravel())
    return joint


def joint_head(
    weights: Weights, config: Any, rows: Rows, attention: Exchange, covariance: Covariance
) -> tuple[Rows, Rows]:
    """Mean, and the covariance of the factor P (M Y, R) that the targets give after attention."""
    mean = linear(weights["mean"][2], relu(linear(weights["mean"][0], rows)))
    numbers = mlp(weights["projector"], attention(weights["attention"], config, rows), 4)
    return mean, covariance(weights, config, rows, numbers.reshape(mean.size, -1))


def tnp_nd(
    weights: Weights, config: Any, *points: Rows, covariance: Covariance = cholesky
) -> tuple[Rows, Rows]:
    rows = encoded_targets(weights, config, *points)
    return joint_head(weights["head"], config, rows, among_targets, covariance)


def of_latents(rows_of: Callable[..., Rows], attention: Exchange) -> Joint:
    """Return a model whose targets read latents; a layer norm precedes the head."""

    def model(
        weights: Weights, config: Any, *points: Rows, covariance: Covariance = cholesky
    ) -> tuple[Rows, Rows]:
        rows = layer_norm(weights["head_norm"], rows_of(weights, config, *points))
        return joint_head(weights["head"], config, rows, attention, covariance)

    return model


lbanp_nd = of_latents(lbanp_rows, among_targets)
lbanp_last_nd = of_latents(lbanp_last_rows, among_targets)
lbanp_end = of_latents(lbanp_rows, by_blocks)
lbanp_end_equations = of_latents(lbanp_rows, by_equations)
cmanp_and = of_latents(cmanp_rows, among_targets)


def log_density(y: Rows, mean: Rows, covariance: Rows) -> float:
    """Log-density of a normal distribution at y (M, Y), by its definition, in nats."""
    errors = (y - mean).ravel()
    _, log_determinant = np.linalg.slogdet(covariance)
    distance = errors @ np.linalg.solve(covariance, errors)
    return float(-0.5 * (distance + log_determinant + errors.size * math.log(2 * math.pi)))
