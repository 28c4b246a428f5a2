"""Models that hold means over points, rewritten so that a device does as little as possible.

    update, condition   points -> features of both encoders, added to the recent sums
    consolidate         recent -> base (see `running_sums`)
    refresh             means -> the decoder's first layer, without the target's part
    query               that layer -> prediction

The first layers of both encoders are one matrix. The others stay two matrices: one matrix with
zeros beside both has twice the weights. The number of points is one more sum, of ones. Linear
layers that follow each other are one matrix.

An update reports squares of the point as `finite`: a ReLU hides NaN on some backends, and a square
overflows long before a layer does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from edgefold.train.contract import FINITE, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Linear
from edgefold.train.layers.device_layers import Affine, Weights, exact, rounded
from edgefold.train.layers.prediction_head import std_of
from edgefold.train.models.neural_processes.np_layers import (
    LEAST_STD,
    Decoder,
    PoolingEncoder,
    masked,
)
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    total_of,
)

if TYPE_CHECKING:
    from edgefold.train.models.neural_processes.cnp import Cnp


def linear_layers(module: nn.Module) -> list[Weights]:
    """Weights of the linear layers in a module, in their order."""
    return [exact(layer) for layer in module.modules() if isinstance(layer, Linear)]


def composed(first: Weights, second: Weights) -> Weights:
    """Two linear layers in a row as one."""
    return first[0] @ second[0], first[1] @ second[0] + second[1]


def side_by_side(layers: list[Weights], following: Weights) -> Weights:
    """Layers D -> D and a layer over their outputs side by side, as one layer over their inputs."""
    weight, bias = following
    parts = zip(layers, weight.chunk(len(layers)), strict=True)
    weights, biases = zip(*(composed(own, (part, bias * 0)) for own, part in parts), strict=True)
    return torch.vstack(weights), bias + sum(biases)


def of_encoded(decoder: Decoder) -> Weights:
    """What leads from encodings to a decoder's first layer."""
    weight, bias = exact(decoder.first)
    return weight[: decoder.n_encoded], bias


class FeaturesOnDevice(nn.Module):
    """Inputs and outputs of rows -> both encoders' features and 1, (rows, 2D + 1)."""

    one: Tensor

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        layers = [linear_layers(encoder.of_point) for encoder in encoders]
        weights, biases = zip(*(own[0] for own in layers), strict=True)
        self.first = Affine((torch.hstack(weights), torch.hstack(biases)))
        self.second, self.third = (
            nn.ModuleList(Affine(own[number]) for own in layers) for number in (1, 2)
        )
        self.register_buffer("one", torch.ones(1, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        halves = torch.relu(self.first(torch.cat([x, y], -1))).chunk(2, -1)
        found = [
            third(torch.relu(second(half)))
            for half, second, third in zip(halves, self.second, self.third, strict=True)
        ]
        return torch.relu(torch.cat([*found, self.one.expand(len(y), 1)], -1))


class MeansOnDevice(nn.Module):
    """Means (rows, 2D) -> the hidden layer behind them, (rows, 2D)."""

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        folded = (composed(*linear_layers(encoder.of_mean)[:2]) for encoder in encoders)
        self.first = nn.ModuleList(Affine(weights) for weights in folded)

    def forward(self, means: Tensor) -> Tensor:
        halves = zip(self.first, means.chunk(2, -1), strict=True)
        return torch.relu(torch.cat([first(half) for first, half in halves], -1))


class PoolingDecoderOnDevice(nn.Module):
    """x (B, M, ...) and S encodings in the first layer (B, S, D) -> (B, M, S, Y) twice."""

    of_input: Tensor

    def __init__(self, decoder: Decoder, n_outputs: int):
        super().__init__()
        weight, _ = exact(decoder.first)
        self.register_buffer("of_input", rounded(weight[decoder.n_encoded :], torch.float32))
        first, (weight, bias) = linear_layers(decoder.rest)
        self.hidden = Affine(first)
        self.mean = Affine((weight[:, :n_outputs], bias[:n_outputs]))
        self.spread = Affine((weight[:, n_outputs:], bias[n_outputs:]))

    def forward(self, x: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
        return self.answer((x @ self.of_input)[:, :, None] + encoded[:, None])  # (B, M, S, D)

    def answer(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (..., Y) from the first layer's sum (..., D)."""
        lead = hidden.shape[:-1]
        hidden = torch.relu(self.hidden(torch.relu(hidden).flatten(0, -2)))
        mean, std = self.mean(hidden), std_of(self.spread(hidden), LEAST_STD)
        return mean.view(*lead, -1), std.view(*lead, -1)


class CnpOnDevice(StreamingModel):
    """A CNP for a device. State: the sums of `running_sums`, (B, 2D + 1)."""

    ordered = False
    consolidate_every = CONSOLIDATE_EVERY

    @torch.no_grad()
    def __init__(self, model: Cnp):
        super().__init__()
        self.config, self.prediction = model.config, model.prediction
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        encoders: list[PoolingEncoder] = list(model.encoders)  # type: ignore[arg-type]
        self.features, self.means = FeaturesOnDevice(encoders), MeansOnDevice(encoders)
        self.decoder = PoolingDecoderOnDevice(model.decoder, model.n_outputs)
        self.fold_encodings(model, [linear_layers(encoder.of_mean)[2] for encoder in encoders])

    def fold_encodings(self, model: Cnp, last: list[Weights]) -> None:
        """Make what leads from the hidden layer behind the means to the decoder's first layer.

        Args:
            model: The trained form.
            last: The last layer of each encoder.
        """
        self.of_encoded = Affine(side_by_side(last, of_encoded(model.decoder)))

    def initial_state(self, n_streams: int = 1) -> State:
        return empty_sums(n_streams, 2 * self.config.width + 1)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        added = self.features(x, y)
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum(1)}

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        x, y = masked(x, mask), masked(y, mask)
        features = self.chunk_features(x, y)
        seen = torch.ones_like(x[..., 0]) if mask is None else mask.to(features)
        added = (seen[:, None] @ features)[:, 0]
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum((1, 2))}

    def chunk_features(self, x: Tensor, y: Tensor) -> Tensor:
        """Chunks (B, U, X) and (B, U, Y) -> features and the number 1, (B, U, 2D + 1)."""
        rows = self.features(x.flatten(0, 1), y.flatten(0, 1))
        return rows.unflatten(0, x.shape[:2])

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def refresh(self, state: State) -> Cache:
        return {"hidden": self.of_encoded(self.means(means_of(total_of(state))))[:, None]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder(x, cache["hidden"])
        return {"mean": mean[:, :, 0], "std": std[:, :, 0]}


def squares(x: Tensor, y: Tensor) -> Tensor:
    """The squares of points' numbers, (..., X + Y)."""
    points = torch.cat([x, y], -1)
    return points * points


def means_of(sums: Tensor) -> Tensor:
    """Sums (..., 2D + 1) whose last one is the number of points -> means (..., 2D), 0 if none."""
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)
