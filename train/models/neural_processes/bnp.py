"""BNP: the bootstrapping neural process (Lee et al. 2020) with a state of constant size.

K bootstraps of the context give K encodings, and those a mixture of K normal distributions. Each
encoding enters the decoder beside the encoding of the context itself. 248,450 parameters at the
size of the 1-D task.

The published model draws twice from the whole context. It encodes K resampled contexts, predicts
the context from each, and encodes those predictions plus resampled residuals. Neither is possible
in a state of constant size. Here

    each point enters bootstrap k as often as a Poisson number of mean 1 says, which is the online
    bootstrap (Oza and Russell 2001): given their sum, such numbers are a resampling's
    the second stage, of residuals, is left out: encodings of the resampled points are used
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.device_layers import Affine, Weights, side_by_side
from edgefold.train.models.neural_processes.cnp import Cnp
from edgefold.train.models.neural_processes.neural_process import (
    TRAINING_SAMPLES,
    NpConfig,
    SampledCnpOnDevice,
)
from edgefold.train.models.neural_processes.np_layers import (
    Points,
    bootstrap_loss,
    masked,
    means_of,
    of_encoded,
    squares,
)
from edgefold.train.published import Published, as_published
from edgefold.train.states.point_buffer import COUNT
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.running_sums import RECENT, empty_sums, total_of
from edgefold.train.states.seeded_draws import bootstrap_weights


class Bnp(Cnp):
    """A CNP and K bootstraps of it; row 0 of the state is the context itself.

    State: `sums` (B, 1 + K, 2, D), of features times weights; `count` (B, 1 + K), of weights;
    `seed` (B,). Cache: `hidden` (B, K, D), each bootstrap in the decoder's first layer.
    """

    name = "bnp"
    presets: ClassVar[Mapping[str, Any]] = {
        "small": NpConfig(width=64, n_samples=16),
        "paper": NpConfig(),
    }
    published: ClassVar[Published] = as_published(
        {"BNP": (0.38, 0.18)}, {"BNP": (2.76, 2.97, None, 0.88, 0.73)}
    )
    ordered = True  # a point's weights depend on its place

    def __init__(self, config: NpConfig):
        super().__init__(config)
        self.n_samples = config.n_samples
        self.prediction = GaussianMixture(config.n_samples)

    def _n_bootstrapped(self) -> int:
        return 2 * self.config.width

    def initial_state(self, n_streams: int = 1) -> State:
        return self.empty_state(torch.zeros(n_streams, dtype=torch.int64), self.n_samples)

    def empty_state(self, seed: Tensor, n_samples: int) -> State:
        """The state of streams with these seeds (B,) that have seen nothing, for any K."""
        lead = (len(seed), 1 + n_samples)
        return {
            "sums": torch.zeros(*lead, 2, self.config.width, device=seed.device),
            "count": torch.zeros(lead, dtype=torch.int64, device=seed.device),
            SEED: seed,
        }

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        features = self.features(masked(x, mask), masked(y, mask))
        place = state["count"][:, :1] + mask.cumsum(1) - 1
        weights = bootstrap_weights(place, state[SEED], state["count"].shape[1] - 1)
        weights = torch.where(mask[..., None], weights, 0)  # (B, U, 1 + K)
        added = weights.mT.to(features) @ features.flatten(2)
        return {
            "sums": state["sums"] + added.unflatten(-1, (2, -1)),
            "count": state["count"] + weights.sum(1),
        }

    def hidden(self, state: State) -> tuple[Tensor, Tensor]:
        """The decoder's first layer without bootstraps, (B, 1, D), and with each, (B, K, D)."""
        means = state["sums"] / state["count"].clamp(min=1)[..., None, None]
        # A bootstrap that has drawn no point yet is the context itself.
        means = torch.where(state["count"][..., None, None] > 0, means, means[:, :1])
        encoded = self.encoded(means)  # (B, 1 + K, 2D)
        base = self.decoder.part(encoded[:, :1])
        return base, base + self.decoder.part(encoded[:, 1:], bootstrapped=True)

    def refresh(self, state: State) -> Cache:
        return {"hidden": self.hidden(state)[1]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = self.decoder.inputs(x)[:, :, None] + cache["hidden"][:, None]  # (B, M, K, D)
        return self.decoder.answer(hidden)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Of the mixture of 4 bootstraps, plus that of the prediction without bootstraps."""
        points = Points.of(batch)
        seed = torch.randint(PRIME, (len(points.x),), generator=generator).to(points.x.device)
        state = self.empty_state(seed, TRAINING_SAMPLES)
        state |= self.condition(state, batch.x_context, batch.y_context, batch.mask)
        alone, told = (self.query({"hidden": each}, points.x) for each in self.hidden(state))
        return bootstrap_loss(points, alone, told)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return BnpOnDevice(self)


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
