"""Define BANP, the bootstrapping attentive neural process (Lee et al. 2020, section 4).

It is a CANP whose doubt comes from several bootstraps, that is random resamplings of the context,
in the two stages of the paper (`bootstraps`). `refresh` runs both over the kept points, in O(S N^2)
for S bootstraps. Keys depend on x only: a query computes its attention weights once for all
bootstraps.

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

from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.contract import SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.buffer_attention import Slots
from edgefold.train.models.neural_processes.attentive import (
    AttentiveOnDevice,
    AttentiveProcess,
    SampledConfig,
)
from edgefold.train.models.neural_processes.attentive_layers import ROWS, ResidualAttentionOnDevice
from edgefold.train.models.neural_processes.bootstraps import BootstrappedProcess, with_residuals
from edgefold.train.states.seeded_draws import Counts, bootstrap_counts, bootstrap_places


@dataclass(frozen=True, slots=True)
class BanpConfig(SampledConfig):
    """Holds the sizes of a BANP, how many points it keeps, and its bootstraps.

    `counts` is how often a bootstrap of the first stage counts a point: see `seeded_draws.Counts`.
    """

    counts: Counts = "poisson"


class BanpProcess(BootstrappedProcess, AttentiveProcess):
    """Predicts as BANP.

    Cache: `keys` (B, 1, slots, D), which depend on x only; `values` (B, 1 + S, slots, D), first
    those of the context itself; `log_weight`; `base` and `hidden` of `BootstrappedProcess`.
    """

    def shared(self, context: Cache) -> Cache:
        return {**context, "keys": context["keys"][:, :1]}

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return BanpOnDevice(self, n_streams, dtype)


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

    def __init__(self, model: BanpProcess, n_streams: int, dtype: str):
        super().__init__(model, n_streams)
        self.n_samples, self.least = model.config.n_samples, LEAST_EXPONENT[dtype]
        self.counts: Counts = model.config.counts

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
        counts = bootstrap_counts(visible, state[SEED], self.n_samples, self.counts)  # (B, S, N)
        of_cross, of_pooled, of_x = (state[name].flatten(0, 1) for name in ROWS)
        rows = self.recounted(self.paths[0], of_cross, slots, counts)
        # A slot that is empty counts 0 times, whatever its values.
        rows = self.recounted(self.cross, of_x, slots, counts, self.values(rows))
        pooled = self.recounted(self.paths[1], of_pooled, slots, counts)
        pooled = self.of_pooled(self.pooled(pooled, counts)).view(*counts.shape[:2], 1, -1)
        x, y = state["raw"].split([self.n_inputs, self.n_outputs], -1)
        inputs = self.inputs(x.flatten(0, 1)).view(self.n_streams, 1, self.n_slots, -1)
        attended = (rows @ self.of_found).view(*counts.shape, -1)
        guess = self.decoder.answer(inputs + attended + pooled)  # (B, S, N, Y)
        places = bootstrap_places(visible, state[SEED], self.n_samples)
        real = visible[:, None].float()
        own = with_residuals(y[:, None], guess, places, real) * real[..., None]
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
