"""Define the base of models whose latents read the points by a running attention.

Latents are learned rows. Their queries never change, so that a point is learned in constant time
and memory (`running_attention`); all that lies behind that attention is computed in `refresh`.

Letters of shapes: B streams, U points, X inputs, Y outputs, K sets of latents, L latents of a set,
H heads, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgefold.train.contract import Cache, State, initial_state_for
from edgefold.train.layers.device_layers import normalise
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.latents_model import LatentsModel
from edgefold.train.states.running_attention import (
    RunningAttentionOnDevice,
    attend_at_once,
    attend_further,
    empty_attention,
    merged,
    scores_values,
)
from edgefold.train.states.running_sums import CONSOLIDATE_EVERY


class RunningLatentsModel(LatentsModel):
    """Learns points by the running attention of K sets of latents; a base class.

    State, per stream: `attended` (B, K, H, L, D/H), the running attention; `log_count` (B, K, H, L,
    1), the logarithm of its normaliser.

    Attributes:
        context_attention: Attention of the latents to the points: K layers on a leading axis.
    """

    context_attention: Any
    ordered = False

    @property
    def reading_latents(self) -> Tensor:
        """Return the latents that read the points, (K, L, D)."""
        raise NotImplementedError

    def initial_state(self, n_streams: int = 1) -> State:
        c, latents = self.config, self.reading_latents
        shape = (n_streams, len(latents), c.n_heads, c.n_latents, c.width // c.n_heads)
        return empty_attention(latents, *shape)

    def scores_values(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return scores and values of U points, which the latents read.

        Args:
            x: Inputs of the points, (B, U, X).
            y: Outputs of the points, (B, U, Y).
            mask: True for real points, (B, U); None if all are.

        Returns:
            Scores (B, K, H, L, U), -inf where masked, and values (B, K, H, U, D/H).
        """
        if mask is not None:
            x, y = (torch.where(mask[..., None], points, 0.0) for points in (x, y))
        points = self.embedding.points(x, self.outputs.encoded(y))
        return scores_values(self.context_attention, self.reading_latents, points, mask)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return attend_further(state, *self.scores_values(x, y, mask)) if x.shape[1] else state

    def merge(self, state: State, other: State) -> State:
        """Return the state that knows the points of both; ValueError where latents forget."""
        if self.no_merge:
            raise ValueError(self.no_merge)
        return merged(state, other)

    def scores_at_once(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return scores and values of a whole context; arguments as in `scores_values`."""
        return self.scores_values(x, y, mask)

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        """Compute the cache by one softmax over a whole context, for training.

        This is section 3.1 of Feng et al. 2024; the arguments are as in `scores_values`.
        """
        state = initial_state_for(self, x)
        if x.shape[1]:
            state = {"attended": attend_at_once(*self.scores_at_once(x, y, mask))}
        return self.refresh(state)


class RunningLatentsOnDevice(DeviceForm):
    """Runs a model's attention to the points on a device, for a fixed number of streams."""

    running: RunningAttentionOnDevice
    embedding: Any
    consolidate_every = CONSOLIDATE_EVERY

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        """Embed points x (rows, X) and y (rows, Y), and return them normalised, (rows, D)."""
        return normalise(self.embedding(x, y))

    def initial_state(self, n_streams: int = 1) -> State:
        return self.running.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.running.update(state, self.rows(x, y))

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        n_points = x.shape[1]
        x, y = x.reshape(-1, self.n_inputs), y.reshape(-1, self.n_outputs)  # (B*U, ...)
        if mask is not None:
            real = mask.reshape(-1, 1)
            x, y = torch.where(real, x, 0.0), torch.where(real, y, 0.0)
        return self.running.condition(state, self.rows(x, y), n_points, mask)

    def consolidate(self, state: State) -> State:
        return self.running.consolidate(state)

    def merge(self, state: State, other: State) -> State:
        return self.running.merge(state, other)
