"""Define the layers of the published transformer Hawkes process (Zuo et al., ICML 2020).

They normalise after each addition (Vaswani et al. 2017, section 3.1), queries, keys and values have
no bias, and the feed-forward part has a GELU, as in the published code; the paper states a ReLU
(eq. 5).

Letters of shapes: B streams, N events, H heads, D width.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import Attention, LayerNorm, Linear, split_heads


class FineNorm(LayerNorm):
    """Normalises rows, with the smaller number that the published code adds to the variance."""

    eps = 1e-6


class PostNormAttention(Attention):
    """Reads rows as they are; `after` adds the residual connection and normalises the sum."""

    def __init__(self, width: int, n_heads: int):
        super().__init__(width, n_heads, cross=False, reads="raw")
        self.norm = FineNorm(width)

    def queries(self, x: Tensor) -> Tensor:
        q = split_heads(self.q(x), self.n_heads)
        return q / math.sqrt(q.shape[-1])

    def after(self, rows: Tensor, attended: Tensor) -> Tensor:
        """Return the rows (B, N, D) after attention; `attended` (B, N, D) has all heads joined."""
        following: Tensor = self.norm(rows + self.out(attended))
        return following


class PostNormFeedForward(nn.Module):
    """Computes the feed-forward part of a layer: norm(x + down(gelu(up(x))))."""

    hidden = True

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm = FineNorm(width)
        self.up, self.down = Linear(width, hidden), Linear(hidden, width)

    def after(self, rows: Tensor) -> Tensor:
        """Return the rows (B, N, D) after this part, with the residual connection."""
        following: Tensor = self.norm(rows + self.down(F.gelu(self.up(rows))))
        return following
