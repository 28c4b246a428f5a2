"""Define transformer neural processes: they encode a context, and targets read the encoding.

Nguyen & Grover 2022, "Transformer Neural Processes". Tokens are (x, y) of a context point and (x,
0) of a target. In every layer of the encoder all tokens attend to the context, and to nothing else.
So the context's encoding does not depend on targets. It is computed once, and a target reads its
keys and values:

    update    embeds one point and keeps the row                       O(1)
    refresh   encodes the context: keys and values of every layer      O(N^2), N = capacity
    query     takes M targets through the layers                       O(M N)

The published code encodes context and targets again at each query. A new point changes the encoding
of all others from the second layer on, so `refresh` cannot be incremental. Of the first layer,
queries, keys and values could be kept; that would save products of O(N), where others cost O(N^2),
and make the state four times as large. The last layer is computed for targets only.

The device's form keeps the rows x' of `postnorm_layers` as points: no addition is left that a
product could do, and attention needs no masks (`buffer_attention`).

Letters of shapes: B streams, N points, M targets, X inputs, Y outputs, D width.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions.joint import Covariance
from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, StreamingModel
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import Affine, exact
from edgefold.train.layers.embeddings import FourierEmbedding, FourierOnDevice
from edgefold.train.layers.joint_head import (
    PUBLISHED_HEAD,
    JointHead,
    TargetAttention,
    TrainedBlocks,
    joint_kind,
    require_joint_settings,
    trained_block,
)
from edgefold.train.layers.postnorm_layers import PostNormLayer, PostNormOnDevice
from edgefold.train.layers.prediction_head import GaussianOutput, Outputs
from edgefold.train.layers.starts import start_as_transformer
from edgefold.train.models.attentive.layer_walk import (
    LayerWalk,
    PointsEncoder,
    PointsEncoderOnDevice,
    TransformerConfig,
)
from edgefold.train.published import Published, as_published
from edgefold.train.settings import Start


@dataclass(frozen=True, slots=True)
class TnpConfig(TransformerConfig):
    """Holds the sizes and settings of a TNP.

    `start` is how the layers of attention start: "published" as those of torch's
    `TransformerEncoder`, or "ours" as every linear layer does.
    """

    start: Start = "ours"


PRESETS = {
    "small": TnpConfig(n_layers=3, embedding="fourier"),
    "paper": TnpConfig(start="published"),
}
"""Settings by name: `paper` is the published size; `small` has half its layers and trains on two
cores in minutes."""


class TokenEmbedding(nn.Module):
    """Embeds points (x, y) by 4 linear layers with ReLU; a target is a point whose y is 0."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int):
        super().__init__()
        self.n_outputs = n_outputs
        self.layers = mlp(n_inputs + n_outputs, width, width, 4)

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        embedded: Tensor = self.layers(torch.cat([x, y], -1))
        return embedded

    def queries(self, x: Tensor) -> Tensor:
        return self.points(x, x.new_zeros(*x.shape[:-1], self.n_outputs))


class SharedLayers(LayerWalk):
    """Passes rows through layers that serve both as encoder and as query layers."""

    layers: Sequence[Any]

    @property
    def encoders(self) -> Sequence[Any]:  # type: ignore[override]
        """Return the encoder layers: all but the last layer, which is computed for targets only."""
        return list(self.layers)[:-1]

    @property
    def queries(self) -> Sequence[Any]:  # type: ignore[override]
        """Return the query layers, which are all layers."""
        return self.layers


class Tnp(SharedLayers, PointsEncoder):
    """Encodes the context; subclasses add a head that makes predictions of encoded targets."""

    presets: ClassVar[Mapping[str, TnpConfig]] = PRESETS

    def __init__(self, config: TnpConfig):
        super().__init__(config)
        shape = (config.n_inputs, config.n_outputs, config.width)
        self.embedding: TokenEmbedding | FourierEmbedding = (
            TokenEmbedding(*shape)
            if config.embedding == "mlp"
            else FourierEmbedding(*shape, config.fourier_std)
        )
        layers = (
            PostNormLayer(config.width, config.n_heads, config.feedforward)
            for _ in range(config.n_layers)
        )
        self.layers = cast("list[PostNormLayer]", nn.ModuleList(layers))
        if config.start == "published":
            start_as_transformer(self.layers)

    def mask_of(self, visible: Tensor) -> Tensor:
        return visible[:, None, None]


class TokensOnDevice(nn.Module):
    """Computes the published embedding of points x (rows, X), y (rows, Y), or of targets x."""

    def __init__(self, layer: TokenEmbedding, n_inputs: int):
        super().__init__()
        first, *rest = (exact(part) for part in layer.layers if isinstance(part, Linear))
        self.first = Affine(first)
        self.first_query = Affine((first[0][:n_inputs], first[1]))
        self.rest = nn.ModuleList(map(Affine, rest))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        rows = self.first_query(x) if y is None else self.first(torch.cat([x, y], -1))
        for layer in self.rest:
            rows = layer(torch.relu(rows))
        return rows


