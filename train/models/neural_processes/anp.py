"""ANP: the attentive neural process (Kim et al. 2019), with a latent for the whole function.

It is CANP whose second path gives a distribution instead of an encoding. A prediction is a mixture
over samples of that latent. The samples are computed from the state's `seed`, which a stream's user
may set: the same seed and points give the same prediction on every machine. Costs are CANP's, and a
query decodes each target once a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import (
    SEED,
    Cache,
    Prediction,
    State,
    StreamingModel,
    initial_state_beside,
)
from edgefold.train.layers.device_layers import (
    Weights,
    rounded,
)
from edgefold.train.models.neural_processes.anp_layers import filled
from edgefold.train.models.neural_processes.canp import (
    Canp,
    CanpOnDevice,
    SampledCanp,
    SampledConfig,
)
from edgefold.train.models.neural_processes.np_layers import (
    Latent,
    LatentOnDevice,
    Points,
    latent_loss,
    with_seed,
)
from edgefold.train.published import Published, as_published
from edgefold.train.states.seeded_draws import SeededNoise


class Anp(SampledCanp):
    """Two encoders, a latent and a decoder.

    The state is CANP's with a `seed`. Cache: what targets attend to, and `hidden` (B, 1, S, D),
    what each sample of the latent adds to the decoder's first layer.
    """

    name = "anp"
    presets: ClassVar[Mapping[str, SampledConfig]] = {
        "small": SampledConfig(width=64, n_samples=16),
        "paper": SampledConfig(),
    }
    published: ClassVar[Published] = as_published(
        {"ANP": (0.81, 0.63)}, {"ANP": (2.90, None, None, 0.98, 0.89)}
    )

    def __init__(self, config: SampledConfig):
        super().__init__(config)
        self.noise = SeededNoise(config.n_samples, config.width)

    def _n_pooled(self) -> int:
        return 2 * self.config.width  # mean and deviation

    def refresh(self, state: State) -> Cache:
        points, weight = filled(state["points"], self.buffer.visible(state))
        samples = Latent.of(self.encoders.pooled(points, weight)).samples(self.noise(state[SEED]))
        return self._with(samples, self.encoders.found(points, weight))

    def _with(self, samples: Tensor, found: Cache) -> Cache:
        """The cache of samples (B, S, D) of the latent."""
        return {**found, "hidden": self.decoder.part(samples, self.config.width)[:, None]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = self._of_targets(cache, x)[:, :, None] + cache["hidden"]  # (B, M, S, D)
        return self.decoder.answer(hidden)

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        points, weight = self._points(x_context, y_context, mask)
        state = initial_state_beside(self, points)
        samples = Latent.of(self.encoders.pooled(points, weight)).samples(self.noise(state[SEED]))
        return self.query(self._with(samples, self.encoders.found(points, weight)), x_target)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The importance-weighted bound, as published."""
        points, n_context = Points.of(batch), batch.x_context.shape[1]
        kept, weight = self._points(*points)
        context = kept[:, :n_context], weight[:, :n_context]
        prior, posterior = (
            Latent.of(self.encoders.pooled(*of)) for of in (context, (kept, weight))
        )
        shape = (len(kept), self.config.n_train_samples, self.config.width)
        samples = posterior.samples(torch.randn(shape, generator=generator).to(kept.device))
        told = self.query(self._with(samples, self.encoders.found(*context)), points.x)
        return latent_loss(points, told, samples, prior, posterior)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return AnpOnDevice(self, n_streams)


class AnpOnDevice(CanpOnDevice):
    """An ANP for a fixed number of streams: `hidden` is (B, 1, S, D), and `seed` in the state."""

    of_latent: Tensor

    def fold_pooled(self, model: Canp, last: Weights, of_pooled: Weights) -> None:
        self.register_buffer("of_latent", rounded(of_pooled[0], torch.float32))
        self.latent = LatentOnDevice(last, cast("Anp", model).noise)

    def initial_state(self, n_streams: int = 1) -> State:
        return with_seed(super().initial_state(n_streams), n_streams)

    def hidden(self, pooled: Tensor, state: State) -> Tensor:
        return (self.latent(pooled, state[SEED]) @ self.of_latent)[:, None]

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder.answer(self.at(cache, x)[:, :, None] + cache["hidden"])
        return {"mean": mean, "std": std}
