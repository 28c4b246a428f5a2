"""LBANP, EQTNP, CMANP and Perceiver IO by their papers' equations, in float64 numpy.

All functions are of one stream. Those that end in `rows` return the targets' rows (M, D) that
precede a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.numpy_layers import (
    Rows,
    Weights,
    attended,
    fed_forward,
    gaussian_head,
    mlp,
)

N_LAYERS = 4
"""Of an embedding."""


def embedded(weights: Weights, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    points = mlp(weights["embedding"]["of_points"], np.concatenate([x, y], -1), N_LAYERS)
    return points, mlp(weights["embedding"]["of_queries"], targets, N_LAYERS)


def encoder_block(block: Weights, heads: int, latents: Rows, points: Rows) -> Rows:
    """Feng et al. 2023 (LBANP), equation 2: SelfAttention(CrossAttention(latents, points))."""
    latents = attended(block["context_attention"], heads, latents, points)
    latents = fed_forward(block["context_ff"], latents)
    latents = attended(block["latent_attention"], heads, latents)
    return fed_forward(block["latent_ff"], latents)


def query_layer(block: Weights, heads: int, hidden: Rows, latents: Rows) -> Rows:
    """Equation 3: CrossAttention(targets, latents)."""
    hidden = attended(block["query_attention"], heads, hidden, latents)
    return fed_forward(block["query_ff"], hidden)


def lbanp_rows(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> Rows:
    """Feng et al. 2023 (LBANP), section 3.2: query layer k reads the latents of block k."""
    points, hidden = embedded(weights, x, y, targets)
    latents = weights("input_latents")
    for k in range(config.n_blocks):
        block = weights["blocks"][k]
        latents = encoder_block(block, config.n_heads, latents, points)
        hidden = query_layer(block, config.n_heads, hidden, latents)
    return hidden


def lbanp_last_rows(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> Rows:
    """LBANP-L, appendix B.3: a single cross-attention to the last latents.

    Perceiver IO as Feng et al. 2024 (Tree Cross Attention), section 2.1.1, describe it is the
    same: "Latents <- SelfAttention(CrossAttention(Latents, D_C))" in each block.
    """
    points, hidden = embedded(weights, x, y, targets)
    latents = weights("input_latents")
    for k in range(config.n_blocks):
        latents = encoder_block(weights["blocks"][k], config.n_heads, latents, points)
    return query_layer(weights["blocks"][config.n_blocks - 1], config.n_heads, hidden, latents)


def perceiver_once_rows(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> Rows:
    """Jaegle et al. 2021 (Perceiver IO), section 3.1: latents read once, process, are read."""
    heads = config.n_heads
    points, hidden = embedded(weights, x, y, targets)
    latents = weights("input_latents")[0]
    latents = attended(weights["context_attention"].copy(0), heads, latents, points)
    latents = fed_forward(weights["context_ff"], latents)
    for k in range(config.n_blocks):
        latents = attended(weights["latent_attention"][k], heads, latents)
        latents = fed_forward(weights["latent_ff"][k], latents)
    return query_layer(weights, heads, hidden, latents)


HEAD = "head_norm", "head_up", "head_down"


def lbanp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """Feng et al. 2023 (LBANP), section 3.2, equations 2 to 4."""
    return gaussian_head(weights, lbanp_rows(weights, config, x, y, targets), HEAD)


def lbanp_last(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    return gaussian_head(weights, lbanp_last_rows(weights, config, x, y, targets), HEAD)


def perceiver_io(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    rows = lbanp_last_rows(weights, config, x, y, targets)
    return gaussian_head(weights["head"], rows, ("norm", "up", "down"))


def perceiver_once(
    weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows
) -> tuple[Rows, Rows]:
    rows = perceiver_once_rows(weights, config, x, y, targets)
    return gaussian_head(weights["head"], rows, ("norm", "up", "down"))


def eqtnp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """Feng et al. 2023 (LBANP), section 3.1 and appendix A.1; layer k reads encoding k, from 0."""
    heads = config.n_heads
    rows, hidden = embedded(weights, x, y, targets)
    for k in range(config.n_layers):
        query = weights["queries"][k]
        hidden = attended(query["attention"], heads, hidden, rows)
        hidden = fed_forward(query["ff"], hidden)
        if k + 1 < config.n_layers:
            encoder = weights["encoders"][k]
            rows = fed_forward(encoder["ff"], attended(encoder["attention"], heads, rows))
    return gaussian_head(weights["head"], hidden, ("norm", "up", "down"))


def cmanp_rows(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> Rows:
    """Feng et al. 2024 (CMANP), sections 3.1.1 and 3.2, all points at once (no rolling average)."""
    heads = config.n_heads
    points, hidden = embedded(weights, x, y, targets)
    latents = weights("input_latents")
    for k in range(config.n_blocks):
        own = weights("block_latents")[k]
        own = attended(weights["context_attention"].copy(k), heads, own, points)
        own = fed_forward(weights["context_ff"].copy(k), own)
        own = attended(weights["latent_attention"].copy(k), heads, own)
        own = fed_forward(weights["latent_ff"].copy(k), own)
        latents = attended(weights["block_attention"][k], heads, latents, own)
        latents = fed_forward(weights["block_ff"][k], latents)
        latents = attended(weights["block_self_attention"][k], heads, latents)
        latents = fed_forward(weights["block_self_ff"][k], latents)
        hidden = attended(weights["query_attention"][k], heads, hidden, latents)
        hidden = fed_forward(weights["query_ff"][k], hidden)
    return hidden


def cmanp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    return gaussian_head(weights, cmanp_rows(weights, config, x, y, targets), HEAD)