@torch.no_grad()
def _embedding(model: Tnp, shift: Tensor) -> FourierOnDevice | TokensOnDevice:
    """Return the device form of the model's embedding, with `shift` (D,) added to its output."""
    embedding = copy.deepcopy(model.embedding)
    last = embedding.down if isinstance(embedding, FourierEmbedding) else embedding.layers[-1]
    assert isinstance(last, Linear) and last.bias is not None
    last.bias.copy_(last.bias.double() + shift)
    if isinstance(embedding, FourierEmbedding):
        return FourierOnDevice(embedding)
    return TokensOnDevice(embedding, model.n_inputs)


class TnpOnDevice(SharedLayers, PointsEncoderOnDevice):
    """Runs a TNP on a device, for a fixed number of streams.

    The points in its state are embeddings plus the bias of the first layer's `out`, which the layer
    would else have to add (`postnorm_layers`).
    """

    def __init__(self, model: Tnp, n_streams: int):
        super().__init__(model, n_streams)
        biases = [exact(layer.out)[1] for layer in model.layers]
        following = [*biases[1:], torch.zeros_like(biases[0])]
        layers = map(PostNormOnDevice, model.layers, following, repeat(n_streams))
        self.layers = cast("list[PostNormOnDevice]", nn.ModuleList(layers))
        self.embedding = _embedding(model, biases[0])


class TnpD(Tnp):
    """Predicts each target separately, as TNP-D.

    Its head is an MLP D -> 2D -> 2Y for the mean and the logarithm of the standard deviation. The
    paper's size has 222,082 parameters for one input and output.
    """

    name = "tnp-d"
    published: ClassVar[Published] = as_published(
        {"TNP-D": (1.39, 0.95)}, {"TNP-D": (3.89, 5.41, None, 1.46, 1.31)}
    )

    def __init__(self, config: TnpConfig):
        super().__init__(config)
        self.head_up = Linear(config.width, config.feedforward)
        self.outputs = Outputs(config.n_outputs, bounded=config.bounded)
        self.head_down = Linear(config.feedforward, self.outputs.n_numbers)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.predicted(self.targets(cache, x))

    def predicted(self, targets: Tensor) -> Prediction:
        """Return the predictions of encoded targets (B, M, D)."""
        hidden = torch.relu(self.head_up(targets))
        return self.outputs.prediction_of(self.head_down(hidden))

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return TnpDOnDevice(self, n_streams)


class TnpDOnDevice(TnpOnDevice):
    """Runs a TNP-D on a device, for a fixed number of streams."""

    def __init__(self, model: TnpD, n_streams: int):
        super().__init__(model, n_streams)
        self.up = Affine(exact(model.head_up))
        self.output = GaussianOutput(model.head_down, model.outputs)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.up(self.targets(cache, x)))
        prediction: Prediction = self.output(hidden, (*x.shape[:2], self.n_outputs))
        return prediction


@dataclass(frozen=True, slots=True)
class TnpNdConfig(TnpConfig):
    """Holds the settings of a TNP-ND: those of a TNP, and those of its joint head.

    `least` and `covariance` are described at `JointGaussian`, `trained_blocks` at `TrainedBlocks`.
    """

    least: float = 1e-4
    covariance: Covariance = "cholesky"
    trained_blocks: TrainedBlocks = "drawn"

    def __post_init__(self) -> None:
        TnpConfig.__post_init__(self)  # super() does not know a class with slots
        require_joint_settings(self)


class TnpNd(Tnp):
    """Predicts all targets of a query jointly, as TNP-ND.

    Its head lets encoded targets attend to each other and gives a mean and a covariance
    (`joint_head`). The paper's size has 332,821 parameters for one input and output, and 374,294
    with a low-rank covariance. A query costs O(M N + M^2).
    """

    name = "tnp-nd"
    presets: ClassVar[Mapping[str, TnpConfig]] = {
        "small": TnpNdConfig(n_layers=3, embedding="fourier"),
        "paper": TnpNdConfig(**PUBLISHED_HEAD, start="published"),
    }
    published: ClassVar[Published] = as_published(
        {"TNP-ND": (1.46, 1.02)}, {"TNP-ND": (5.48, None, None, 1.50, 1.31)}
    )

    def __init__(self, config: TnpNdConfig):
        super().__init__(config)
        c = config
        attention = TargetAttention(c.width, c.n_heads, c.feedforward, c.start)
        self.head = JointHead(attention, c.width, joint_kind(c), c.n_outputs, c.feedforward)
        self.prediction = self.head.kind

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        return self.head(self.targets(cache, x), mask)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the negative joint log-likelihood of blocks of targets, per target: ().

        The setting `trained_blocks` chooses the size of the blocks.
        """
        points, visible = self.embedded(batch.x_context, batch.y_context, batch.mask)
        targets = self.targets(self.encode(points, visible), batch.x_target)
        block = trained_block(self.config, batch.x_target.shape[1], generator)
        return self.head.loss(targets, batch.y_target, block)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return TnpNdOnDevice(self, n_streams)


class TnpNdOnDevice(TnpOnDevice):
    """Runs a TNP-ND on a device; its head is small and stays as it is."""

    def __init__(self, model: TnpNd, n_streams: int):
        super().__init__(model, n_streams)
        self.head = model.head

    def query(self, cache: Cache, x: Tensor, mask: Tensor | None = None) -> Prediction:
        targets = self.targets(cache, x).view(*x.shape[:2], -1)
        return self.head(targets, mask)
