"""Define ConvCNP, the convolutional conditional neural process (Gordon et al. 2020).

    update    SetConv: each point adds a Gaussian bump to a fixed grid, once for the density and
              once for each output's signal; the state is the sum
    refresh   a UNet over the grid
    query     SetConv back: bumps around the targets weigh the UNet's outputs

The grid is 1-D or 2-D. The published code lays a new grid over each task's points. Here it is fixed
and spans the model's input range with a margin; beyond it a prediction tends to a constant. An
update writes the whole grid. An axis of a 2-D grid has weights of its own, whose outer product is a
bump.

What else differs from the published code: the UNet reads log(1 + density), because a density grows
with every point of an endless stream; one length scale for all channels of a SetConv; the last
linear layer comes before the last SetConv, which is the same and leaves less to weigh; the bumps of
a query are divided by sqrt(2 pi) of their length; and a standard deviation is at least 0.01.

Letters of shapes: B streams, U points, M targets, X inputs, Y outputs, C channels, G nodes of an
axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.prediction_head import std_of
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.settings import require_sizes
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    total_of,
)

LEAST_STD = 0.01
"""Least standard deviation of a prediction."""
LEAST_EXPONENT = -80.0
"""Least exponent of a bump: smaller powers of e are close to the least normal float32, which many
cores compute slowly."""


@dataclass(frozen=True, slots=True)
class ConvCnpConfig:
    """Holds the sizes of the grid and the UNet of a ConvCNP.

    The grid has `points_per_unit` nodes a unit of scaled x, from `input_low` - `margin` to
    `input_high` + `margin` at least, along each of the 1 or 2 inputs. Each of `n_halvings` layers
    halves the grid; `channels` is the number of channels of the first layer.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    points_per_unit: float = 64
    margin: float = 0.5
    channels: int = 8
    n_halvings: int = 6
    kernel: int = 5
    input_low: float = -2.0
    input_high: float = 2.0

    def __post_init__(self) -> None:
        require_sizes(self)
        if self.n_inputs not in (1, 2):
            raise ValueError(f"n_inputs is {self.n_inputs}, must be 1 or 2: a grid has these axes")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}, must be odd")
        if self.points_per_unit <= 0 or self.input_low >= self.input_high:
            raise ValueError("points_per_unit must be positive, and input_low below input_high")

    @property
    def n_nodes(self) -> int:
        """Return G, the nodes along an axis: the least fitting multiple of 2^n_halvings."""
        span = self.input_high - self.input_low + 2 * self.margin
        multiple: int = 2**self.n_halvings
        return math.ceil(span * self.points_per_unit / multiple) * multiple


