"""NP and BNP rewritten for a device, on top of the rewritten CNP."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from edgefold.train.contract import FINITE, SEED, Cache, Prediction, State
from edgefold.train.layers.device_layers import Affine, Weights, rounded
from edgefold.train.models.neural_processes.np_layers import latent_std, masked
from edgefold.train.models.neural_processes.pooling_device import (
    CnpOnDevice,
    composed,
    means_of,
    of_encoded,
    side_by_side,
    squares,
)
from edgefold.train.states.point_buffer import COUNT
from edgefold.train.states.running_sums import RECENT, empty_sums, total_of
from edgefold.train.states.seeded_draws import bootstrap_weights

if TYPE_CHECKING:
    from edgefold.train.models.neural_processes.bnp import Bnp
    from edgefold.train.models.neural_processes.cnp import Cnp
    from edgefold.train.models.neural_processes.neural_process import Np


class SampledCnpOnDevice(CnpOnDevice):
    """A CNP for a device with several encodings: a prediction is a mixture over them."""

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder(x, cache["hidden"])
        return {"mean": mean, "std": std}


class NpOnDevice(SampledCnpOnDevice):
    """An NP for a device. State: that of a CNP for a device, and `seed` (B,)."""

    of_latent: Tensor

    def fold_encodings(self, model: Cnp, last: list[Weights]) -> None:
        noise = cast("Np", model).noise
        width = model.config.width
        weight, bias = of_encoded(model.decoder)
        self.of_encoded = Affine(composed(last[0], (weight[:width], bias)))
        self.register_buffer("of_latent", rounded(weight[width:], torch.float32))
        weight, bias = last[1]
        self.latent_mean = Affine((weight[:, :width], bias[:width]))
        self.latent_spread = Affine((weight[:, width:], bias[width:]))
        self.noise = noise

    def initial_state(self, n_streams: int = 1) -> State:
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return {**super().initial_state(n_streams), SEED: seed}

    def refresh(self, state: State) -> Cache:
        encoded, latent = self.means(means_of(total_of(state))).chunk(2, -1)
        mean, deviation = self.latent_mean(latent), latent_std(self.latent_spread(latent))
        z = mean[:, None] + deviation[:, None] * self.noise(state[SEED])  # (B, S, D)
        return {"hidden": self.of_encoded(encoded)[:, None] + z @ self.of_latent}


class BnpOnDevice(SampledCnpOnDevice):
    """A BNP for a device.

    State: the sums of `running_sums`, (B, 1 + K, 2D + 1), of which row 0 is the context itself;
    `count` (B,), of points; `seed` (B,).
    """

    def fold_encodings(self, model: Cnp, last: list[Weights]) -> None:
        self.of_encoded = Affine(side_by_side(last, of_encoded(model.decoder)))
        self.n_samples = cast("Bnp", model).n_samples
        assert model.decoder.bootstrapped is not None
        weight = model.decoder.bootstrapped.weight.double()
        self.of_bootstrap = Affine(side_by_side(last, (weight, weight.new_zeros(len(weight[0])))))

    def initial_state(self, n_streams: int = 1) -> State:
        count = torch.zeros(n_streams, dtype=torch.int64)
        sums = empty_sums(n_streams, 1 + self.n_samples, 2 * self.config.width + 1)
        return {**sums, COUNT: count, SEED: count.clone()}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        weights = bootstrap_weights(state[COUNT][:, None], state[SEED], self.n_samples)
        added = weights.to(y).mT * self.features(x, y)[:, None]  # (B, 1 + K, 2D + 1)
        return {
            RECENT: state[RECENT] + added,
            COUNT: state[COUNT] + 1,
            FINITE: squares(x, y).sum(1),
        }

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        x, y = masked(x, mask), masked(y, mask)
        place = state[COUNT][:, None] + mask.cumsum(1) - 1
        weights = bootstrap_weights(place, state[SEED], self.n_samples)
        weights = torch.where(mask[..., None], weights, 0).to(y)  # (B, U, 1 + K)
        return {
            RECENT: state[RECENT] + weights.mT @ self.chunk_features(x, y),
            COUNT: state[COUNT] + mask.sum(1),
            FINITE: squares(x, y).sum((1, 2)),
        }

    def refresh(self, state: State) -> Cache:
        total = total_of(state)
        means = means_of(total)
        means = torch.where(total[..., -1:] > 0, means, means[:, :1])
        hidden = self.means(means.flatten(0, 1)).unflatten(0, means.shape[:2])  # (B, 1 + K, 2D)
        base = self.of_encoded(hidden[:, 0])[:, None]
        bootstraps = self.of_bootstrap(hidden[:, 1:].flatten(0, 1))
        return {"hidden": base + bootstraps.unflatten(0, (len(base), self.n_samples))}
