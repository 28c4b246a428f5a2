"""Define the BNP of two stages, as published (Lee et al. 2020, section 4).

It is a CNP that encodes the context and each bootstrap's context (`bootstraps`), and so it keeps
the points. `refresh` costs O(S N) for S bootstraps: nothing attends to the points.

On a device the state is only the points themselves, and no update runs a network: `refresh` has to
make the features of S contexts of N points anyway, and makes those of the context with them.

    update    keeps x and y
    refresh   features of the points -> counted by S bootstraps -> predictions of the points ->
              resampled residuals -> features of the S contexts -> the decoder's first layer
    query     that layer -> prediction

Letters of shapes: B streams, N points, S bootstraps, X inputs, Y outputs, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from edgefold.train.contract import SEED, Cache, State, StreamingModel
from edgefold.train.models.neural_processes.bootstraps import BootstrappedProcess, with_residuals
from edgefold.train.models.neural_processes.np_layers import squares, with_seed
from edgefold.train.models.neural_processes.pooling import NpConfig
from edgefold.train.models.neural_processes.pooling_device import (
    PoolingLayersOnDevice,
    means_of_total,
)
from edgefold.train.models.neural_processes.pooling_encoders import KeptEncoders, PoolingEncoder
from edgefold.train.states.point_buffer import PointBuffer
from edgefold.train.states.seeded_draws import Counts, bootstrap_counts, bootstrap_places


@dataclass(frozen=True, slots=True)
class BnpConfig(NpConfig):
    """Holds the sizes of a BNP, and its form.

    Attributes:
        stages: 2 as published, resampling points and then residuals, which keeps the points; 1 for
            a state of constant size, which resamples points only.
        counts: How often a bootstrap of two stages counts a point: see `seeded_draws.Counts`. With
            one stage they are always "poisson": a sum cannot draw from all points.
        capacity, when_full: Number of points that are kept with two stages, and what becomes of
            one beyond it.
    """

    stages: Literal[1, 2] = 1
    counts: Counts = "poisson"
    capacity: int = 256
    when_full: str = "refuse"


class TwoStageProcess(BootstrappedProcess):
    """Predicts as the published BNP, from points that it keeps.

    The rows of a point are the features of both encoders. Cache: `first` (B, 1 + S, 1, D), the
    first encodings of the context and of each bootstrap's; `base` and `hidden` of
    `BootstrappedProcess`.
    """

    sampling = "bootstrap"
    encoders: KeptEncoders

    def __init__(self, config: BnpConfig):
        n_in, width = config.n_inputs + config.n_outputs, config.width
        encoders = KeptEncoders(PoolingEncoder(n_in, width, width) for _ in range(2))
        super().__init__(config, encoders, (2, width))
        if config.start == "ours":
            self.decoder.bend_at_inputs()

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return TwoStagesOnDevice(self, n_streams)


class TwoStagesOnDevice(PoolingLayersOnDevice):
    """Runs a BNP of two stages on a device, for a fixed number of streams.

    State, per stream: `raw` (B, slots, X + Y), the points, their `count` and `seed`.
    """

    def __init__(self, model: TwoStageProcess, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer = PointBuffer(model.capacity, model.when_full, model.raw_rows())
        self.rings, self.n_samples = self.buffer.rings, model.config.n_samples
        self.counts: Counts = model.config.counts

    def initial_state(self, n_streams: int = 1) -> State:
        return with_seed(self.buffer.initial_state(n_streams), n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"raw": torch.cat([x, y], -1)}, squares(x, y).sum(1))

    def refresh(self, state: State) -> Cache:
        visible = self.buffer.visible(state)
        real = visible[:, None].float()  # (B, 1, N)
        x, y = state["raw"].split([self.n_inputs, self.n_outputs], -1)
        features = self._features(x, y)  # (B, N, 2D + 1)
        counts = bootstrap_counts(visible, state[SEED], self.n_samples, self.counts)
        first = self.of_encoded(self._encoded(counts @ features)).view(*counts.shape[:2], 1, -1)
        guess = self.decoder.answer((x @ self.decoder.of_input)[:, None] + first)
        places = bootstrap_places(visible, state[SEED], self.n_samples)
        own = with_residuals(y[:, None], guess, places, real)  # (B, S, N, Y)
        inputs = x[:, None].expand(-1, self.n_samples, -1, -1)
        every = self._features(inputs.flatten(0, 1), own.flatten(0, 1))  # (B*S, N, 2D + 1)
        every = every.view(*counts.shape[:2], -1, every.shape[-1])
        total = (real[:, None] @ every)[:, :, 0]
        base = self.of_encoded(self._encoded(real @ features))[:, None]
        hidden = self.of_bootstrap(self._encoded(total)).view(*counts.shape[:2], -1)
        return {"hidden": base + hidden}

    def _features(self, x: Tensor, y: Tensor) -> Tensor:
        """Return features and a 1 of points x (B, N, X), y (B, N, Y): (B, N, 2D + 1)."""
        rows: Tensor = self.features(x.flatten(0, 1), y.flatten(0, 1))
        return rows.view(*x.shape[:2], -1)

    def _encoded(self, total: Tensor) -> Tensor:
        """Return what enters the encoders' last layers, (B*S, 2D), for sums (B, S, 2D + 1)."""
        encoded: Tensor = self.means(means_of_total(total).flatten(0, 1))
        return encoded
