"""Define Perceiver IO (Jaegle et al. 2021) as a neural process: targets read encoded latents once.

K layers encode the context in latents, and one cross-attention of the targets reads them. The
setting `reads_context` chooses how often the latents read the context:

    each-block   in every layer, as the Perceiver IO that the tree cross attention paper scores
                 (Feng et al. 2024, section 2.1.1, iterative attention). It is LBANP's encoder, so
                 that all points are kept (`lbanp`), and the whole is LBANP-L.
    once         before all layers, as Jaegle et al. 2021. The queries of the only attention to the
                 context are learned constants, so that it is a running average
                 (`running_attention`): the state is constant, and an update costs the same after
                 any number of points.

The papers' code has no Perceiver IO; its layers here are those of LBANP.

The device forms are those of `lbanp` and `running_attention`: in the second, the running attention
is one block, and the layers over the latents lie between it and the query layer.

Letters of shapes: B streams, L latents, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
from edgefold.train.layers.latents import PUBLISHED_FORM, first_latents
from edgefold.train.layers.prediction_head import HeadOnDevice, PredictionHead
from edgefold.train.models.attentive.lbanp import KeptLatentsConfig, Lbanp, LbanpOnDevice
from edgefold.train.models.latents_model import LatentsModel, LatentsOnDevice
from edgefold.train.models.running_latents import RunningLatentsModel, RunningLatentsOnDevice
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.running_attention import (
    RunningAttentionOnDevice,
)

ReadsContext = Literal["each-block", "once"]


@dataclass(frozen=True, slots=True)
class PerceiverIoConfig(KeptLatentsConfig):
    """Holds the sizes and settings of a Perceiver IO.

    `n_blocks` counts the layers over the latents; `n_classes` is described at `Outputs`. With
    `reads_context` "each-block" the latents read the context in each of these layers, and the
    state holds `capacity` points; with "once" they read it before all of them, no point is kept,
    and `capacity`, `when_full` and `keep` are not used.
    """

    n_classes: int = 0
    reads_context: ReadsContext = "once"


PRESETS = {
    "small": PerceiverIoConfig(n_blocks=3, n_latents=32),
    "paper": PerceiverIoConfig(**{**PUBLISHED_FORM, "start": "ours"}, reads_context="each-block"),
}
"""Settings by name: `paper` has six layers, as the tree cross attention paper gives to every model,
and 128 latents, and reads the context in each layer: 583,874 parameters, and 375,234 where it reads
once (no count is published); `small` reads once and trains on two cores in minutes."""
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


class PerceiverIo(LatentsModel):
    """Predicts by latents that K layers encode, and one query layer; makes one of its subclasses.

    `reads_context` in the settings chooses the subclass, because the state depends on it.
    """

    name = "perceiver-io"
    presets: ClassVar[Mapping[str, Any]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED

    def __new__(cls, config: PerceiverIoConfig | None = None) -> PerceiverIo:
        """Make an instance of the subclass that the settings choose, if cls is the base class."""
        if cls is not PerceiverIo or config is None:  # copies are made without settings
            return super().__new__(cls)
        return super().__new__(
            PerceiverIoOnce if config.reads_context == "once" else PerceiverIoIterative
        )

    @property
    def n_query_layers(self) -> int:
        return 1

    def add_head(self) -> None:
        self.head = PredictionHead(self.config.width, self.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.behind_layers(cache, x))
        return prediction

    def tokens_read(self, batch: Batch) -> Tensor:
        return torch.full(batch.x_target.shape[:2], self.config.n_latents)

    @property
    def summary(self) -> str:
        c = self.config
        layers = f"{c.n_blocks} layer{'s'[: c.n_blocks > 1]}"
        return f"Perceiver IO, {layers}, {c.width} wide, {c.n_latents} latents"


class PerceiverIoIterative(PerceiverIo, Lbanp):
    """Predicts by latents that read the points in each of K blocks; the state is that of `Lbanp`.

    Its parameters are `input_latents` and `blocks`, the last of which holds the query layer.
    """

    def __init__(self, config: PerceiverIoConfig):
        super().__init__(config, config.n_classes)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return PerceiverIoIterativeOnDevice(self, n_streams)


class PerceiverIoOnce(PerceiverIo, RunningLatentsModel):
    """Predicts by latents that read the points once, K layers over latents, and one query layer."""

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
        self.add_head()

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

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return PerceiverIoOnceOnDevice(self, n_streams)


class PerceiverIoHeadOnDevice(LatentsOnDevice):
    """Predicts from what the query layer gives, on a device; a base class."""

    def add_head(self, model: LatentsModel) -> None:
        assert isinstance(model, PerceiverIo)
        self.head = HeadOnDevice(model.head)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.decoder(cache, x), x.shape[:2])
        return prediction


class PerceiverIoIterativeOnDevice(PerceiverIoHeadOnDevice, LbanpOnDevice):
    """Runs a Perceiver IO that keeps points on a device, for a fixed number of streams."""


class PerceiverIoOnceOnDevice(RunningLatentsOnDevice, PerceiverIoHeadOnDevice):
    """Runs a Perceiver IO of constant state on a device, for a fixed number of streams."""

    def __init__(self, model: PerceiverIoOnce, n_streams: int):
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

    def rows(self, x: Tensor, y: Tensor) -> Tensor:
        return super().rows(x, self.outputs.encoded(y))

    def refresh(self, state: State) -> Cache:
        attended = self.running.attended(state).flatten(1, 2).mT  # (B, L, D)
        return self.decoder.cached(0, self.layers(attended.flatten(0, 1)))
