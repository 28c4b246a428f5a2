"""BANP rewritten so that a device does as little as possible.

It keeps what CANP keeps on a device, and the points themselves. What is shared among S bootstraps:

    stage 1   a bootstrap counts the context's points anew, so that queries, keys and scores are the
              same for all: exponentials of scores are taken once, and one product by values times
              counts, S side by side, gives all numerators and denominators
    stage 2   bootstraps differ in y: each has self-attention of its own, as streams side by side
    query     keys depend on x alone: attention weights are computed once for all

Scores are computed block after block of rows, so that memory grows with N and not with N^2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgefold.train.contract import SEED, Cache, Prediction, State
from edgefold.train.layers.buffer_attention import Slots
from edgefold.train.layers.device_layers import Affine, Weights, rounded
from edgefold.train.models.neural_processes.anp_device import (
    ROWS,
    CanpOnDevice,
    ResidualAttentionOnDevice,
)
from edgefold.train.models.neural_processes.pooling_device import composed, squares
from edgefold.train.states.seeded_draws import bootstrap_counts, bootstrap_places

if TYPE_CHECKING:
    from edgefold.train.models.neural_processes.banp import Banp
    from edgefold.train.models.neural_processes.canp import Canp

LEAST_EXPONENT = {"float32": -80.0, "float16": -9.0}
"""Exponentials are no smaller: a bootstrap may hold none of the points with the greatest scores,
and divides by the sum of what is left."""


def exponentials(scores: Tensor, least: float) -> Tensor:
    """Attention weights (B, H, rows, N) but for their sum."""
    return torch.exp((scores - scores.amax(-1, keepdim=True)).clamp(min=least))


class BanpOnDevice(CanpOnDevice):
    """A BANP for a fixed number of streams.

    State, per stream: that of `CanpOnDevice`, `raw` (B, slots, X + Y), and `seed`. Cache: `keys`
    (B, H, D/H + 1, slots); `values` (B, H, slots, (1 + S) D/H), first those of the context itself;
    `hidden` (B, 1, S, D).
    """

    bootstrapped: Tensor

    def __init__(self, model: Banp, n_streams: int, dtype: str):
        self.n_samples = model.config.n_samples
        super().__init__(model, n_streams)
        self.least = LEAST_EXPONENT[dtype]

    @property
    def n_encoded(self) -> int:
        return self.n_streams * (1 + self.n_samples)

    def fold_pooled(self, model: Canp, last: Weights, of_pooled: Weights) -> None:
        super().fold_pooled(model, last, of_pooled)
        assert model.decoder.bootstrapped is not None
        weight = model.decoder.bootstrapped.weight.double()
        of_found, of_pooled_too = weight.chunk(2)
        self.of_bootstrap = Affine(composed(last, (of_pooled_too, weight.new_zeros(len(of_found)))))
        self.register_buffer("bootstrapped", rounded(of_found, torch.float32))

    def initial_state(self, n_streams: int = 1) -> State:
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return {**super().initial_state(n_streams), SEED: seed}

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        points = torch.cat([x, y], -1)
        found = dict(zip(ROWS, self.embeddings(points), strict=True))
        return self.buffer.written(state, {**found, "raw": points}, squares(x, y).sum(1))

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
        found = self.paths[0].among(of_cross, many)
        pooled = self.pooled(self.paths[1].among(of_pooled, many), many.real)
        pooled = pooled.view(self.n_streams, 1 + self.n_samples, -1)
        base = self.of_pooled(pooled[:, 0])[:, None]
        bootstraps = self.of_bootstrap(pooled[:, 1:].flatten(0, 1)).view(*points.shape[:2], -1)
        values = self.values(found * many.real).flatten(3)
        return {
            "keys": keys.contiguous(),
            "values": values.contiguous(),
            "hidden": (base + bootstraps)[:, None],
        }

    def values(self, rows: Tensor) -> Tensor:
        """What targets read of several contexts' rows (B*S*N, D): (B, H, N, S, D/H)."""
        values = self.cross.kernel.v(rows)
        return values.view(self.n_streams, -1, self.slots, *self.heads).permute(0, 3, 2, 1, 4)

    @property
    def heads(self) -> tuple[int, int]:
        """H, D/H."""
        return self.cross.kernel.n_heads, self.cross.kernel.head

    def bootstrapped_points(self, state: State, visible: Tensor, slots: Slots) -> Tensor:
        """The points of each bootstrap's context, (B, S, N, X + Y): section 4.1 of the paper."""
        counts = bootstrap_counts(visible, state[SEED], self.n_samples)  # (B, S, N)
        of_cross, of_pooled, of_x = (state[name].flatten(0, 1) for name in ROWS)
        rows = self.recounted(self.paths[0], of_cross, slots, counts)
        # A slot that is empty counts 0 times, whatever its values.
        rows = self.recounted(self.cross, of_x, slots, counts, self.values(rows))
        pooled = self.recounted(self.paths[1], of_pooled, slots, counts)
        pooled = self.of_pooled(self.pooled(pooled, counts)).view(*counts.shape[:2], 1, -1)
        x, y = state["raw"].split([self.n_inputs, self.n_outputs], -1)
        inputs = self.inputs(x.flatten(0, 1)).view(self.n_streams, 1, self.slots, -1)
        found = (rows @ self.of_found).view(*counts.shape, -1)
        mean, std = self.decoder.answer(inputs + found + pooled)  # (B, S, N, Y)
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
        """What attention finds if points count anew, (B*S*N, D).

        Args:
            layer: The attention.
            rows: Of the buffer, (B*N, D).
            slots: Of the buffer.
            counts: How often each point counts, (B, S, N).
            values: Of each bootstrap, (B, H, N, S, D/H); by default those of the rows.
        """
        of, size = self.cross.kernel, (self.n_streams, self.slots)
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
        residual = layer.residual(rows).view(self.n_streams, 1, self.slots, -1)
        return layer.after((attended + residual).flatten(0, 2))

    def exponentials(self, scores: Tensor) -> Tensor:
        """See `exponentials` of this file."""
        return exponentials(scores, self.least)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        lead, kernel = (*x.shape[:2], 1 + self.n_samples), self.cross.kernel
        rows = x.flatten(0, 1)
        of_x = torch.relu(self.of_inputs(rows))
        found = kernel.averaged(kernel.queries(of_x), cache["keys"], cache["values"])
        found = found.unflatten(3, (lead[2], -1)).permute(0, 2, 3, 1, 4)  # (B, M, 1 + S, H, D/H)
        total = found.flatten(3) + self.cross.residual(of_x).view(*lead[:2], 1, -1)
        hidden = self.cross.after(total.flatten(0, 2)).view(*lead, -1)
        base = self.inputs(rows).view(*lead[:2], 1, -1) + hidden[:, :, :1] @ self.of_found
        hidden = base + hidden[:, :, 1:] @ self.bootstrapped + cache["hidden"]
        mean, std = self.decoder.answer(hidden)  # (B, M, S, Y)
        return {"mean": mean, "std": std}
