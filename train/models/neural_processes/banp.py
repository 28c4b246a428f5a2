"""Define BANP, the bootstrapping attentive neural process (Lee et al. 2020, section 4).

It is a CANP whose doubt comes from several bootstraps, that is random resamplings of the context,
in the two stages of the paper:

    context -> resampled in pairs -> CANP predicts the whole context -> residuals
    residuals -> resampled -> added to the predictions -> a context of its own for each bootstrap
    decoder: encoding of the context and encoding of a bootstrap's context -> prediction

The points are kept, so that both stages run over the state, in `refresh` and in O(S N^2) for S
bootstraps. Draws are computed from the state's `seed`, which a stream's user may set, and from the
number of points: the same seed and points give the same prediction on every machine.

A point that a resampled context holds twice counts twice in each softmax and mean, which is the
same and shares the scores among bootstraps. How often it is held is a Poisson number of mean 1, as
in `pooling`: given their sum, such numbers are a resampling's. Keys depend on x only: a query
computes its attention weights once for all bootstraps.

On a device the state is that of CANP there, and the points themselves. S bootstraps share:

    stage 1   a bootstrap counts the context's points again, so that queries, keys and scores are
              the same for all: exponentials of scores are taken once, and one product by values
              times counts, S side by side, gives all numerators and denominators
    stage 2   bootstraps differ in y: each has self-attention of its own, as streams side by side
    query     keys depend on x only: attention weights are computed once for all

Scores are computed block after block of rows, so that memory grows with N and not with N^2.

Letters of shapes: B streams, N points, M targets, S bootstraps, X inputs, Y outputs, H heads, D
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.contract import (
    SEED,
    Cache,
    Prediction,
    State,
    StreamingModel,
    initial_state_for,
)
from edgefold.train.layers.buffer_attention import Slots
from edgefold.train.models.neural_processes.attentive import AttentiveOnDevice, AttentiveProcess
from edgefold.train.models.neural_processes.attentive_layers import (
    N_KEPT,
    ROWS,
    ResidualAttentionOnDevice,
)
from edgefold.train.models.neural_processes.np_layers import (
    AllPoints,
    bootstrap_loss,
    every_row,
    masked,
)
from edgefold.train.states.random_numbers import PRIME
from edgefold.train.states.seeded_draws import bootstrap_counts, bootstrap_places


class Draws(NamedTuple):
    """Holds the draws of S bootstraps, computed from a stream's seed (`seeded_draws`).

    Attributes:
        counts: Number of times that the first stage draws each point, (B, S, N).
        places: Place of the point whose residual the second stage gives to each point, (B, S, N).
    """

    counts: Tensor
    places: Tensor

    @classmethod
    def of(cls, visible: Tensor, seed: Tensor, n_samples: int) -> Draws:
        """Draw n_samples bootstraps for seeds (B,), from the points where visible (B, N) is True.

        These points come before all others.
        """
        arguments = visible, seed, n_samples
        return cls(bootstrap_counts(*arguments), bootstrap_places(*arguments))


class BootstrappedProcess(AttentiveProcess):
    """Predicts as BANP, by a decoder that reads encodings of the context and of one bootstrap.

    Cache: `keys`, `values` (B, 1 + S, slots, D), first those of the context itself, and
    `log_weight`, to which targets attend; what the pooled encodings add to the decoder's first
    layer: `base` (B, 1, 1, D) without bootstraps and `hidden` (B, S, 1, D) with each of them.
    """

    def refresh(self, state: State) -> Cache:
        visible = self.buffer.visible(state)
        draws = Draws.of(visible, state[SEED], self.config.n_samples)
        return self._cache_of(state["points"], state["raw"], visible.float(), draws)

    def _cache_of(self, points: Tensor, raw: Tensor, weight: Tensor, draws: Draws) -> Cache:
        """Return the cache of a context and its bootstraps.

        Args:
            points: Rows that are kept of each point, (B, N, N_KEPT, D).
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
            "keys": points[..., N_KEPT - 1, :],
            "values": context["values"],
            "log_weight": context["log_weight"],
            "base": base,
            "hidden": base + self.decoder.part(pooled[:, 1:], width, bootstrapped=True),
        }

    def _bootstrapped(
        self, points: Tensor, x: Tensor, y: Tensor, weight: Tensor, draws: Draws
    ) -> Tensor:
        """Return the y of each bootstrap's context, (B, S, N, Y): section 4.1 of the paper.

        Args:
            points: Rows that are kept of each point, (B, 1, N, N_KEPT, D).
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
        residuals = (y - guess["mean"]) / guess["std"]
        chosen = draws.places[..., None].expand_as(residuals)
        residuals = torch.gather(residuals, 2, chosen) * weight[..., None]
        mean = residuals.sum(2, keepdim=True) / weight.sum(-1).clamp(min=1)[..., None, None]
        return guess["mean"] + guess["std"] * (residuals - mean)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        _, hidden = self._hidden(cache, x)
        return _targets_first(self.decoder.answer(hidden))

    def _hidden(self, cache: Cache, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the decoder's first layer for targets x (B, M, X).

        Returns:
            The layer without bootstraps, (B, 1, M, D), and with them, (B, S, M, D).
        """
        x = x[:, None]
        attended = self.encoders.at(cache, x)  # (B, 1 + S, M, D)
        base = self.decoder.part(attended[:, :1], 0) + self.decoder.inputs(x)
        of_bootstraps = self.decoder.part(attended[:, 1:], 0, bootstrapped=True)
        return base + cache["base"], base + of_bootstraps + cache["hidden"]

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        x, y, mask = _real_first(x_context, y_context, mask)
        seed = initial_state_for(self, x)[SEED]
        draws = Draws.of(mask, seed, self.config.n_samples)
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
        draws = Draws.of(mask, seed, self.config.n_train_samples)
        plain, bootstrapped = (
            _targets_first(self.decoder.answer(rows))
            for rows in self._hidden(self._whole(x, y, mask, draws), points.x)
        )
        return bootstrap_loss(points, plain, bootstrapped)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return BanpOnDevice(self, n_streams, dtype)


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