class UNet(nn.Module):
    """Maps (B, C, *grid) to (B, 2C, *grid) by the UNet of Gordon et al. (2020, appendix).

    Convolutions of stride 2 lead down, transposed ones up. On the way up each level's result is
    joined with the channels that the same level had on the way down. The channels double at every
    second level.
    """

    def __init__(self, n_axes: int, channels: int, n_halvings: int, kernel: int):
        super().__init__()
        down, up = (
            (nn.Conv1d, nn.ConvTranspose1d) if n_axes == 1 else (nn.Conv2d, nn.ConvTranspose2d)
        )
        widths = [channels, *(channels * 2 ** ((level + 1) // 2) for level in range(n_halvings))]
        half = kernel // 2
        self.down = nn.ModuleList(
            down(before, after, kernel, stride=2, padding=half)
            for before, after in pairwise(widths)
        )
        self.up = nn.ModuleList(
            up(
                widths[level + 1] * (1 if level == n_halvings - 1 else 2),
                widths[level],
                kernel,
                stride=2,
                padding=half,
                output_padding=1,
            )
            for level in reversed(range(n_halvings))
        )

    def forward(self, hidden: Tensor) -> Tensor:
        levels = [hidden]
        for layer in self.down:
            levels.append(torch.relu(layer(levels[-1])))
        hidden = levels.pop()
        for layer in self.up:
            hidden = torch.cat([torch.relu(layer(hidden)), levels.pop()], 1)
        return hidden


class ConvCnp(StreamingModel):
    """Predicts from a grid on which points add up: SetConv, UNet, SetConv.

    State: `sums` (B, 1 + Y, *grid), at each node the sum of the points' Gaussian weights, then
    their sums times each output. Cache: `told` (B, 2Y, *grid), the output of the UNet: at each node
    the number for the mean, then that for the deviation, of each output.
    """

    nodes: Tensor

    name = "convcnp"
    presets: ClassVar[Mapping[str, Any]] = {
        "small": ConvCnpConfig(points_per_unit=16, channels=16, n_halvings=4),
        "paper": ConvCnpConfig(),
        "image": ConvCnpConfig(
            2,
            points_per_unit=15.5,
            margin=0.25,
            channels=16,
            n_halvings=3,
            input_low=-1,
            input_high=1,
        ),
    }
    """Settings by name: `paper` is ConvCNPXL. `image` has a node for each pixel of 32 x 32 between
    -1 and 1."""
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "paper": {"steps": 100_000, "learning_rate": 1e-3}
    }
    ordered = False

    def __init__(self, config: ConvCnpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.input_range = (config.input_low, config.input_high)
        n_nodes = config.n_nodes
        centre = (config.input_low + config.input_high) / 2
        nodes = centre + (torch.arange(n_nodes) - (n_nodes - 1) / 2) / config.points_per_unit
        self.register_buffer("nodes", nodes, persistent=False)
        length = math.log(2 / config.points_per_unit)
        self.log_length_in = nn.Parameter(torch.tensor(length))
        self.log_length_out = nn.Parameter(torch.tensor(length))
        convolution = nn.Conv1d if config.n_inputs == 1 else nn.Conv2d
        self.first = convolution(1 + config.n_outputs, config.channels, 1)
        self.unet = UNet(config.n_inputs, config.channels, config.n_halvings, config.kernel)
        self.last = convolution(2 * config.channels, 2 * config.n_outputs, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * config.n_outputs))

    def initial_state(self, n_streams: int = 1) -> State:
        return {"sums": torch.zeros(n_streams, *self.grid_shape)}

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Return the shape of one stream's grid, (1 + Y, *grid)."""
        return (1 + self.n_outputs, *(self.config.n_nodes,) * self.n_inputs)

    def bumps(self, x: Tensor, log_length: Tensor) -> list[Tensor]:
        """Return the Gaussian weights of the nodes around inputs x (B, U, X).

        There is one tensor (B, U, G) for each axis, with G nodes. `log_length` is the logarithm of
        the Gaussians' standard deviation, in units of x.
        """
        factor = -0.5 * torch.exp(-2 * log_length)
        least = LEAST_EXPONENT / self.n_inputs
        apart = (column - self.nodes for column in x.split(1, -1))
        return [torch.exp((factor * (d * d)).clamp(min=least)) for d in apart]

    def bumps_of(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what points x (B, U, X), y (B, U, Y) add to the state, (B, 1 + Y, *grid).

        The mask (B, U) is True for real points.
        """
        values = F.pad(y, (1, 0), value=1.0)  # (B, U, 1 + Y)
        if mask is not None:
            x, values = (torch.where(mask[..., None], rows, 0.0) for rows in (x, values))
        weights = self.bumps(x, self.log_length_in)
        values = values.mT  # (B, 1 + Y, U)
        if len(weights) == 2:
            values = (values[:, :, None] * weights[0].mT[:, None]).flatten(1, 2)
        return (values @ weights[-1]).view(-1, *self.grid_shape)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return {"sums": state["sums"] + self.bumps_of(x, y, mask)}

    def refresh(self, state: State) -> Cache:
        return {"told": self.told(state["sums"])}

    def told(self, sums: Tensor) -> Tensor:
        """Compute the UNet's outputs (B, 2Y, *grid) from the sums of points (B, 1 + Y, *grid)."""
        density, signals = sums[:, :1], sums[:, 1:]
        known = torch.cat([torch.log1p(density), signals / (density + 1e-8)], 1)
        hidden = self.unet(torch.sigmoid(self.first(known)))
        # The bumps of a query have this sum along an axis.
        length = torch.exp(self.log_length_out) * self.config.points_per_unit  # in nodes
        shares: Tensor = self.last(hidden) / (math.sqrt(2 * math.pi) * length) ** self.n_inputs
        return shares

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        weights, nodes = self.bumps(x, self.log_length_out), cache["told"]
        numbers = weights[0] @ nodes.transpose(1, 2).flatten(2)  # (B, M, 2Y) or (B, M, 2Y*G)
        if len(weights) == 2:
            numbers = numbers.unflatten(-1, (2 * self.n_outputs, -1))
            numbers = (numbers @ weights[1][..., None])[..., 0]
        mean, spread = (numbers + self.bias).chunk(2, -1)
        return {"mean": mean, "std": std_of(spread, LEAST_STD)}

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return ConvCnpOnDevice(self)

    @property
    def summary(self) -> str:
        c = self.config
        return f"ConvCNP, {' x '.join([str(c.n_nodes)] * c.n_inputs)} nodes, {c.channels} channels"


class ConvCnpOnDevice(DeviceForm):
    """Runs a ConvCNP on a device.

    State: `recent_sums`, `base_sums` and `rest_sums`, each (B, 1 + Y, *grid): the sums of the last
    points, those of older points, and what float32 rounds off. They add up to the model's `sums`.
    """

    consolidate_every = CONSOLIDATE_EVERY

    def __init__(self, model: ConvCnp):
        super().__init__(model)
        self.model = model

    def initial_state(self, n_streams: int = 1) -> State:
        return empty_sums(n_streams, *self.model.grid_shape)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return {RECENT: state[RECENT] + self.model.bumps_of(x, y, mask)}

    def consolidate(self, state: State) -> State:
        return consolidated(state)

    def refresh(self, state: State) -> Cache:
        return {"told": self.model.told(total_of(state))}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.model.query(cache, x)
