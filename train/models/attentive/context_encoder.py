"""Define models that encode the context by self-attention; targets attend to the encodings.

The context is the points learned so far. E encoder layers give E + 1 encodings, with the embedded
points as the first, and targets read the last Q of them (`layer_walk`). EQTNP and Transformer +
Cross Attention differ only in E and Q. A new point changes every other one from the first encoder
layer on:

    update    embeds one point and keeps the row                              O(1)
    refresh   encodes the context, and gives the query layers' keys and values    O(N^2)
    query     takes M targets through the query layers                        O(M N)

N is the capacity. Layers are pre-norm (`layers`).

The device's form does as little as possible (`prenorm_layers`), and its state is the same.

Letters of shapes: N points, M targets, E encoder layers, Q query layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, cast

from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.attention import Reads, Residual
from edgefold.train.layers.device_layers import normalise
from edgefold.train.layers.embeddings import embedding_of, embedding_on_device
from edgefold.train.layers.prediction_head import HeadOnDevice, Outputs, PredictionHead
from edgefold.train.layers.prenorm_layers import AttentionLayer, on_device
from edgefold.train.layers.starts import start_alike
from edgefold.train.models.attentive.layer_walk import (
    PointsEncoder,
    PointsEncoderOnDevice,
    TransformerConfig,
)
from edgefold.train.published import Published, as_published
from edgefold.train.settings import Start


@dataclass(frozen=True, slots=True)
class ContextEncoderConfig(TransformerConfig):
    """Holds the sizes and settings of the model.

    `n_classes` is described at `Outputs`, `residual` and `reads` at `attention.Residual` and
    `attention.Reads`, `head_norm` at `PredictionHead`. With the `start` "published" all encoder
    layers start from the same numbers, and so do all query layers, as the copies of one layer do.
    """

    n_classes: int = 0
    residual: Residual = "input"
    reads: Reads = "normalised"
    head_norm: bool = True
    start: Start = "ours"


PRESETS = {
    "small": ContextEncoderConfig(n_layers=3, embedding="fourier"),
    "paper": ContextEncoderConfig(residual="normalised", start="published"),
}
"""Settings by name: `paper` is the published size; `small` has half its layers and trains on two
cores in minutes."""


class ContextEncoder(PointsEncoder):
    """Encodes a context by E encoder layers and predicts by Q query layers; a base class.

    Subclasses choose E (`n_encoders`) and Q (`n_queries`).
    """

    presets: ClassVar[Mapping[str, ContextEncoderConfig]] = PRESETS

    def __init__(
        self, config: ContextEncoderConfig, n_encoders: int, n_queries: int, own_context_norm: bool
    ):
        super().__init__(config)
        outputs = Outputs(config.n_outputs, config.n_classes, config.bounded)
        self.prediction = outputs.prediction
        self.embedding = embedding_of(
            config.embedding, config.n_inputs, outputs.n_encoded, config.width, config.fourier_std
        )
        layer = partial(
            AttentionLayer,
            *(config.width, config.n_heads, config.feedforward),
            residual=config.residual,
            reads=config.reads,
        )
        self.reads = config.reads
        encoders = (layer() for _ in range(n_encoders))
        queries = (layer(own_context_norm=own_context_norm) for _ in range(n_queries))
        self.encoders = cast("list[AttentionLayer]", nn.ModuleList(encoders))
        self.queries = cast("list[AttentionLayer]", nn.ModuleList(queries))
        self.head = PredictionHead(config.width, outputs, config.head_norm)
        if config.start == "published":
            start_alike(self.encoders)
            start_alike(self.queries)

    def encoded_y(self, y: Tensor) -> Tensor:
        return self.head.outputs.encoded(y)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.targets(cache, x))
        return prediction

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return ContextEncoderOnDevice(self, n_streams)


class ContextEncoderOnDevice(PointsEncoderOnDevice):
    """Runs a context encoder on a device, for a fixed number of streams."""

    def __init__(self, model: ContextEncoder, n_streams: int):
        super().__init__(model, n_streams)
        self.reads = model.reads
        self.embedding = embedding_on_device(model.embedding)
        self.encoders = on_device(model.encoders, n_streams)
        self.queries = on_device(model.queries, n_streams)
        self.head = HeadOnDevice(model.head)

    def normal(self, rows: Tensor) -> Tensor:
        return normalise(rows)

    def encoded_y(self, y: Tensor) -> Tensor:
        return self.head.outputs.encoded(y)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        prediction: Prediction = self.head(self.targets(cache, x), x.shape[:2])
        return prediction


class Eqtnp(ContextEncoder):
    """Predicts as EQTNP, the transformer neural process with efficient queries.

    Feng et al. 2023 (LBANP), section 3.1 and appendix A.1: query layer k attends to the k-th
    encoding of the context, the first of which is the embedded points. So `n_layers` = 6 query
    layers go with 5 encoder layers, as in the authors' code; the paper's size has 492,354
    parameters for one input and output.
    """

    name = "eqtnp"
    published: ClassVar[Published] = as_published(
        {"EQTNP": (1.32, 0.92)}, {"EQTNP": (3.91, 5.29, None, 1.44, 1.27)}
    )

    def __init__(self, config: ContextEncoderConfig):
        super().__init__(config, config.n_layers - 1, config.n_layers, own_context_norm=True)


class TransformerCa(ContextEncoder):
    """Predicts as Transformer + Cross Attention: `n_layers` encoder layers and one query layer.

    Feng et al. 2024 (Tree Cross Attention) compare ReTreever with this model. Its cross attention
    normalises targets and context by one layer norm, as ReTreever's does. The paper's size has
    325,186 parameters for one input and output.
    """

    name = "transformer-ca"
    presets: ClassVar[Mapping[str, ContextEncoderConfig]] = PRESETS | {
        "paper": ContextEncoderConfig(
            embedding="elu",
            residual="normalised",
            reads="raw",
            head_norm=False,
            start="published",
        )
    }
    published: ClassVar[Published] = as_published(
        {"Transformer + CA": (1.35, 0.91)}, {"Transformer + CA": (3.88, None, None, 1.41)}
    )

    def __init__(self, config: ContextEncoderConfig):
        super().__init__(config, config.n_layers, 1, own_context_norm=False)