LEAST_EXPONENT = {"float32": -80.0, "float16": -9.0}
"""Least exponent of attention weights, by type: a bootstrap may hold none of the points with the
greatest scores, and divides by the sum of the weights that remain."""


def exponentials(scores: Tensor, least: float) -> Tensor:
    """Return attention weights (B, H, rows, N) of scores, not yet divided by their sum.

    A weight is e to the power of its score minus the row's largest, at least e to `least`.
    """
    return torch.exp((scores - scores.amax(-1, keepdim=True)).clamp(min=least))


class BanpOnDevice(AttentiveOnDevice):
    """Runs a BANP on a device, for a fixed number of streams.

    State, per stream: that of `AttentiveOnDevice`, the points `raw` (B, slots, X + Y), and `seed`.
    Cache for S bootstraps: `keys` (B, H, D/H + 1, slots); `values` (B, H, slots, (1 + S) D/H),
    first those of the context itself; `hidden` (B, 1, S, D).
    """

    def __init__(self, model: BootstrappedProcess, n_streams: int, dtype: str):
        super().__init__(model, n_streams)
        self.n_samples, self.least = model.config.n_samples, LEAST_EXPONENT[dtype]

    def refresh(self, state: State) -> Cache:
        visible = self.buffer.visible(state)
        slots = self.cross.kernel.slots(visible)
        state = {**state, **{name: slots.filled(state[name]).view_as(state[name]) for name in ROWS}}
        of_x = state[ROWS[2]].flatten(0, 1)
        keys = self.cross.kernel.keys(of_x, slots)
        points = self.bootstrapped_points(state, visible, slots)  # (B, S, N, X + Y)
        # An empty slot's score is taken relative to that of slot 0, so it must hold the same.
        points = torch.where(visible[:, None, :, None], points, points[:, :, :1])
        every = visible[:, None].expand(-1, 1 + self.n_samples, -1)
        many = self.paths[0].kernel.slots(every)
        own = self.embeddings(points.flatten(0, 2))
        of_cross, of_pooled = (
            torch.cat([state[name][:, None], rows.view(*points.shape[:3], -1)], 1).flatten(0, 2)
            for name, rows in zip(ROWS[:2], own[:2], strict=True)
        )
        encodings = self.paths[0].among(of_cross, many)
        pooled = self.pooled(self.paths[1].among(of_pooled, many), many.real)
        pooled = pooled.view(self.n_streams, 1 + self.n_samples, -1)
        base = self.of_pooled(pooled[:, 0])[:, None]
        bootstraps = self.of_bootstrap(pooled[:, 1:].flatten(0, 1)).view(*points.shape[:2], -1)
        values = self.values(encodings * many.real).flatten(3)
        return {
            "keys": keys.contiguous(),
            "values": values.contiguous(),
            "hidden": (base + bootstraps)[:, None],
        }

    def values(self, rows: Tensor) -> Tensor:
        """Return the values (B, H, N, S, D/H) of the rows (B*S*N, D) of S contexts."""
        values = self.cross.kernel.v(rows)
        return values.view(self.n_streams, -1, self.n_slots, *self.heads).permute(0, 3, 2, 1, 4)

    @property
    def heads(self) -> tuple[int, int]:
        """Return the number of heads, H, and the width of a head, D/H."""
        return self.cross.kernel.n_heads, self.cross.kernel.head

    def bootstrapped_points(self, state: State, visible: Tensor, slots: Slots) -> Tensor:
        """Return the points of each bootstrap's context, (B, S, N, X + Y): section 4.1.

        `visible` (B, N) is True where a slot holds a point; `slots` is the same for attention.
        """
        counts = bootstrap_counts(visible, state[SEED], self.n_samples)  # (B, S, N)
        of_cross, of_pooled, of_x = (state[name].flatten(0, 1) for name in ROWS)
        rows = self.recounted(self.paths[0], of_cross, slots, counts)
        # A slot that is empty counts 0 times, whatever its values.
        rows = self.recounted(self.cross, of_x, slots, counts, self.values(rows))
        pooled = self.recounted(self.paths[1], of_pooled, slots, counts)
        pooled = self.of_pooled(self.pooled(pooled, counts)).view(*counts.shape[:2], 1, -1)
        x, y = state["raw"].split([self.n_inputs, self.n_outputs], -1)
        inputs = self.inputs(x.flatten(0, 1)).view(self.n_streams, 1, self.n_slots, -1)
        attended = (rows @ self.of_found).view(*counts.shape, -1)
        mean, std = self.decoder.answer(inputs + attended + pooled).values()  # (B, S, N, Y)
        residuals = (y[:, None] - mean) / std
        places = bootstrap_places(visible, state[SEED], self.n_samples)[..., None]
        real = visible[:, None, :, None].float()
        drawn = torch.gather(residuals, 2, places.expand_as(residuals)) * real
        drawn = drawn - drawn.sum(2, keepdim=True) / real.sum(2, keepdim=True).clamp(min=1.0)
        own = (mean + std * drawn) * real
        return torch.cat([x[:, None].expand(-1, self.n_samples, -1, -1), own], -1)

    def recounted(
        self,
        layer: ResidualAttentionOnDevice,
        rows: Tensor,
        slots: Slots,
        counts: Tensor,
        values: Tensor | None = None,
    ) -> Tensor:
        """Attend where each bootstrap counts the points differently: return (B*S*N, D).

        Args:
            layer: Attention that is applied.
            rows: Rows of the buffer, (B*N, D).
            slots: Which slots of the buffer hold a point, in the form that attention takes.
            counts: Number of times that each bootstrap counts each point, (B, S, N).
            values: Values of each bootstrap, (B, H, N, S, D/H); by default the values of the rows.
        """
        of, size = self.cross.kernel, (self.n_streams, self.n_slots)
        kernel = layer.kernel
        queries = kernel.q(rows).view(*size, of.n_heads, -1).transpose(1, 2)
        keys = torch.addmm(slots.hidden, rows, kernel.k).view(*size, of.n_heads, -1)
        if values is None:
            values = kernel.v(rows).view(*size, *self.heads).transpose(1, 2)[:, :, :, None]
        times = counts.mT[:, None, :, :, None]  # (B, 1, N, S, 1)
        ones = times.expand(-1, of.n_heads, -1, -1, -1)
        weighted = torch.cat([values * times, ones], -1).flatten(3)
        sums = of.averaged(queries, keys.permute(0, 2, 3, 1), weighted, self.exponentials)
        sums = sums.unflatten(3, (self.n_samples, -1))  # (B, H, N, S, D/H + 1)
        nothing = (counts.sum(2) == 0).float()[:, None, None, :, None]
        attended = sums[..., :-1] / (sums[..., -1:] + nothing)
        attended = attended.permute(0, 3, 2, 1, 4).flatten(3)  # (B, S, N, D)
        residual = layer.residual(rows).view(self.n_streams, 1, self.n_slots, -1)
        return layer.after((attended + residual).flatten(0, 2))

    def exponentials(self, scores: Tensor) -> Tensor:
        """Return exp(scores - the largest of a row), (B, H, rows, N), at least exp(self.least)."""
        return exponentials(scores, self.least)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        lead, kernel = (*x.shape[:2], 1 + self.n_samples), self.cross.kernel
        rows = x.flatten(0, 1)
        of_x = torch.relu(self.of_inputs(rows))
        attended = kernel.averaged(kernel.queries(of_x), cache["keys"], cache["values"])
        attended = attended.unflatten(3, (lead[2], -1)).permute(
            0, 2, 3, 1, 4
        )  # (B, M, 1 + S, H, D/H)
        total = attended.flatten(3) + self.cross.residual(of_x).view(*lead[:2], 1, -1)
        hidden = self.cross.after(total.flatten(0, 2)).view(*lead, -1)
        base = self.inputs(rows).view(*lead[:2], 1, -1) + hidden[:, :, :1] @ self.of_found
        hidden = base + hidden[:, :, 1:] @ self.bootstrapped + cache["hidden"]
        return self.decoder.answer(hidden)  # (B, M, S, Y)
