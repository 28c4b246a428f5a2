"""Query layers of models with latents, and prediction heads, as devices run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction
from edgefold.train.layers.attention import Attention, FeedForward, LayerNorm, Linear
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
)
from edgefold.train.layers.embeddings import Embedding
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.layers.prediction_head import Outputs, PredictionHead


class DecoderOnDevice(nn.Module):
    """Query layers, each of which attends to keys and values of its own in the cache.

    The cache holds `keys_k` (B, H, D/H, L) and `values_k` (B, H, L, D/H) of each layer k.
    """

    def __init__(
        self, embedding: Embedding, layers: Sequence[tuple[Attention, FeedForward]], n_streams: int
    ):
        super().__init__()
        self.embedding = embedding_on_device(embedding)
        single = torch.float32
        attention = (AttentionOnDevice(layer, n_streams, single) for layer, _ in layers)
        self.attention = cast("list[AttentionOnDevice]", nn.ModuleList(attention))
        self.ff = nn.ModuleList(FeedForwardOnDevice(layer, single) for _, layer in layers)

    def cached(self, k: int, hidden: Tensor) -> Cache:
        """Return what layer k reads of the latents (B*L, D)."""
        keys, values = self.attention[k].keys_values(normalise(hidden))
        return {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}

    def forward(self, cache: Cache, x: Tensor) -> Tensor:
        """Return the rows (B*M, D) of targets x (B, M, X) behind the layers."""
        hidden: Tensor = self.embedding(x.flatten(0, 1))
        for k, (attention, ff) in enumerate(zip(self.attention, self.ff, strict=True)):
            queries = attention.queries(normalise(hidden))
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            hidden = ff(attention.attend(hidden, queries, keys, values))
        return hidden


class GaussianOutput(nn.Module):
    """The last layer of a predictor, as two: one for the means, one for the deviations."""

    def __init__(self, down: Linear, outputs: Outputs):
        super().__init__()
        self.outputs = outputs
        weight, bias = exact(down)
        half = weight.shape[-1] // 2
        self.mean = Affine((weight[:, :half], bias[:half]))
        self.spread = Affine((weight[:, half:], bias[half:]))

    def forward(self, hidden: Tensor, shape: Sequence[int]) -> Prediction:
        """Return the prediction from (B*M, 2D), its tensors in the shape (B, M, Y)."""
        mean, std = self.mean(hidden), self.outputs.std(self.spread(hidden))
        return {"mean": mean.view(shape), "std": std.view(shape)}


class GaussianHead(nn.Module):
    """The predictor of mean and standard deviation, with the norm before it."""

    def __init__(self, norm: LayerNorm, up: Linear, down: Linear, outputs: Outputs):
        super().__init__()
        self.up = Affine(fold(norm, up))
        self.output = GaussianOutput(down, outputs)

    def forward(self, hidden: Tensor, shape: Sequence[int]) -> Prediction:
        """Return the prediction from (B*M, D), its tensors in the shape (B, M, Y)."""
        prediction: Prediction = self.output(torch.relu(self.up(normalise(hidden))), shape)
        return prediction


class HeadOnDevice(nn.Module):
    """A prediction head whose last layer stays one product, for classes too."""

    def __init__(self, head: PredictionHead):
        super().__init__()
        self.outputs = head.outputs
        self.up, self.down = Affine(fold(head.norm, head.up)), Affine(exact(head.down))

    def forward(self, rows: Tensor, shape: Sequence[int]) -> Prediction:
        """Return the prediction from rows (B*M, D), its tensors in the shape (B, M, ...)."""
        numbers = self.down(torch.relu(self.up(normalise(rows))))
        return self.outputs.prediction_of(numbers.view(*shape, -1))
