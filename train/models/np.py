"""NP: the latent neural process (Garnelo et al. 2018b), in the form of the later papers' tables.

One encoder gives a vector, the other the mean and deviation of a normal latent variable. S samples
of it give a mixture of S normal distributions; S is chosen at export. The samples' noise depends on
the stream's seed alone: it is the same at every point, so that predictions change smoothly along a
stream. 232,194 parameters at the size of the 1-D task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Normal

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.models.cnp import Cnp, CnpConfig
from edgefold.train.models.contract import SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.models.latent_device import NpOnDevice
from edgefold.train.models.pooling import latent_deviation, visible_points
from edgefold.train.models.seeded_draws import SeededNoise

TRAINING_SAMPLES = 4


@dataclass(frozen=True, slots=True)
class NpConfig(CnpConfig):
    """The shape of an NP: that of a CNP, and S."""

    n_samples: int = 50

    def __post_init__(self) -> None:
        CnpConfig.__post_init__(self)
        if self.n_samples < 1:
            raise ValueError(f"n_samples is {self.n_samples}, must be at least 1")


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
    published: ClassVar[Mapping[str, Mapping[str, tuple[float, ...]]]] = {}
    encoded_widths = (1, 2)

    def __init__(self, config: NpConfig):
        super().__init__(config)
        self.prediction = GaussianMixture(config.n_samples)
        self.noise = SeededNoise(config.n_samples, config.width)

    def initial_state(self, n_streams: int = 1) -> State:
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return {**super().initial_state(n_streams), SEED: seed}

    def refresh(self, state: State) -> Cache:
        means = state["sums"] / state["count"].clamp(min=1)[:, None, None]
        encoded, latent = self.encodings(means)
        z = latent.mean[:, None] + latent.stddev[:, None] * self.noise(state[SEED])
        return {"hidden": self.hidden(encoded, z)}

    def encodings(self, means: Tensor) -> tuple[Tensor, Normal]:
        """Means of features (B, 2, D) -> a vector and a distribution, (B, D)."""
        encoded, mean, spread = self.encoded(means).chunk(3, -1)
        return encoded, Normal(mean, latent_deviation(spread), validate_args=False)

    def hidden(self, encoded: Tensor, z: Tensor) -> Tensor:
        """A vector (B, D) and samples (B, S, D) in the decoder's first layer, (B, S, D)."""
        found: Tensor = self.decoder.of_encoded(torch.cat([encoded[:, None].expand_as(z), z], -1))
        return found

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder(x[:, :, None], cache["hidden"][:, None])
        return {"mean": mean, "std": std}  # (B, M, S, Y)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The importance-weighted bound with 4 samples (Burda et al. 2016), a point's share of it.

        Samples come from the posterior of context and targets together; all these points are
        predicted.
        """
        context_mask = batch.mask
        if context_mask is None:
            context_mask = torch.ones(batch.x_context.shape[:2], dtype=torch.bool)
        n_targets = batch.x_target.shape[1]
        mask = torch.cat([context_mask, context_mask.new_ones(len(context_mask), n_targets)], 1)
        x = torch.cat([batch.x_context, batch.x_target], 1)
        y = torch.cat([batch.y_context, batch.y_target], 1)
        x, y = visible_points(x, y, mask).split([self.n_inputs, self.n_outputs], -1)
        features = self.features(torch.cat([x, y], -1))  # (B, N + M, 2, D)
        seen = torch.cat([context_mask, torch.zeros_like(mask[:, -n_targets:])], 1)
        encoded, prior = self.encodings(mean_over(features, seen))
        _, posterior = self.encodings(mean_over(features, mask))
        shape = (TRAINING_SAMPLES, *posterior.mean.shape)
        z = posterior.mean + posterior.stddev * torch.randn(shape, generator=generator)
        bound = (prior.log_prob(z) - posterior.log_prob(z)).sum(-1)  # (S, B)
        told = self.query({"hidden": self.hidden(encoded, z.transpose(0, 1))}, x)
        each = Normal(told["mean"], told["std"], validate_args=False).log_prob(y[:, :, None])
        bound = bound + (each.sum(-1) * mask[:, :, None]).sum(1).T
        bound = bound.logsumexp(0) - math.log(TRAINING_SAMPLES)
        return -(bound / mask.sum(1)).mean()

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return NpOnDevice(self)


def mean_over(features: Tensor, mask: Tensor) -> Tensor:
    """Features (B, U, 2, D) -> their mean (B, 2, D) over the rows of a mask (B, U); 0 if none."""
    sums = torch.einsum("bu,bukd->bkd", mask.to(features), features)
    return sums / mask.sum(1).clamp(min=1)[:, None, None]
