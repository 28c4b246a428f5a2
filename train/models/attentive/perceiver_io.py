"""Define Perceiver IO (Jaegle et al. 2021) as a neural process: latents read the context once.

It has one cross-attention of learned latents to the context, a transformer of K layers over the
latents, and one cross-attention of the targets to them. The queries of the only attention to the
context are learned constants, so that it is a running average (`running_attention`): the state is
constant, and an update costs the same after any number of points. The tree cross attention paper
lists its Perceiver IO as not constant in memory: there every layer reads the context again (section
2.1.1, iterative attention), which is `lbanp` but for its decoder.

In the device's form the running attention is the one block of `running_attention`, and the query
layer is that of `DecoderOnDevice`; the layers over the latents lie between them.

Letters of shapes: B streams, L latents, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward, join_heads
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    constant_rows,
    exact,
)
from edgefold.train.layers.latents import LatentsConfig, first_latents
from edgefold.train.layers.prediction_head import HeadOnDevice, PredictionHead
from edgefold.train.models.latents_model import LatentsModel, LatentsOnDevice
from edgefold.train.models.running_latents import RunningLatentsModel, RunningLatentsOnDevice
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.running_attention import (
    RunningAttentionOnDevice,
)


@dataclass(frozen=True, slots=True)
class PerceiverIoConfig(LatentsConfig):
    """Holds the sizes and settings of a Perceiver IO.

    `n_blocks` counts the layers over the latents; `n_classes` is described at `Outputs`.
    """

    n_classes: int = 0


PRESETS = {
    "small": PerceiverIoConfig(n_blocks=3, n_latents=32),
    "paper": PerceiverIoConfig(embedding="mlp", latents="normal", query_gain=1.0),
}
"""Settings by name: `paper` has six layers, as the tree cross attention paper gives to every model,
and 128 latents, but reads the context once: 375,234 parameters (no count is published); `small`
trains on two cores in minutes."""
PUBLISHED = as_published(
    {
        "Perceiver IO (128)": (1.29, 0.84),
        "Perceiver IO (32)": (1.25, 0.78),
        "Perceiver IO (8)": (1.13, 0.65),
    },
    {
        "Perceiver IO (4.6 % of the tokens)": (3.20, None, None, 1.25),
        "Perceiver IO (128)": (3.74,),
        "Perceiver IO (32)": (3.50,),
        "Perceiver IO (8)": (3.18,),
    },
)
"""Published log-likelihoods in nats, of a model that reads the context in every layer: for GP tasks
(RBF and Matern 5/2) table 13 of Feng et al. 2024 (tree cross attention), for images tables 14, of
CelebA, and 3, with as many latents as ReTreever reads nodes, which stands first."""


class PerceiverIo(RunningLatentsModel):
    """Predicts by latents that read the points once, K layers over latents, and one query layer."""

    name = "perceiver-io"
    presets: ClassVar[Mapping[str, PerceiverIoConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __init__(self, config: PerceiverIoConfig):
        super().__init__(config, config.n_classes)

        self.input_latents = nn.Parameter(first_latents(config, self.embedding, 1))  # (1, L, D)
        self.context_attention = config.attention(
            True, (1,)
        )  # a stack of one, as a device wants it
        self.context_ff = config.feed_forward()
        layers = range(config.n_blocks)
        self.latent_attention = nn.ModuleList(config.attention(False) for _ in layers)
        self.latent_ff = nn.ModuleList(config.feed_forward() for _ in layers)
        self.query_attention = config.attention(True)
        self.query_ff = config.feed_forward()
        self.head = PredictionHead(config.width, self.outputs)

    @property
    def n_query_layers(self) -> int:
        return 1

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        return self.query_attention, self.query_ff

    @property
    def reading_latents(self) -> Tensor:
        return self.input_latents

    def refresh(self, state: State) -> Cache:
        attended = join_heads(state["attended"].transpose(0, 1))  # (1, B, L, D)
        kept = self.context_attention.kept(self.input_latents[:, None])
        hidden = self.context_ff.added((kept + self.context_attention.out(attended))[0])
        for attention, ff in zip(self.latent_attention, self.latent_ff, strict=True):
            assert isinstance(attention, Attention) and isinstance(ff, FeedForward)
            hidden = ff.added(attention.added(hidden))
        return self.cache_of([hidden])

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.behind_layers(cache, x))
        return prediction

    def tokens_read(self, batch: Batch) -> Tensor:
        return torch.full(batch.x_target.shape[:2], self.config.n_latents)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return PerceiverIoOnDevice(self, n_streams)

    @property
    def summary(self) -> str:
        c = self.config
        layers = f"{c.n_blocks} layer{'s'[: c.n_blocks > 1]}"
        return f"Perceiver IO, {layers}, {c.width} wide, {c.n_latents} latents"


class PerceiverIoOnDevice(RunningLatentsOnDevice, LatentsOnDevice):
    """Runs a Perceiver IO on a device, for a fixed number of streams."""

    def __init__(self, model: PerceiverIo, n_streams: int):
        super().__init__(model, n_streams)
        self.outputs = model.outputs
        self.running = RunningAttentionOnDevice(model.context_attention, model.input_latents)
        weight, bias = exact(model.context_attention.out)
        kept, _ = constant_rows(model.context_attention, model.input_latents[0])
        start = (kept + bias[0]).repeat(n_streams, 1)
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
        self.add_decoder(model)

    def add_head(self, model: LatentsModel) -> None:
        assert isinstance(model, PerceiverIo)
        self.head = HeadOnDevice(model.head)

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        return super().rows(x, self.outputs.encoded(y))

    def refresh(self, state: State) -> Cache:
        attended = self.running.attended(state).flatten(1, 2).mT  # (B, L, D)
        return self.decoder.cached(0, self.layers(attended.flatten(0, 1)))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.decoder(cache, x), x.shape[:2])
        return prediction
