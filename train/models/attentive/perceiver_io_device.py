"""Perceiver IO rewritten so that a device does as little as possible.

Its running attention is the one block of `running_attention`, its query layer the one of
`decoder_device`; between them lie the layers over the latents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.decoder_device import DecoderOnDevice
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
)
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.states.running_attention import RunningAttentionOnDevice
from edgefold.train.states.running_sums import CONSOLIDATE_EVERY

if TYPE_CHECKING:
    from edgefold.train.models.attentive.perceiver_io import PerceiverIo


class PerceiverIoOnDevice(StreamingModel):
    """The rewrite of one model for a fixed number of streams."""

    ordered = False
    consolidate_every = CONSOLIDATE_EVERY

    def __init__(self, model: PerceiverIo, n_streams: int):
        super().__init__()
        c = self.config = model.config
        self.n_inputs, self.n_outputs, self.input_range = c.n_inputs, c.n_outputs, model.input_range
        self.prediction, self.outputs = model.prediction, model.outputs
        self.embedding = embedding_on_device(model.embedding)
        self.running = RunningAttentionOnDevice(model.context_attention, model.input_latents)
        weight, bias = exact(model.context_attention.out)
        start = (model.input_latents[0].double() + bias[0]).repeat(n_streams, 1)
        single = torch.float32
        layers: list[nn.Module] = [
            Affine((weight[0], start)),
            FeedForwardOnDevice(model.context_ff, single),
        ]
        for attention, ff in zip(model.latent_attention, model.latent_ff, strict=True):
            assert isinstance(attention, type(model.context_attention))
            assert isinstance(ff, type(model.context_ff))
            layers += [
                AttentionOnDevice(attention, n_streams, single),
                FeedForwardOnDevice(ff, single),
            ]
        self.layers = nn.Sequential(*layers)
        self.decoder = DecoderOnDevice(
            model.embedding, [(model.query_attention, model.query_ff)], n_streams
        )
        self.head_up = Affine(fold(model.head.norm, model.head.up))
        self.head_down = Affine(exact(model.head.down))

    def initial_state(self, n_streams: int = 1) -> State:
        return self.running.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        point = self.embedding(x, self.outputs.encoded(y))
        return self.running.update(state, normalise(point))

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        n_points = x.shape[1]
        x, y = x.flatten(0, 1), y.flatten(0, 1)
        if mask is not None:
            real = mask.reshape(-1, 1)
            x, y = torch.where(real, x, 0.0), torch.where(real, y, 0.0)
        normal = normalise(self.embedding(x, self.outputs.encoded(y)))
        return self.running.condition(state, normal, n_points, mask)

    def consolidate(self, state: State) -> State:
        return self.running.consolidate(state)

    def refresh(self, state: State) -> Cache:
        attended = self.running.attended(state).flatten(1, 2).mT  # (B, L, D)
        return self.decoder.cached(0, self.layers(attended.flatten(0, 1)))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.head_up(normalise(self.decoder(cache, x))))
        return self.outputs.prediction_of(self.head_down(hidden).view(*x.shape[:2], -1))
