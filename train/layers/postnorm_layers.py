"""Define the encoder layer of Vaswani et al. 2017 (section 3.1).

It normalises after each addition:

    h = norm(x + attention(x, keys and values))
    y = norm(h + down(relu(up(h))))

Unlike the layers of `layers`, it adds its residual connections itself, and all projections have a
bias. Transformer Neural Processes (Nguyen & Grover 2022) are made of it.

In the device's form attention has no masks (`buffer_attention`), B streams lie in one matrix of
rows (B*rows, D), and no addition is left that a product could do. An output layer adds its input,
the residual connection, in place of its bias. The bias is already in that input: the layer norm
before it adds both, and all else that reads the sum subtracts it again, which is a constant in its
own bias.

    x' = x + bias of `out`             comes from the layer before, or from the embedding
    h' = norm(x' + attended W_out) + bias of `down`
    y' = norm(h' + relu(h' W_up + ...) W_down) + bias of the next layer's `out`
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import HIDDEN, LayerNorm, Linear, join_heads, split_heads
from edgefold.train.layers.buffer_attention import BufferAttention, Slots
from edgefold.train.layers.device_layers import Affine, Weights, exact, rounded, scaled


class PostNormLayer(nn.Module):
    """Lets rows (..., rows, D) attend and passes them through a feed-forward layer with ReLU.

    Rows attend to themselves (`forward`), or to keys and values that were computed before, possibly
    of other rows (`step`). A boolean `visible` is True for what a row may see; it broadcasts to
    (..., H, rows, N), for H heads and N keys. The attention of a row that sees nothing is 0.
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

    def keys_values(self, rows: Tensor, visible: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return keys and values (..., H, N, D/H) of rows (..., N, D); `visible` is not used."""
        return split_heads(self.k(rows), self.n_heads), split_heads(self.v(rows), self.n_heads)

    def step(
        self,
        rows: Tensor,
        normal: Tensor,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Return the layer's output (..., rows, D) for `rows`, whose queries come from `normal`.

        Args:
            rows: Rows that attend, (..., rows, D).
            normal: The same rows: this layer normalises only after its additions.
            keys: Keys by head, (..., H, N, D/H).
            values: Values by head, (..., H, N, D/H).
            visible: True for keys that a row may see; broadcasts to (..., H, rows, N).
        """
        queries = split_heads(self.q(normal), self.n_heads)
        mask = None
        if visible is not None:
            mask = torch.where(visible, 0.0, HIDDEN).to(rows.dtype)
        # One operation: no scores of N x N are held.
        attended = F.scaled_dot_product_attention(queries, keys, values, mask)
        if visible is not None:
            attended = attended * visible.any(-1, keepdim=True)
        return self.finish(rows, attended)

    def finish(self, rows: Tensor, attended: Tensor) -> Tensor:
        """Return the output for rows (..., rows, D) that attended to values (..., H, rows, D/H)."""
        hidden = self.norm(rows + self.out(join_heads(attended)))
        after: Tensor = self.last_norm(hidden + self.down(torch.relu(self.up(hidden))))
        return after

    def forward(self, rows: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return the output for rows (..., rows, D) that attend to each other where `visible`."""
        return self.step(rows, rows, *self.keys_values(rows), visible)


def queries_keys_values(layer: PostNormLayer) -> tuple[Weights, Weights, Weights]:
    """Return the layer's weights of queries (scaled), keys and values, in float64."""
    return scaled(exact(layer.q), layer.n_heads), exact(layer.k), exact(layer.v)


def _shifted(linear: Linear, shift: Tensor) -> Weights:
    """Return weights that give `linear(x)` from x + shift."""
    weight, bias = exact(linear)
    return weight, bias - shift @ weight


class NormOnDevice(nn.Module):
    """Applies a layer norm and adds `shift` (D,), the bias of the output layer that follows."""

    weight: Tensor
    bias: Tensor

    def __init__(self, norm: LayerNorm, shift: Tensor):
        super().__init__()
        self.register_buffer("weight", norm.weight.detach().clone())
        self.register_buffer("bias", rounded(norm.bias.double() + shift, torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, LayerNorm.eps)


class PostNormOnDevice(nn.Module):
    """Runs one post-norm layer over rows (B*rows, D), with constants folded for a device.

    Args:
        layer: The trained layer.
        following: Bias of the next layer's `out`, which this layer adds to its output.
        n_streams: B, the number of streams.
    """

    out: Tensor
    down: Tensor

    def __init__(self, layer: PostNormLayer, following: Tensor, n_streams: int):
        super().__init__()
        out, down = exact(layer.out), exact(layer.down)
        q, v = _shifted(layer.q, out[1]), _shifted(layer.v, out[1])
        self.attention = BufferAttention(q, exact(layer.k), v, layer.n_heads, n_streams)
        self.register_buffer("out", rounded(out[0], torch.float32))
        self.norm = NormOnDevice(layer.norm, down[1])
        self.up = Affine(_shifted(layer.up, down[1]))
        self.register_buffer("down", rounded(down[0], torch.float32))
        self.last_norm = NormOnDevice(layer.last_norm, following)

    def keys_values(self, normal: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Return keys (B, H, D/H + 1, N) and values (B, H, N, D/H) of a buffer's rows (B*N, D)."""
        return self.attention.keys_values(normal, slots)

    def step(
        self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor, slots: Slots | None = None
    ) -> Tensor:
        """Return the output (B*rows, D) for `rows`, which attend to keys and values.

        Keys and values come from `keys_values`; the keys hide empty slots, so `slots` is not used.
        `normal` equals `rows`, since this layer normalises only after its additions.
        """
        attended = self.attention.attended(self.attention.queries(normal), keys, values)
        hidden = self.norm(torch.addmm(rows, attended, self.out))
        risen = torch.relu(self.up(hidden))
        return self.last_norm(torch.addmm(hidden, risen, self.down))
