"""NP: the latent neural process (Garnelo et al. 2018b), in the form of the later papers' tables.

One encoder gives a vector, the other the mean and deviation of a normal latent variable. S samples
of it give a mixture of S normal distributions; S is chosen at export. The samples' noise depends on
the stream's seed alone: it is the same at every point, so that predictions change smoothly along a
stream. 232,194 parameters at the size of the 1-D task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.device_layers import Affine, Weights, composed, rounded
from edgefold.train.models.neural_processes.cnp import Cnp, CnpConfig, CnpOnDevice
from edgefold.train.models.neural_processes.np_layers import (
    Latent,
    LatentOnDevice,
    Points,
    latent_loss,
    means_of,
    of_encoded,
    with_seed,
)
from edgefold.train.published import Published, as_published
from edgefold.train.states.running_sums import total_of
from edgefold.train.states.seeded_draws import SeededNoise

TRAINING_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class NpConfig(CnpConfig):
    """The shape of an NP: that of a CNP, and S."""

    n_samples: int = 50


class Np(Cnp):
    """A CNP whose second encoder gives a distribution.

    State: that of a CNP; `seed` (B,). Cache: `hidden` (B, S, D), each sample in the decoder's first
    layer.
    """

    name = "np"
    presets: ClassVar[Mapping[str, Any]] = {
        "small": NpConfig(width=64, n_samples=16),
        "paper": NpConfig(),
    }
    published: ClassVar[Published] = as_published(
        {"NP": (0.27, 0.07)}, {"NP": (2.48, 2.60, 2.67, 0.79, 0.59)}
    )
    encoded_widths = (1, 2)

    def __init__(self, config: NpConfig):
        super().__init__(config)
        self.prediction = GaussianMixture(config.n_samples)
        self.noise = SeededNoise(config.n_samples, config.width)

    def initial_state(self, n_streams: int = 1) -> State:
        return with_seed(super().initial_state(n_streams), n_streams)

    def refresh(self, state: State) -> Cache:
        means = state["sums"] / state["count"].clamp(min=1)[:, None, None]
        encoded, latent = self.encodings(means)
        return {"hidden": self.hidden(encoded, latent.samples(self.noise(state[SEED])))}

    def encodings(self, means: Tensor) -> tuple[Tensor, Latent]:
        """Means of features (B, 2, D) -> a vector and a distribution, (B, D)."""
        encoded = self.encoded(means)
        return encoded[..., : self.config.width], Latent.of(encoded[..., self.config.width :])

    def hidden(self, encoded: Tensor, samples: Tensor) -> Tensor:
        """A vector (B, D) and samples (B, S, D) in the decoder's first layer, (B, S, D)."""
        of_samples = self.decoder.part(samples, self.config.width)
        return self.decoder.part(encoded)[:, None] + of_samples

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = self.decoder.inputs(x)[:, :, None] + cache["hidden"][:, None]  # (B, M, S, D)
        return self.decoder.answer(hidden)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The importance-weighted bound with 4 samples, as published."""
        points = Points.of(batch)
        features = self.features(points.x, points.y)  # (B, P, 2, D)
        n_context = batch.x_context.shape[1]
        encoded, prior = self.encodings(
            mean_over(features[:, :n_context], points.mask[:, :n_context])
        )
        _, posterior = self.encodings(mean_over(features, points.mask))
        shape = (len(encoded), TRAINING_SAMPLES, self.config.width)
        samples = posterior.samples(torch.randn(shape, generator=generator).to(encoded.device))
        told = self.query({"hidden": self.hidden(encoded, samples)}, points.x)
        return latent_loss(points, told, samples, prior, posterior)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return NpOnDevice(self)


def mean_over(features: Tensor, mask: Tensor) -> Tensor:
    """Features (B, U, 2, D) -> their mean (B, 2, D) over the rows of a mask (B, U); 0 if none."""
    sums = torch.einsum("bu,bukd->bkd", mask.to(features), features)
    return sums / mask.sum(1).clamp(min=1)[:, None, None]


class SampledCnpOnDevice(CnpOnDevice):
    """A CNP for a device with several encodings: a prediction is a mixture over them."""

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder(x, cache["hidden"])
        return {"mean": mean, "std": std}


class NpOnDevice(SampledCnpOnDevice):
    """An NP for a device. State: that of a CNP for a device, and `seed` (B,)."""

    of_latent: Tensor

    def fold_encodings(self, model: Cnp, last: list[Weights]) -> None:
        width = model.config.width
        weight, bias = of_encoded(model.decoder)
        self.of_encoded = Affine(composed(last[0], (weight[:width], bias)))
        self.register_buffer("of_latent", rounded(weight[width:], torch.float32))
        self.latent = LatentOnDevice(last[1], cast("Np", model).noise)

    def initial_state(self, n_streams: int = 1) -> State:
        return with_seed(super().initial_state(n_streams), n_streams)

    def refresh(self, state: State) -> Cache:
        encoded, latent = self.means(means_of(total_of(state))).chunk(2, -1)
        samples = self.latent(latent, state[SEED])
        return {"hidden": self.of_encoded(encoded)[:, None] + samples @ self.of_latent}
