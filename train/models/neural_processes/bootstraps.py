"""Define the two stages of bootstrapping neural processes (Lee et al. 2020, section 4).

    context -> resampled in pairs -> the process predicts the whole context -> residuals
    residuals -> resampled -> added to the predictions -> a context of its own for each bootstrap
    decoder: encoding of the context and encoding of a bootstrap's context -> prediction

The points are kept, so that both stages run over the state, in `refresh`. Draws are computed from
the state's `seed`, which a stream's user may set, and from the number of points: the same seed and
points give the same prediction on every machine. A point that a resampled context holds twice
counts twice in each softmax and mean, which is the same and shares the scores among bootstraps.

`banp` has the attentive encoders, `two_stages` the pooling ones.

Letters of shapes: B streams, N points, M targets, S bootstraps, X inputs, Y outputs, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Cache, Prediction, State
from edgefold.train.models.neural_processes.kept_process import KeptProcess
from edgefold.train.models.neural_processes.np_layers import (
    AllPoints,
    bootstrap_loss,
    every_row,
    masked,
)
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.seeded_draws import Counts, bootstrap_counts, bootstrap_places


class Draws(NamedTuple):
    """Holds the draws of S bootstraps, computed from a stream's seed (`seeded_draws`).

    Attributes:
        counts: Number of times that the first stage draws each point, (B, S, N).
        places: Place of the point whose residual the second stage gives to each point, (B, S, N).
    """

    counts: Tensor
    places: Tensor

    @classmethod
    def of(cls, visible: Tensor, seed: Tensor, n_samples: int, counts: Counts = "poisson") -> Draws:
        """Draw n_samples bootstraps for seeds (B,), from the points where visible (B, N) is True.

        These points come before all others. `counts` is described at `seeded_draws`.
        """
        arguments = visible, seed, n_samples
        return cls(bootstrap_counts(*arguments, counts), bootstrap_places(*arguments))


def with_residuals(y: Tensor, guess: Prediction, places: Tensor, weight: Tensor) -> Tensor:
    """Return the y of each bootstrap's context, (B, S, N, Y): its guess plus resampled residuals.

    Residuals are divided by the guess's deviation, resampled, and centred; section 4.1 of the
    paper.

    Args:
        y: Outputs of the points, (B, 1, N, Y).
        guess: Prediction of the points by each bootstrap of the first stage, (B, S, N, Y).
        places: Place of the point whose residual each point gets, (B, S, N).
        weight: 1 for each real point, 0 for the empty places after them, (B, 1, N).
    """
    mean, std = guess["mean"], guess["std"]
    residuals = (y - mean) / std
    drawn = torch.gather(residuals, 2, places[..., None].expand_as(residuals)) * weight[..., None]
    centre = drawn.sum(2, keepdim=True) / weight.sum(-1).clamp(min=1)[..., None, None]
    return mean + std * (drawn - centre)


class BootstrappedProcess(KeptProcess):
    """Predicts by a decoder that reads encodings of the context and of one bootstrap; a base class.

    Cache: what the first encoder found in the contexts, (B, 1 + S, ...), first in the context
    itself; what the second encoder's encodings add to the decoder's first layer: `base` (B, 1, 1,
    D) without bootstraps and `hidden` (B, S, 1, D) with each of them.
    """

    def refresh(self, state: State) -> Cache:
        visible = self.buffer.visible(state)
        draws = Draws.of(visible, state[SEED], self.config.n_samples, self.config.counts)
        return self._cache_of(state["points"], state["raw"], visible.float(), draws)

    def _cache_of(self, points: Tensor, raw: Tensor, weight: Tensor, draws: Draws) -> Cache:
        """Return the cache of a context and its bootstraps.

        Args:
            points: Rows that are kept of each point, (B, N, *row).
            raw: Inputs and outputs of the points, (B, N, X + Y).
            weight: 1 for each real point, 0 for the empty places after them, (B, N).
            draws: Draws of the bootstraps.
        """
        points, raw, weight = points[:, None], raw[:, None], weight[:, None]
        x, y = raw.split([self.n_inputs, self.n_outputs], -1)
        bootstrapped = self._bootstrapped(points, x, y, weight, draws)
        x = x.expand(-1, draws.counts.shape[1], -1, -1)
        own = self.encoders.points(x, bootstrapped.detach())
        every = torch.cat([points, torch.where(weight[..., None, None] > 0, own, 0.0)], 1)
        context, width = self.encoders.found(every, weight), self.config.width
        pooled = self.encoders.pooled(every, weight)  # (B, 1 + S, 1, D)
        base = self.decoder.part(pooled[:, :1], width)
        return {
            **self.shared(context),
            "base": base,
            "hidden": base + self.decoder.part(pooled[:, 1:], width, bootstrapped=True),
        }

    def shared(self, context: Cache) -> Cache:
        """Return what the first encoder found, with one copy of what all contexts share."""
        return context

    def _bootstrapped(
        self, points: Tensor, x: Tensor, y: Tensor, weight: Tensor, draws: Draws
    ) -> Tensor:
        """Return the y of each bootstrap's context, (B, S, N, Y): section 4.1 of the paper.

        Args:
            points: Rows that are kept of each point, (B, 1, N, *row).
            x: Inputs of the points, (B, 1, N, X).
            y: Outputs of the points, (B, 1, N, Y).
            weight: 1 for each real point, 0 for the empty places after them, (B, 1, N).
            draws: Draws of the bootstraps.
        """
        resampled = draws.counts
        context = self.encoders.found(points, resampled)
        rows = self.decoder.part(self.encoders.at(context, x), 0) + self.decoder.inputs(x)
        pooled = self.encoders.pooled(points, resampled)
        guess = self.decoder.answer(rows + self.decoder.part(pooled, self.config.width))
        return with_residuals(y, guess, draws.places, weight)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        _, hidden = self._hidden(cache, x)
        return _targets_first(self.decoder.answer(hidden))

    def _hidden(self, cache: Cache, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the decoder's first layer for targets x (B, M, X).

        Returns:
            The layer without bootstraps, (B, 1, M, D), and with them, (B, S, M, D).
        """
        x = x[:, None]
        attended = self.encoders.at(cache, x)  # (B, 1 + S, M, D), or 1 in place of M
        base = self.decoder.part(attended[:, :1], 0) + self.decoder.inputs(x)
        of_bootstraps = self.decoder.part(attended[:, 1:], 0, bootstrapped=True)
        return base + cache["base"], base + of_bootstraps + cache["hidden"]

    def forward(
        self,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        mask: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Prediction:
        x, y, mask = _real_first(x_context, y_context, mask)
        seed = self.seeded(x, seeds)[SEED]
        draws = Draws.of(mask, seed, self.config.n_samples, self.config.counts)
        return self.query(self._whole(x, y, mask, draws), x_target)

    def _whole(self, x: Tensor, y: Tensor, mask: Tensor, draws: Draws) -> Cache:
        """Return the cache of a context x (B, N, X), y (B, N, Y) and its bootstraps by `draws`.

        The mask (B, N) is True for real points.
        """
        points, weight = self.at_once(x, y, mask)
        return self._cache_of(points, masked(torch.cat([x, y], -1), mask), weight, draws)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the published loss, (): that of predictions with bootstraps, plus that without."""
        points = AllPoints.of(batch)
        x, y, mask = _real_first(batch.x_context, batch.y_context, batch.mask)
        seed = torch.randint(PRIME, (len(x),), generator=generator).to(x.device)
        draws = Draws.of(mask, seed, self.config.n_train_samples, self.config.counts)
        plain, bootstrapped = (
            _targets_first(self.decoder.answer(rows))
            for rows in self._hidden(self._whole(x, y, mask, draws), points.x)
        )
        return bootstrap_loss(points, plain, bootstrapped)


def _targets_first(prediction: Prediction) -> Prediction:
    """Reorder the tensors of a prediction from (B, S, M, Y) to (B, M, S, Y)."""
    return {name: part.transpose(1, 2) for name, part in prediction.items()}


def _real_first(x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Order points as a buffer does: real ones come first, those that a mask hides last.

    Return x, y and the mask in this order.
    """
    if mask is None:
        return x, y, every_row(x, mask)
    order = torch.argsort(~mask, dim=1, stable=True)
    x, y = (torch.take_along_dim(points, order[..., None], 1) for points in (x, y))
    return x, y, torch.take_along_dim(mask, order, 1)
