"""CNP: the conditional neural process (Garnelo et al. 2018a), as the later papers compare it.

Two encoders of width 128 side by side, as in the published comparison code: 215,682 parameters at
the size of the 1-D task. The state is the sum of the points' features and their number.

The form for a device does as little as possible:

    update, condition   points -> features of both encoders, added to the recent sums
    consolidate         recent -> base (see `running_sums`)
    refresh             means -> the decoder's first layer, without the target's part
    query               that layer -> prediction

The first layers of both encoders are one matrix. The others stay two matrices: one matrix with
zeros beside both has twice the weights. The number of points is one more sum, of ones. Linear
layers that follow each other are one matrix.

An update reports squares of the point as `finite`: a ReLU hides NaN on some backends, and a square
overflows long before a layer does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, Cache, Prediction, State, StreamingModel
from edgefold.train.layers.device_layers import Affine, Weights, linear_layers, side_by_side
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.neural_processes.np_layers import (
    Decoder,
    FeaturesOnDevice,
    MeansOnDevice,
    PoolingDecoderOnDevice,
    PoolingEncoder,
    masked,
    means_of,
    of_encoded,
    plain_loss,
    squares,
)
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.published import Published, as_published
from edgefold.train.settings import require_sizes
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    total_of,
)


@dataclass(frozen=True, slots=True)
class CnpConfig:
    """The shape of a CNP: X, Y and D."""

    n_inputs: int = 1
    n_outputs: int = 1
    width: int = 128

    def __post_init__(self) -> None:
        require_sizes(self)


class Cnp(StreamingModel):
    """Two encoders, whose features are summed over the points, and a decoder.

    State: `sums` (B, 2, D), of each encoder's features; `count` (B,), of points. Cache: `hidden`
    (B, D), the encoding in the decoder's first layer.
    """

    name = "cnp"
    presets: ClassVar[Mapping[str, Any]] = {
        "small": CnpConfig(width=64),
        "paper": CnpConfig(),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "small": {"learning_rate": 1e-3},
        **PAPER_TRAINING,
    }
    published: ClassVar[Published] = as_published(
        {"CNP": (0.26, 0.04)}, {"CNP": (2.15, 2.43, 2.55, 0.73, 0.49)}
    )
    """Log-likelihood under RBF and Matern 5/2, table 4 of Feng et al. 2024."""
    ordered = False
    encoded_widths: ClassVar[tuple[int, int]] = (1, 1)
    """What each encoder gives out, in multiples of D."""

    def __init__(self, config: CnpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        n_in, width = config.n_inputs + config.n_outputs, config.width
        self.encoders = nn.ModuleList(
            PoolingEncoder(n_in, width, times * width) for times in self.encoded_widths
        )
        self.decoder = Decoder(
            config.n_inputs, config.n_outputs, width, 2 * width, self._n_bootstrapped()
        )
        first = self.decoder.first
        with torch.no_grad():
            # The bends of the decoder's first layer begin between -2 and 2, where scaled inputs
            # lie: a CNP then learns sooner than from the published start.
            first.weight[self.decoder.n_encoded :].uniform_(-1, 1)
            first.bias.uniform_(-2, 2)  # type: ignore[union-attr]

    def _n_bootstrapped(self) -> int:
        """Width of a second encoding that the decoder takes."""
        return 0

    def features(self, x: Tensor, y: Tensor) -> Tensor:
        """Points (..., X) and (..., Y) -> the two encoders' features (..., 2, D)."""
        points = torch.cat([x, y], -1)
        return torch.stack([encoder.features(points) for encoder in self.encoders], -2)  # type: ignore[operator]

    def initial_state(self, n_streams: int = 1) -> State:
        return {
            "sums": torch.zeros(n_streams, 2, self.config.width),
            "count": torch.zeros(n_streams, dtype=torch.int64),
        }

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        mask = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        features = self.features(masked(x, mask), masked(y, mask))  # (B, U, 2, D)
        return {
            "sums": state["sums"] + torch.einsum("bu,bukd->bkd", mask.to(features), features),
            "count": state["count"] + mask.sum(1),
        }

    def refresh(self, state: State) -> Cache:
        means = state["sums"] / state["count"].clamp(min=1)[:, None, None]
        return {"hidden": self.decoder.part(self.encoded(means))}

    def encoded(self, means: Tensor) -> Tensor:
        """Means of features (..., 2, D) -> encodings side by side (..., 2D)."""
        pairs = zip(self.encoders, means.unbind(-2), strict=True)
        return torch.cat([encoder(mean) for encoder, mean in pairs], -1)

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.decoder.answer(self.decoder.inputs(x) + cache["hidden"][:, None])

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        return plain_loss(self, batch)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return CnpOnDevice(self)

    @property
    def summary(self) -> str:
        return f"{type(self).__name__.upper()}, {self.config.width} wide"


class CnpOnDevice(DeviceForm):
    """A CNP for a device. State: the sums of `running_sums`, (B, 2D + 1)."""

    consolidate_every = CONSOLIDATE_EVERY

    @torch.no_grad()
    def __init__(self, model: Cnp):
        super().__init__(model)
        encoders: list[PoolingEncoder] = list(model.encoders)  # type: ignore[arg-type]
        self.features, self.means = FeaturesOnDevice(encoders), MeansOnDevice(encoders)
        self.decoder = PoolingDecoderOnDevice(model.decoder, model.n_outputs)
        self.fold_encodings(model, [linear_layers(encoder.of_mean)[2] for encoder in encoders])

    def fold_encodings(self, model: Cnp, last: list[Weights]) -> None:
        """Make what leads from the hidden layer behind the means to the decoder's first layer.

        Args:
            model: The trained form.
            last: The last layer of each encoder.
        """
        self.of_encoded = Affine(side_by_side(last, of_encoded(model.decoder)))

    def initial_state(self, n_streams: int = 1) -> State:
        return empty_sums(n_streams, 2 * self.config.width + 1)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        added = self.features(x, y)
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum(1)}

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        x, y = masked(x, mask), masked(y, mask)
        features = self.chunk_features(x, y)
        seen = torch.ones_like(x[..., 0]) if mask is None else mask.to(features)
        added = (seen[:, None] @ features)[:, 0]
        return {RECENT: state[RECENT] + added, FINITE: squares(x, y).sum((1, 2))}

    def chunk_features(self, x: Tensor, y: Tensor) -> Tensor:
        """Chunks (B, U, X) and (B, U, Y) -> features and the number 1, (B, U, 2D + 1)."""
        rows = self.features(x.flatten(0, 1), y.flatten(0, 1))
        return rows.unflatten(0, x.shape[:2])

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def refresh(self, state: State) -> Cache:
        return {"hidden": self.of_encoded(self.means(means_of(total_of(state))))[:, None]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder(x, cache["hidden"])
        return {"mean": mean[:, :, 0], "std": std[:, :, 0]}
