"""Define pre-norm layers of attention and feed-forward, and the form that devices run.

In the device's form masks cost nothing (`buffer_attention`), layer norms are folded into the
products behind them, and the caller normalises once what several products read. B is the number of
streams, N of slots, D the width of a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from edgefold.train.layers.attention import Attention, FeedForward, Reads, Residual
from edgefold.train.layers.buffer_attention import BufferAttention, Slots
from edgefold.train.layers.device_layers import Affine, FeedForwardOnDevice, exact, fold


class AttentionLayer(nn.Module):
    """Applies attention and a feed-forward layer, and adds the result of each to its input."""

    def __init__(
        self,
        width: int,
        n_heads: int,
        feedforward: int,
        *,
        own_context_norm: bool = False,
        residual: Residual = "input",
        reads: Reads = "normalised",
    ):
        super().__init__()
        self.attention = Attention(
            width, n_heads, cross=own_context_norm, residual=residual, reads=reads
        )
        self.ff = FeedForward(width, feedforward, residual=residual)

    def keys_values(self, rows: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of rows (B, N, D), each (B, H, N, D/H); `visible` is not used."""
        return self.attention.keys_values(rows)

    def step(
        self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor, visible: Tensor
    ) -> Tensor:
        """Return the layer's output (B, rows, D) for `rows`, whose queries come from `normal`.

        Args:
            rows: Rows that attend, (B, rows, D).
            normal: The same rows: this form normalises them itself.
            keys: Keys by head, (B, H, N, D/H).
            values: Values by head, (B, H, N, D/H).
            visible: True for keys that take part, (B, N).
        """
        attended = self.attention.attend(self.attention.queries(normal), keys, values, visible)
        return self.ff.added(self.attention.kept(rows) + attended)


class AttentionLayerOnDevice(nn.Module):
    """Runs one layer of attention and feed-forward over rows (B*rows, D).

    Args:
        attention, ff: The two trained layers.
        n_streams: B, the number of streams.
    """

    scale: Tensor | None

    def __init__(self, attention: Attention, ff: FeedForward, n_streams: int):
        super().__init__()
        norm = attention.norm if attention.context_norm is None else attention.context_norm
        raw = attention.reads == "raw"
        keys, values = (
            exact(side) if raw else fold(norm, side) for side in (attention.k, attention.v)
        )
        weights = fold(attention.norm, attention.q), keys, values
        self.attention = BufferAttention(*weights, attention.n_heads, n_streams)
        weight, bias = exact(attention.out)
        scale = None
        if attention.residual == "normalised":
            scale, bias = attention.norm.weight.detach().float(), bias + attention.norm.bias
        self.register_buffer("scale", scale)
        self.out = Affine((weight, bias))
        self.ff = FeedForwardOnDevice(ff, torch.float32)

    def keys_values(self, rows: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return keys (B, H, D/H + 1, N) and values (B, H, N, D/H) of rows (B*N, D).

        The rows are normalised, unless the trained layer reads them "raw".
        """
        return self.attention.keys_values(rows, slots)

    def step(
        self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor, slots: Slots | None = None
    ) -> Tensor:
        """Return the output (B*rows, D) for `rows`, which attend to keys and values.

        Keys and values come from `keys_values`; the keys hide empty slots, so `slots` is not used.
        `normal` holds the rows after `normalise`.
        """
        attended = self.out(self.attention.attended(self.attention.queries(normal), keys, values))
        kept = rows if self.scale is None else normal * self.scale  # the shift is in `out`
        after: Tensor = self.ff(attended + kept)
        return after


def on_device(layers: Iterable[AttentionLayer], n_streams: int) -> list[AttentionLayerOnDevice]:
    """Return the device's form of each layer, as a list of modules."""
    forms = (AttentionLayerOnDevice(layer.attention, layer.ff, n_streams) for layer in layers)
    return cast("list[AttentionLayerOnDevice]", nn.ModuleList(forms))
