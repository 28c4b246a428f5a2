"""A temporal convolutional network: dilated causal convolutions over the last points.

Bai et al., "An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
Modeling", 2018. Five layers of kernel 3 with dilations 1 to 16 see the last 63 points.

`forward` runs `torch.nn.Conv1d` over a whole sequence. `update` computes the newest column alone,
from buffers of what each layer has read (Paine et al., "Fast Wavenet Generation Algorithm", 2016):

    past            one buffer for all layers, oldest column first in each layer's part
    old taps        the columns that a layer's kernel meets besides the newest one. They are known
                    before the point comes, so one product serves all layers.

    edgefold verify examples/tcn.py:Tcn
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Prediction, State, StreamingModel


class Tcn(StreamingModel):
    """Residual layers `h + mix(relu(convolution(h)))`, and a head on the last one.

    Args:
        width: D, channels of every layer.
        dilations: Steps between the taps of each layer's kernel.
        kernel: Taps of a kernel, at least 2.
        n_inputs: X; 0 for a sequence of y alone.
        n_outputs: Y.
    """

    taps: Tensor
    shift: Tensor

    def __init__(
        self,
        width: int = 64,
        dilations: Sequence[int] = (1, 2, 4, 8, 16),
        kernel: int = 3,
        n_inputs: int = 1,
        n_outputs: int = 1,
    ):
        super().__init__()
        self.n_inputs, self.n_outputs = n_inputs, n_outputs
        self.embed = nn.Linear(n_inputs + n_outputs, width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, width, kernel, dilation=dilation) for dilation in dilations
        )
        self.mixes = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in dilations)
        self.head = nn.Sequential(
            nn.Linear(width + n_inputs, width), nn.SiLU(), nn.Linear(width, 2 * n_outputs)
        )
        # Layer k's part of `past` holds the (kernel - 1) * dilation columns before the newest one.
        taps: list[int] = []
        shift: list[int] = []
        start = 0
        lengths = [(kernel - 1) * dilation for dilation in dilations]
        for layer, (length, dilation) in enumerate(zip(lengths, dilations, strict=True)):
            taps += range(start, start + length, dilation)
            # The next part: all columns but the oldest, then the newest, from behind `past`.
            shift += [*range(start + 1, start + length), sum(lengths) + layer]
            start += length
        self.register_buffer("taps", torch.tensor(taps), persistent=False)
        self.register_buffer("shift", torch.tensor(shift), persistent=False)

    def initial_state(self, n_streams: int = 1) -> State:
        """Columns `past`, (B, sum of lengths, D), and the last layer's output `last`, (B, D)."""
        like = self.embed.weight
        width = like.shape[0]
        return {
            "past": like.new_zeros(n_streams, len(self.shift), width),
            "last": like.new_zeros(n_streams, width),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """x (B, X), y (B, Y)."""
        past = state["past"]
        kernels = torch.stack([layer.weight.permute(2, 1, 0) for layer in self.convolutions])
        biases = torch.stack([layer.bias for layer in self.convolutions])  # (K, D)
        old_taps, newest_tap = kernels[:, :-1].flatten(1, 2), kernels[:, -1]  # (K, taps * D, D)
        old = past.index_select(1, self.taps).reshape(len(past), len(kernels), 1, -1)
        before = (old @ old_taps)[:, :, 0] + biases  # (B, K, D)
        hidden = self.embed(torch.cat([x, y], -1))
        columns = []
        for layer, (mix, known) in enumerate(zip(self.mixes, before.unbind(1), strict=True)):
            columns.append(hidden)
            seen = torch.addmm(known, hidden, newest_tap[layer])
            hidden = torch.addmm(hidden, F.relu(seen), mix.weight.mT)
        past = torch.cat([past, torch.stack(columns, 1)], 1).index_select(1, self.shift)
        # All that was computed is in the last layer: one sum tells whether it is finite.
        return {"past": past, "last": hidden, "finite": hidden.sum(-1)}

    def query(self, cache: State, x: Tensor) -> Prediction:
        """x (B, M, X); mean and std (B, M, Y)."""
        last = cache["last"][:, None].expand(-1, x.shape[1], -1)  # (B, M, D)
        mean, spread = self.head(torch.cat([last, x], -1)).chunk(2, -1)
        return {"mean": mean, "std": F.softplus(spread) + 1e-3}

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """For training: convolutions over the whole sequence, (B, N, X) and (B, N, Y)."""
        if mask is not None or x_context.shape[1] == 0:
            return super().forward(x_context, y_context, x_target, mask)
        hidden = self.embed(torch.cat([x_context, y_context], -1))  # (B, N, D)
        for convolution, mix in zip(self.convolutions, self.mixes, strict=True):
            n_before = (convolution.kernel_size[0] - 1) * convolution.dilation[0]
            seen = convolution(F.pad(hidden.mT, (n_before, 0)))  # (B, D, N)
            hidden = hidden + mix(F.relu(seen).mT)
        return self.query({"last": hidden[:, -1]}, x_target)
