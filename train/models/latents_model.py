"""The part that models with a bottleneck of latents have in common.

K blocks encode latents; query layer k of the targets attends to those that block k gave out, and a
head predicts each target on its own, or all targets of a query jointly (`joint_head`).

The head of a model of single predictions consists of `head_norm`, `head_up` and `head_down`, that
of a joint one of `head_norm` and `head`: so the weights of checkpoints are named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward, LayerNorm, Linear
from edgefold.train.layers.embeddings import embedding_of, embedding_on_device
from edgefold.train.layers.joint_head import BottleneckAttention, JointHead, TargetAttention
from edgefold.train.layers.latents import DecoderOnDevice, LatentsConfig
from edgefold.train.layers.prediction_head import GaussianHead, Outputs
from edgefold.train.models.device_form import DeviceForm


class LatentsModel(StreamingModel):
    """A model whose targets read latents.

    Cache: `keys` and `values` (B, K, H, L, D/H), those of the query layers.
    """

    config: Any

    def __init__(self, config: LatentsConfig, n_classes: int = 0):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.input_range = (config.input_low, config.input_high)
        self.outputs = Outputs(config.n_outputs, n_classes, config.bounded)
        self.prediction = self.outputs.prediction
        n_encoded = self.outputs.n_encoded
        self.embedding = embedding_of(
            config.embedding, config.n_inputs, n_encoded, config.width, config.fourier_std
        )

    @property
    def n_query_layers(self) -> int:
        """Return K, the number of query layers."""
        n_blocks: int = self.config.n_blocks
        return n_blocks

    def add_head(self) -> None:
        """Add the layers of single predictions, behind all others."""
        width = self.config.width
        self.head_norm = LayerNorm(width)
        self.head_up = Linear(width, 2 * width)
        self.head_down = Linear(2 * width, self.outputs.n_numbers)

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        """Return the layers by which targets attend to what block k gave out."""
        raise NotImplementedError

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        """Return the cache of a whole context at once, of any number of points, for training."""
        raise NotImplementedError

    def cache_of(self, latents: Iterable[Tensor]) -> Cache:
        """Return the query layers' keys and values of what each block gave out, (B, L, D)."""
        pairs = [self.query_layer(k)[0].keys_values(rows) for k, rows in enumerate(latents)]
        keys, values = (torch.stack(side, 1) for side in zip(*pairs, strict=True))
        return {"keys": keys, "values": values}

    def behind_layers(self, cache: Cache, x: Tensor) -> Tensor:
        """Return targets x (B, M, X) behind the query layers, (B, M, D)."""
        hidden = self.embedding.queries(x)
        for k in range(self.n_query_layers):
            attention, feedforward = self.query_layer(k)
            keys, values = cache["keys"][:, k], cache["values"][:, k]
            hidden = hidden + attention.attend(attention.queries(hidden), keys, values)
            hidden = hidden + feedforward(hidden)
        return hidden

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """Return targets x (B, M, X) behind the query layers, normalised: (B, M, D)."""
        normal: Tensor = self.head_norm(self.behind_layers(cache, x))
        return normal

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.head_up(self.decoded(cache, x)))
        return self.outputs.prediction_of(self.head_down(hidden))

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        return self.query(self.context_cache(x_context, y_context, mask), x_target)

    @property
    def summary(self) -> str:
        c = self.config
        blocks = f"{c.n_blocks} block{'s'[: c.n_blocks > 1]}"
        return f"{self.name.upper()}, {blocks}, {c.width} wide, {c.n_latents} latents"


class JointLatentsModel(LatentsModel):
    """A model that predicts all targets of a query jointly."""

    def join_targets(
        self, attention: TargetAttention | BottleneckAttention, block: int = 0
    ) -> None:
        """Replace the layers of single predictions by a joint head."""
        del self.head_up, self.head_down
        c = self.config
        self.head = JointHead(attention, c.width, c.n_outputs, c.bounded, block)
        self.prediction = self.head.kind

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        prediction: Prediction = self.head(self.decoded(cache, x), mask)
        return prediction


class LatentsOnDevice(DeviceForm):
    """The rewrite of a model for a fixed number of streams.

    Cache: `keys_k` and `values_k` of each query layer, in the shapes of `DecoderOnDevice`.
    """

    def __init__(self, model: LatentsModel, n_streams: int):
        super().__init__(model, n_streams)
        self.embedding = embedding_on_device(model.embedding)

    def add_decoder(self, model: LatentsModel) -> None:
        """Add query layers and head, behind all other layers."""
        layers = [model.query_layer(k) for k in range(model.n_query_layers)]
        self.decoder = DecoderOnDevice(model.embedding, layers, self.n_streams)
        self.add_head(model)

    def add_head(self, model: LatentsModel) -> None:
        """Add the head in its device form."""
        layers = model.head_norm, model.head_up, model.head_down
        self.head: nn.Module = GaussianHead(*layers, model.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        shape = (*x.shape[:2], self.n_outputs)
        prediction: Prediction = self.head(self.decoder(cache, x), shape)
        return prediction
