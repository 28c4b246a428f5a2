"""BANP: the bootstrapping attentive neural process (Lee et al. 2020, section 4).

CANP predicts with the doubt of several bootstraps, in the two stages that the paper gives:

    context -> resampled in pairs -> CANP predicts the whole context -> residuals
    residuals -> resampled -> added to the predictions -> a context of its own for each bootstrap
    decoder: encoding of the context and encoding of a bootstrap's context -> prediction

The points are kept, so that both stages run over the state, in `refresh` and in O(S N^2) for S
bootstraps. What is drawn is computed from the state's `seed`, which a stream's user may set, and
from the number of points: the same seed and points give the same prediction on every machine.

A point that a resampled context holds twice counts twice in each softmax and mean, which is the
same and shares the scores among bootstraps. How often it is held is a Poisson number of mean 1, as
in `bnp`: given their sum, such numbers are a resampling's. Keys depend on x alone: a query computes
its attention weights once for all bootstraps (see `banp_device`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

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
from edgefold.train.models.neural_processes.anp_layers import N_KEPT
from edgefold.train.models.neural_processes.banp_device import BanpOnDevice
from edgefold.train.models.neural_processes.canp import SampledCanp, SampledConfig
from edgefold.train.models.neural_processes.np_layers import Points, bootstrap_loss, masked
from edgefold.train.published import Published, as_published
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.seeded_draws import bootstrap_counts, bootstrap_places


class Draws(NamedTuple):
    """What S bootstraps draw, by a stream's seed: see `seeded_draws`.

    Attributes:
        counts: How often the first stage draws each point, (B, S, N).
        places: Of the point whose residual the second stage gives to each point, (B, S, N).
    """

    counts: Tensor
    places: Tensor

    @classmethod
    def of(cls, visible: Tensor, seed: Tensor, n_samples: int) -> Draws:
        """From which places hold a point (B, N), the first ones, and seeds (B,)."""
        arguments = visible, seed, n_samples
        return cls(bootstrap_counts(*arguments), bootstrap_places(*arguments))


class Banp(SampledCanp):
    """CANP with a decoder that also takes the encoding of a bootstrap.

    State, per stream: CANP's, `raw` (B, slots, X + Y), the points themselves, and `seed`. Cache:
    what targets attend to, whose values are (B, 1 + S, slots, D), first those of the context
    itself; and `hidden` (B, S, 1, D), what the pooled encodings add to the decoder's first layer.
    """

    name = "banp"
    presets: ClassVar[Mapping[str, SampledConfig]] = {
        "small": SampledConfig(width=64, n_samples=8),
        "paper": SampledConfig(),
    }
    published: ClassVar[Published] = as_published(
        {"BANP": (0.82, 0.66)}, {"BANP": (3.09, None, None, 1.01, 0.94)}
    )

    def __init__(self, config: SampledConfig):
        super().__init__(config)
        self.ordered = True  # what a bootstrap draws depends on a point's place

    def _rows(self) -> dict[str, tuple[int, ...]]:
        return {**super()._rows(), "raw": (self.config.n_inputs + self.config.n_outputs,)}

    def _n_bootstrapped(self) -> int:
        return 2 * self.config.width

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {"points": self.encoders.points(x, y), "raw": torch.cat([x, y], -1)}
        return self.buffer.written(state, rows)

    def refresh(self, state: State) -> Cache:
        visible = self.buffer.visible(state)
        draws = Draws.of(visible, state[SEED], self.config.n_samples)
        return self._cache_of(state["points"], state["raw"], visible.float(), draws)

    def _cache_of(self, points: Tensor, raw: Tensor, weight: Tensor, draws: Draws) -> Cache:
        """The cache of a context and its bootstraps.

        Args:
            points: What is kept of each point, (B, N, N_KEPT, D).
            raw: The points themselves, (B, N, X + Y).
            weight: 1 in the first places, 0 in empty ones, (B, N).
            draws: What the bootstraps draw.
        """
        points, raw, weight = points[:, None], raw[:, None], weight[:, None]
        x, y = raw.split([self.n_inputs, self.n_outputs], -1)
        bootstrapped = self._bootstrapped(points, x, y, weight, draws)
        x = x.expand(-1, draws.counts.shape[1], -1, -1)
        own = self.encoders.points(x, bootstrapped.detach())
        every = torch.cat([points, torch.where(weight[..., None, None] > 0, own, 0.0)], 1)
        found, width = self.encoders.found(every, weight), self.config.width
        pooled = self.encoders.pooled(every, weight)[:, :, None]  # (B, 1 + S, 1, D)
        base = self.decoder.part(pooled[:, :1], width)
        return {
            "keys": points[..., N_KEPT - 1, :],
            "values": found["values"],
            "log_weight": found["log_weight"],
            "base": base,
            "hidden": base + self.decoder.part(pooled[:, 1:], width, bootstrapped=True),
        }

    def _bootstrapped(
        self, points: Tensor, x: Tensor, y: Tensor, weight: Tensor, draws: Draws
    ) -> Tensor:
        """The y of each bootstrap's context, (B, S, N, Y): section 4.1 of the paper."""
        resampled = draws.counts
        found = self.encoders.found(points, resampled)
        rows = self.decoder.part(self.encoders.at(found, x), 0) + self.decoder.inputs(x)
        pooled = self.encoders.pooled(points, resampled)[:, :, None]
        guess = self.decoder.answer(rows + self.decoder.part(pooled, self.config.width))
        residuals = (y - guess["mean"]) / guess["std"]
        chosen = draws.places[..., None].expand_as(residuals)
        residuals = torch.gather(residuals, 2, chosen) * weight[..., None]
        mean = residuals.sum(2, keepdim=True) / weight.sum(-1).clamp(min=1)[..., None, None]
        return guess["mean"] + guess["std"] * (residuals - mean)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        _, hidden = self._hidden(cache, x)
        return _targets_first(self.decoder.answer(hidden))

    def _hidden(self, cache: Cache, x: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's first layer without bootstraps (B, 1, M, D), and with (B, S, M, D)."""
        x = x[:, None]
        found = self.encoders.at(cache, x)  # (B, 1 + S, M, D)
        base = self.decoder.part(found[:, :1], 0) + self.decoder.inputs(x)
        of_bootstraps = self.decoder.part(found[:, 1:], 0, bootstrapped=True)
        return base + cache["base"], base + of_bootstraps + cache["hidden"]

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        x, y, mask = _real_first(x_context, y_context, mask)
        seed = initial_state_beside(self, x)[SEED]
        draws = Draws.of(mask, seed, self.config.n_samples)
        return self.query(self._whole(x, y, mask, draws), x_target)

    def _whole(self, x: Tensor, y: Tensor, mask: Tensor, draws: Draws) -> Cache:
        """The cache of a batch's context."""
        points, weight = self._points(x, y, mask)
        return self._cache_of(points, masked(torch.cat([x, y], -1), mask), weight, draws)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """The published loss: with bootstraps, and without."""
        points = Points.of(batch)
        x, y, mask = _real_first(batch.x_context, batch.y_context, batch.mask)
        seed = torch.randint(PRIME, (len(x),), generator=generator).to(x.device)
        draws = Draws.of(mask, seed, self.config.n_train_samples)
        alone, told = (
            _targets_first(self.decoder.answer(rows))
            for rows in self._hidden(self._whole(x, y, mask, draws), points.x)
        )
        return bootstrap_loss(points, alone, told)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return BanpOnDevice(self, n_streams, dtype)


def _targets_first(prediction: Prediction) -> Prediction:
    """(B, S, M, Y) to (B, M, S, Y)."""
    return {name: part.transpose(1, 2) for name, part in prediction.items()}


def _real_first(x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Points in the places that a buffer gives them: those that a mask hides come last."""
    if mask is None:
        return x, y, torch.ones_like(x[..., 0], dtype=torch.bool)
    order = torch.argsort(~mask, dim=1, stable=True)
    x, y = (torch.take_along_dim(points, order[..., None], 1) for points in (x, y))
    return x, y, torch.take_along_dim(mask, order, 1)
