"""CMHP rewritten so that a device does as little as possible; it predicts what `Cmhp` predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import FINITE, Prediction, State
from edgefold.train.layers.device_layers import Affine, exact, normalise
from edgefold.train.models.constant_memory.cmab_device import CmabOnDevice
from edgefold.train.models.events.event_model import EventModel
from edgefold.train.models.events.event_times import LONGEST_GAP
from edgefold.train.models.events.lognormal_mixture import (
    LEAST_GAP,
    Mixture,
    gap_quantiles,
    log_density,
    mark_probabilities,
)
from edgefold.train.states.decayed_attention import DecayedAttentionOnDevice
from edgefold.train.states.running_attention import RunningAttentionOnDevice
from edgefold.train.states.running_sums import CONSOLIDATE_EVERY

if TYPE_CHECKING:
    from edgefold.train.models.events.cmhp import Cmhp


class CmhpOnDevice(EventModel):
    """The rewrite of one model that forgets, for a fixed number of streams."""

    running: RunningAttentionOnDevice
    sought: Tensor
    gap_weight: Tensor
    mark_rows: Tensor

    @torch.no_grad()
    def __init__(self, model: Cmhp, n_streams: int):
        super().__init__(model.n_marks, model.config.levels)
        c = self.config = model.config
        self.n_streams = n_streams
        self._add_attention(model)
        weight, bias = exact(model.gap_layer)
        self.register_buffer("gap_weight", weight.float())  # (1, D)
        self.register_buffer("mark_rows", (model.mark_layer.weight + bias).float())  # (K, D)
        self.token_layer = Affine(exact(model.token_layer))
        outs = self._context_out(model)
        blocks = (
            CmabOnDevice(model, k, outs[k], n_streams, torch.float32) for k in range(c.n_blocks)
        )
        self.blocks = cast("list[CmabOnDevice]", nn.ModuleList(blocks))
        # The norm of each latent in front of the head, folded into it.
        weight, bias = exact(model.head.linear)
        by_latent = weight.unflatten(0, (c.n_latents, -1))  # (L, D, numbers)
        bias = bias + torch.einsum("i,lio->o", model.head_norm.bias.double(), by_latent)
        by_latent = by_latent * model.head_norm.weight.double()[:, None]
        self.head_numbers, self.head = Affine((by_latent.flatten(0, 1), bias)), model.head
        self.register_buffer("sought", model.sought)

    def _add_attention(self, model: Cmhp) -> None:
        latents, rates = model.block_latents, model.rates
        self.running = DecayedAttentionOnDevice(model.context_attention, latents, rates)

    @staticmethod
    def _context_out(model: Cmhp) -> Tensor:
        """Weights of what the attention gives, (K, H * (D/H + 1), D): a head's count comes last."""
        by_head = exact(model.context_attention.out)[0].unflatten(1, (model.config.n_heads, -1))
        counts = model.count_layer.weight.double()[:, :, None]  # (K, H, 1, D)
        return torch.cat([by_head, counts], 2).flatten(1, 2)

    def initial_state(self, n_streams: int = 1) -> State:
        state = self.running.initial_state(n_streams)
        with torch.no_grad():
            return state | {name: t.contiguous() for name, t in self.predicted(state).items()}

    def predicted(self, state: State) -> Mixture:
        """The next event of streams whose running attention is known."""
        attended, hidden = self.running.attended(state), None
        for block, heads in zip(self.blocks, attended.split(self.config.n_heads, 1), strict=True):
            rows = heads.flatten(1, 2).mT  # (B, L, features)
            hidden = block(rows.reshape(-1, rows.shape[-1]), hidden)
        assert hidden is not None
        features = normalise(hidden).view(self.n_streams, -1)
        return self.head.mixture(self.head_numbers(features))

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        gap, mark, possible = self.read(x)
        came = log_density(state, gap, mark)
        gap = gap.clamp(max=LONGEST_GAP)
        attention = self._attend(state, gap, mark)
        mixture = self.predicted(state | attention)
        told = {
            "gap_quantiles": gap_quantiles(mixture, self.sought)[..., None],
            "mark_probabilities": mark_probabilities(mixture),
            "log_likelihood": came[:, None],
        }
        return {**attention, **mixture, FINITE: self.finite(possible)}, told

    def _attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        assert isinstance(self.running, DecayedAttentionOnDevice)
        return self.running.after(state, self._token(self._embedded(gap, mark)), gap)

    def _embedded(self, gap: Tensor, mark: Tensor) -> Tensor:
        log_gap = gap.clamp(min=LEAST_GAP).log()[:, None]
        return log_gap * self.gap_weight + self.mark_rows.index_select(0, mark)

    def _token(self, hidden: Tensor) -> Tensor:
        return normalise(self.token_layer(torch.relu(hidden)))

    def event_log_likelihood(self, events: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError("a device takes one event after the other")


class PublishedCmhpOnDevice(CmhpOnDevice):
    """The rewrite of one model that weighs all events alike: its sums are consolidated."""

    consolidate_every = CONSOLIDATE_EVERY
    time_weight: Tensor

    def _add_attention(self, model: Cmhp) -> None:
        self.running = RunningAttentionOnDevice(model.context_attention, model.block_latents)
        self.times = model.times
        self.register_buffer("time_weight", model.time_layer.weight.detach())

    @staticmethod
    def _context_out(model: Cmhp) -> Tensor:
        return exact(model.context_attention.out)[0]

    def initial_state(self, n_streams: int = 1) -> State:
        zero = torch.zeros(n_streams, dtype=torch.int64)
        return super().initial_state(n_streams) | {"ticks": zero}

    def _attend(self, state: State, gap: Tensor, mark: Tensor) -> State:
        ticks = self.times.after(state["ticks"], gap)
        hidden = self._embedded(gap, mark) + self.times.waves(ticks) @ self.time_weight
        return self.running.update(state, self._token(hidden)) | {"ticks": ticks}

    def consolidate(self, state: State) -> State:
        return self.running.consolidate(state)
