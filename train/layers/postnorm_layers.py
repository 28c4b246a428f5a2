"""The encoder layer of Vaswani et al. 2017 (section 3.1), with normalisation after each addition.

    h = norm(x + attention(x, keys and values))
    y = norm(h + down(relu(up(h))))

Unlike the layers of `layers`, it adds its residual connections itself, and all projections have a
bias. Transformer Neural Processes (Nguyen & Grover 2022) are made of it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefold.train.layers.attention import HIDDEN, LayerNorm, Linear, join_heads, split_heads
from edgefold.train.layers.device_layers import Weights, exact, scaled


class PostNormLayer(nn.Module):
    """Attention and a feed-forward layer with ReLU, (..., rows, D) -> (..., rows, D).

    Rows attend to themselves (`forward`), or to keys and values that were computed before, of other
    rows too (`step`). What a row may see is told by `visible`, boolean, which broadcasts to
    (..., H, rows, N). The attention of a row that sees nothing is 0.
    """

    hidden = True

    def __init__(self, width: int, n_heads: int, feedforward: int = 128):
        super().__init__()
        self.n_heads = n_heads
        self.q = Linear(width, width)
        self.k = Linear(width, width)
        self.v = Linear(width, width)
        self.out = Linear(width, width)
        self.norm = LayerNorm(width)
        self.up = Linear(width, feedforward)
        self.down = Linear(feedforward, width)
        self.last_norm = LayerNorm(width)

    def keys_values(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of rows (..., N, D) by head, each (..., H, N, D/H)."""
        return split_heads(self.k(rows), self.n_heads), split_heads(self.v(rows), self.n_heads)

    def step(
        self, rows: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None = None
    ) -> Tensor:
        """The layer's output for rows that attend to the keys and values given."""
        queries = split_heads(self.q(rows), self.n_heads)
        mask = None
        if visible is not None:
            mask = torch.where(visible, 0.0, HIDDEN).to(rows.dtype)
        # One operation: no scores of N x N are held.
        found = F.scaled_dot_product_attention(queries, keys, values, mask)
        if visible is not None:
            found = found * visible.any(-1, keepdim=True)
        return self.finish(rows, found)

    def finish(self, rows: Tensor, found: Tensor) -> Tensor:
        """The layer's output for rows (..., rows, D), of what each head found for them."""
        hidden = self.norm(rows + self.out(join_heads(found)))
        after: Tensor = self.last_norm(hidden + self.down(torch.relu(self.up(hidden))))
        return after

    def forward(self, rows: Tensor, visible: Tensor | None = None) -> Tensor:
        """Self-attention."""
        return self.step(rows, *self.keys_values(rows), visible)


def queries_keys_values(layer: PostNormLayer) -> tuple[Weights, Weights, Weights]:
    """The layer's projections in float64; queries are scaled."""
    return scaled(exact(layer.q), layer.n_heads), exact(layer.k), exact(layer.v)
