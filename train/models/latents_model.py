"""Define the base of models with a bottleneck of latents, which are learned rows.

K blocks encode latents. In query layer k the targets attend to the latents that block k has
computed, and a head predicts each target separately, or all targets of a query jointly
(`joint_head`).

The head of a model of separate predictions consists of `head_norm`, `head_up` and `head_down`, that
of a joint one of `head_norm` and `head`: the weights of checkpoints have these names.

Letters of shapes: B streams, M targets, X inputs, K blocks, L latents, H heads, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward, LayerNorm, Linear
from edgefold.train.layers.embeddings import embedding_of, embedding_on_device
from edgefold.train.layers.joint_head import JointHead, joint_kind, trained_block
from edgefold.train.layers.latents import DecoderOnDevice, LatentsConfig
from edgefold.train.layers.prediction_head import GaussianHead, Outputs
from edgefold.train.models.device_form import DeviceForm


class LatentsModel(StreamingModel):
    """Predicts targets from latents that encode the context; a base class.

    Cache: `keys` and `values` of the latents, (B, K, H, L, D/H), for K query layers, by which the
    targets read them.
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
        """Return the number of query layers, K."""
        n_blocks: int = self.config.n_blocks
        return n_blocks

    def add_head(self) -> None:
        """Add the head that predicts each target separately, after all other layers."""
        width = self.config.width
        self.head_norm = LayerNorm(width)
        self.head_up = Linear(width, 2 * width)
        self.head_down = Linear(2 * width, self.outputs.n_numbers)

    def query_layer(self, k: int) -> tuple[Attention, FeedForward]:
        """Return the layers by which targets attend to the latents that block k has computed."""
        raise NotImplementedError

    def context_cache(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Cache:
        """Return the cache of a context of N points x (B, N, X), y (B, N, Y), for training.

        The mask (B, N) is True for real points.
        """
        raise NotImplementedError

    def cache_of(self, latents: Iterable[Tensor]) -> Cache:
        """Return the cache, made of the latents (B, L, D) that each block has computed."""
        pairs = [self.query_layer(k)[0].keys_values(rows) for k, rows in enumerate(latents)]
        keys, values = (torch.stack(side, 1) for side in zip(*pairs, strict=True))
        return {"keys": keys, "values": values}

    def behind_layers(self, cache: Cache, x: Tensor) -> Tensor:
        """Embed targets x (B, M, X), pass them through the query layers; return rows (B, M, D)."""
        hidden = self.embedding.queries(x)
        for k in range(self.n_query_layers):
            attention, feedforward = self.query_layer(k)
            keys, values = cache["keys"][:, k], cache["values"][:, k]
            attended = attention.attend(attention.queries(hidden), keys, values)
            hidden = feedforward.added(attention.kept(hidden) + attended)
        return hidden

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """Return the rows of `behind_layers` for targets x (B, M, X), normalised: (B, M, D)."""
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
    """Predicts all targets of a query jointly, from latents; a base class."""

    def join_targets(self, attention: nn.Module, block: int = 0) -> None:
        """Replace the layers that predict each target separately by a joint head.

        Args:
            attention: Layers by which the targets of a query exchange information.
            block: Number of targets that a query predicts jointly; 0 for any number.
        """
        del self.head_up, self.head_down
        c = self.config
        self.head = JointHead(attention, c.width, joint_kind(c, block), c.n_outputs)
        self.prediction = self.head.kind

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        prediction: Prediction = self.head(self.decoded(cache, x), mask)
        return prediction

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the negative joint log-likelihood of blocks, given only the context, per target.

        The setting `trained_blocks` chooses the size of the blocks.
        """
        cache = self.context_cache(batch.x_context, batch.y_context, batch.mask)
        block = trained_block(self.config, batch.x_target.shape[1], generator)
        return self.head.loss(self.decoded(cache, batch.x_target), batch.y_target, block)


class LatentsOnDevice(DeviceForm):
    """Runs a model with latents on a device, for a fixed number of streams.

    Cache: `keys_k` (B, H, D/H, L) and `values_k` (B, H, L, D/H) of each query layer k.
    """

    def __init__(self, model: LatentsModel, n_streams: int):
        super().__init__(model, n_streams)
        self.embedding = embedding_on_device(model.embedding)

    def add_decoder(self, model: LatentsModel) -> None:
        """Add query layers and head in their device form, after all other layers."""
        layers = [model.query_layer(k) for k in range(model.n_query_layers)]
        self.decoder = DecoderOnDevice(model.embedding, layers, self.n_streams)
        self.add_head(model)

    def add_head(self, model: LatentsModel) -> None:
        """Add the head in the form that devices run."""
        layers = model.head_norm, model.head_up, model.head_down
        self.head: nn.Module = GaussianHead(*layers, model.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        shape = (*x.shape[:2], self.n_outputs)
        prediction: Prediction = self.head(self.decoder(cache, x), shape)
        return prediction
