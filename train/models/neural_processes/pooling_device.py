"""Define the form of CNP, NP and BNP for a device, which does as little as possible.

    update, condition   points -> features of both encoders, added to the recent sums
    consolidate         recent -> base (see `running_sums`)
    refresh             means -> the decoder's first layer, without the target's part
    query               that layer -> prediction

The first layers of both encoders are one matrix. The others stay two matrices: one matrix with
zeros next to both has twice the weights. The number of points is kept as one more sum, of ones.
Linear layers that follow each other are one matrix.

An update reports squares of the point as `finite`: a ReLU hides NaN on some backends, and a square
overflows long before a layer does.

Letters of shapes: B streams, U points, K bootstraps, S samples, X inputs, Y outputs, D width.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from edgefold.train.contract import FINITE, SEED, Cache, Prediction, State
from edgefold.train.layers.device_layers import (
    Affine,
    composed,
    exact,
    linear_layers,
    rounded,
    side_by_side,
)
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.neural_processes.neural_process import NeuralProcess
from edgefold.train.models.neural_processes.np_layers import (
    LatentOnDevice,
    ProcessDecoderOnDevice,
    every_row,
    masked,
    squares,
    with_seed,
)
from edgefold.train.models.neural_processes.pooling_encoders import PoolingEncoder
from edgefold.train.states.point_buffer import COUNT
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    merged_sums,
    total_of,
)
from edgefold.train.states.seeded_draws import bootstrap_weights


class FeaturesOnDevice(nn.Module):
    """Computes both encoders' features of points, and a 1: (rows, 2D + 1).

    The points are x (rows, X) and y (rows, Y).
    """

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
        features = [
            third(torch.relu(second(half)))
            for half, second, third in zip(halves, self.second, self.third, strict=True)
        ]
        return torch.relu(torch.cat([*features, self.one.expand(len(y), 1)], -1))


class MeansOnDevice(nn.Module):
    """Computes both encoders from the means of features up to the encoders' last layer.

    The means of both encoders are (rows, 2D), and so is the result.
    """

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        folded = (composed(*linear_layers(encoder.of_mean)[:2]) for encoder in encoders)
        self.first = nn.ModuleList(Affine(weights) for weights in folded)

    def forward(self, means: Tensor) -> Tensor:
        halves = zip(self.first, means.chunk(2, -1), strict=True)
        return torch.relu(torch.cat([first(half) for first, half in halves], -1))


class PoolingLayersOnDevice(DeviceForm):
    """Holds the layers of a process whose encoders pool features, and queries; a base class.

    Cache: `hidden` (B, S, D), what encodings add to the decoder's first layer.
    """

    of_latent: Tensor

    @torch.no_grad()
    def __init__(self, model: NeuralProcess, n_streams: int = 1):
        super().__init__(model, n_streams)
        self.sampling, width, decoder = model.sampling, model.config.width, model.decoder
        encoders: list[PoolingEncoder] = list(model.encoders)
        self.features, self.means = FeaturesOnDevice(encoders), MeansOnDevice(encoders)
        self.decoder = ProcessDecoderOnDevice(decoder, model.n_outputs)
        last = [linear_layers(encoder.of_mean)[2] for encoder in encoders]
        weight, bias = exact(decoder.first)
        weight = weight[: decoder.n_encoded]
        if self.sampling == "latent":
            self.of_encoded = Affine(composed(last[0], (weight[:width], bias)))
            self.register_buffer("of_latent", rounded(weight[width:], torch.float32))
            self.latent = LatentOnDevice(last[1], model.noise)
            return
        self.of_encoded = Affine(side_by_side(last, (weight, bias)))
        if decoder.bootstrapped is not None:
            weight = decoder.bootstrapped.weight.double()
            self.of_bootstrap = Affine(side_by_side(last, (weight, torch.zeros_like(bias))))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.decoder(x, cache["hidden"])
        if self.sampling == "none":
            return {name: part[:, :, 0] for name, part in prediction.items()}
        return prediction


class PoolingOnDevice(PoolingLayersOnDevice):
    """Runs a CNP or an NP on a device.

    State: `recent_sums`, `base_sums` and `rest_sums` of `running_sums`, (B, 2D + 1) each: sums of
    both encoders' features and, last, the number of points; with a latent also `seed` (B,).
    """

    consolidate_every = CONSOLIDATE_EVERY

    def initial_state(self, n_streams: int = 1) -> State:
        state = empty_sums(n_streams, 2 * self.config.width + 1)
        return state if self.sampling == "none" else with_seed(state, n_streams)

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
        """Return features and a 1, (B, U, 2D + 1), of points x (B, U, X), y (B, U, Y)."""
        rows = self.features(x.flatten(0, 1), y.flatten(0, 1))
        return rows.unflatten(0, x.shape[:2])

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def merge(self, state: State, other: State) -> State:
        return merged_sums(state, other)

    def refresh(self, state: State) -> Cache:
        total = total_of(state)
        hidden = self.means(means_of_total(total))
        if self.sampling == "none":
            return {"hidden": self.of_encoded(hidden)[:, None]}
        encoded, latent = hidden.chunk(2, -1)
        samples = self.latent(latent, state[SEED])
        return {"hidden": self.of_encoded(encoded)[:, None] + samples @ self.of_latent}


def means_of_total(sums: Tensor) -> Tensor:
    """Divide sums (..., 2D + 1) by the last one, the number of points: return (..., 2D).

    Without points the means are 0.
    """
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class BnpOnDevice(PoolingOnDevice):
    """Runs a BNP on a device.

    State: the sums of `PoolingOnDevice`, but (B, 1 + K, 2D + 1): row 0 is for the context itself,
    the others for K bootstraps; `count` (B,), the number of points; `seed` (B,).
    """

    def initial_state(self, n_streams: int = 1) -> State:
        sums = empty_sums(n_streams, 1 + self.config.n_samples, 2 * self.config.width + 1)
        return with_seed({**sums, COUNT: torch.zeros(n_streams, dtype=torch.int64)}, n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        weights = bootstrap_weights(state[COUNT][:, None], state[SEED], self.config.n_samples)
        added = weights.to(y).mT * self.features(x, y)[:, None]  # (B, 1 + K, 2D + 1)
        return {
            RECENT: state[RECENT] + added,
            COUNT: state[COUNT] + 1,
            FINITE: squares(x, y).sum(1),
        }

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = every_row(x, mask)
        x, y = masked(x, mask), masked(y, mask)
        place = state[COUNT][:, None] + mask.cumsum(1) - 1
        weights = bootstrap_weights(place, state[SEED], self.config.n_samples)
        weights = torch.where(mask[..., None], weights, 0).to(y)  # (B, U, 1 + K)
        return {
            RECENT: state[RECENT] + weights.mT @ self.chunk_features(x, y),
            COUNT: state[COUNT] + mask.sum(1),
            FINITE: squares(x, y).sum((1, 2)),
        }

    def refresh(self, state: State) -> Cache:
        total = total_of(state)
        means = means_of_total(total)
        means = torch.where(total[..., -1:] > 0, means, means[:, :1])
        hidden = self.means(means.flatten(0, 1)).unflatten(0, means.shape[:2])  # (B, 1 + K, 2D)
        base = self.of_encoded(hidden[:, 0])[:, None]
        bootstraps = self.of_bootstrap(hidden[:, 1:].flatten(0, 1))
        return {"hidden": base + bootstraps.unflatten(0, (len(base), self.config.n_samples))}
