"""LBANP, EQTNP and CMANP by their papers' equations, of one stream, in float64 numpy."""

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


def lbanp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
    """Feng et al. 2023 (LBANP), section 3.2, equations 2 to 4."""
    heads = config.n_heads
    points, hidden = embedded(weights, x, y, targets)
    latents = weights("input_latents")
    for k in range(config.n_blocks):
        block = weights["blocks"][k]
        latents = attended(block["context_attention"], heads, latents, points)
        latents = fed_forward(block["context_ff"], latents)
        latents = attended(block["latent_attention"], heads, latents)
        latents = fed_forward(block["latent_ff"], latents)
        hidden = attended(block["query_attention"], heads, hidden, latents)
        hidden = fed_forward(block["query_ff"], hidden)
    return gaussian_head(weights, hidden, ("head_norm", "head_up", "head_down"))


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


def cmanp(weights: Weights, config: Any, x: Rows, y: Rows, targets: Rows) -> tuple[Rows, Rows]:
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
    return gaussian_head(weights, hidden, ("head_norm", "head_up", "head_down"))
