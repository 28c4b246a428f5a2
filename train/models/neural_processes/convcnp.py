"""Define ConvCNP, the convolutional conditional neural process (Gordon et al. 2020).

    update    SetConv: each point adds a Gaussian bump to a fixed grid, once for the density and
              once for each output's signal; the state is the sum
    refresh   a UNet over the grid
    query     SetConv back: bumps around the targets weigh the UNet's outputs

The grid is 1-D or 2-D. The published code lays a new grid over each task's points and targets. Here
it is fixed and spans the model's input range with a margin; beyond it a prediction tends to a
constant. For points and targets within -2 and 2, where the paper's tasks lie, the grid of the
preset `paper` is the published one. An update writes the whole grid. An axis of a 2-D grid has
weights of its own, whose outer product is a bump.

Where ours differs from the published code, a setting of `ConvCnpConfig` names both. With one length
scale for all channels the last linear layer comes before the last SetConv, which is the same
function and leaves 2Y channels to weigh instead of 2C; with length scales of the channels it comes
after it, as published.

Letters of shapes: B streams, U points, M targets, X inputs, Y outputs, C channels of the UNet's
input, G nodes of an axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.prediction_head import std_of
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.settings import Start, require_share, require_sizes
from edgefold.train.states.running_sums import (
    CONSOLIDATE_EVERY,
    RECENT,
    consolidated,
    empty_sums,
    merged_sums,
    total_of,
)

LEAST_EXPONENT = -80.0
"""Least exponent of a bump: smaller powers of e are close to the least normal float32, which many
cores compute slowly. In float64 there is no such limit."""
FIRST_BIAS = 1e-3
"""Published start of the biases of the UNet."""


@dataclass(frozen=True, slots=True)
class ConvCnpConfig:
    """Holds the sizes of the grid and the UNet of a ConvCNP, and its form.

    The grid has at least `points_per_unit` nodes a unit of scaled x, from `input_low` - `margin` to
    `input_high` + `margin`, along each of the 1 or 2 inputs. Each of `n_halvings` layers halves the
    grid; `channels` is the number of channels of the first layer.

    Attributes:
        nodes: Where the nodes lie, whose number is a multiple of 2^n_halvings: "spaced" at the
            distance 1 / `points_per_unit`, so that they reach beyond the margin; or "fitted"
            between the margins, and closer, as published.
        density: What the UNet reads of the density: "log", the logarithm of 1 + density, because a
            density grows with every point of an endless stream; or "plain", the density itself, as
            published.
        length_scales: Length scales of a SetConv: "one" for all channels, or one for each of its
            "channels" as published. The published last SetConv has 2 x 2C of them, for mean and
            deviation, and a query then weighs with as many bumps as that.
        unit_bumps: Whether the bumps of a query are divided by sqrt(2 pi) of their length, so that
            their sum along an axis is 1. The published ones are not.
        least_std: Least standard deviation of a prediction, 0 as published.
        start: Initial weights: "ours", torch's default; "published", normal numbers (Glorot and
            Bengio 2010).
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
    nodes: Literal["spaced", "fitted"] = "spaced"
    density: Literal["log", "plain"] = "log"
    length_scales: Literal["one", "channels"] = "one"
    unit_bumps: bool = True
    least_std: float = 0.01
    start: Start = "ours"

    def __post_init__(self) -> None:
        require_sizes(self)
        require_share("least_std", self.least_std)
        if self.n_inputs not in (1, 2):
            raise ValueError(f"n_inputs is {self.n_inputs}, must be 1 or 2: a grid has these axes")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}, must be odd")
        if self.points_per_unit <= 0 or self.input_low >= self.input_high:
            raise ValueError("points_per_unit must be positive, and input_low below input_high")

    @property
    def n_nodes(self) -> int:
        """Return G, the nodes along an axis: the least fitting multiple of 2^n_halvings."""
        multiple: int = 2**self.n_halvings
        return math.ceil(self.span * self.points_per_unit / multiple) * multiple

    @property
    def span(self) -> float:
        """Return the length of the input range with both margins, in units of scaled x."""
        return self.input_high - self.input_low + 2 * self.margin

    @property
    def nodes_per_unit(self) -> float:
        """Return the number of nodes in a unit of scaled x."""
        return self.points_per_unit if self.nodes == "spaced" else (self.n_nodes - 1) / self.span


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
    the number for the mean, then that for the deviation, of each output. With length scales of the
    channels it is (B, 2C, *grid), before the last linear layer.
    """

    nodes: Tensor

    name = "convcnp"
    presets: ClassVar[Mapping[str, Any]] = {
        "small": ConvCnpConfig(points_per_unit=16, channels=16, n_halvings=4),
        "paper": ConvCnpConfig(
            margin=0.1,
            nodes="fitted",
            density="plain",
            length_scales="channels",
            unit_bumps=False,
            least_std=0.0,
            start="published",
        ),
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
    """Settings by name: `paper` is ConvCNPXL, 50,612 parameters for one input and output. `image`
    has a node for each pixel of 32 x 32 between -1 and 1."""
    training_defaults: ClassVar[Mapping[str, Any]] = {
        "paper": {"steps": 100_000, "learning_rate": 1e-3}
    }
    ordered = False

    def __init__(self, config: ConvCnpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.input_range = (config.input_low, config.input_high)
        self.register_buffer("nodes", self._nodes_of(config), persistent=False)
        length = math.log(2 / config.points_per_unit)
        self.by_channel = config.length_scales == "channels"
        n_in, n_out = ((1 + config.n_outputs,), (2, 2 * config.channels))
        self.log_length_in = nn.Parameter(torch.full(n_in if self.by_channel else (), length))
        self.log_length_out = nn.Parameter(torch.full(n_out if self.by_channel else (), length))
        convolution = nn.Conv1d if config.n_inputs == 1 else nn.Conv2d
        self.first = convolution(1 + config.n_outputs, config.channels, 1)
        self.unet = UNet(config.n_inputs, config.channels, config.n_halvings, config.kernel)
        self.last = convolution(2 * config.channels, 2 * config.n_outputs, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * config.n_outputs))
        if config.start == "published":
            self._start_as_published()

    @staticmethod
    def _nodes_of(config: ConvCnpConfig) -> Tensor:
        n_nodes = config.n_nodes
        if config.nodes == "fitted":
            low, high = config.input_low - config.margin, config.input_high + config.margin
            return torch.linspace(low, high, n_nodes, dtype=torch.float64).float()
        centre = (config.input_low + config.input_high) / 2
        return centre + (torch.arange(n_nodes) - (n_nodes - 1) / 2) / config.points_per_unit

    def _start_as_published(self) -> None:
        for layer in (*self.unet.down, *self.unet.up):
            nn.init.xavier_normal_(layer.weight)
            nn.init.constant_(layer.bias, FIRST_BIAS)
        # Mean and deviation have a last layer each.
        for weight in (self.first.weight, *self.last.weight.chunk(2)):
            nn.init.xavier_normal_(weight)
        assert self.first.bias is not None
        nn.init.zeros_(self.first.bias)

    def initial_state(self, n_streams: int = 1) -> State:
        return {"sums": torch.zeros(n_streams, *self.grid_shape)}

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Return the shape of one stream's grid, (1 + Y, *grid)."""
        return (1 + self.n_outputs, *(self.config.n_nodes,) * self.n_inputs)

    def bumps(self, x: Tensor, log_length: Tensor) -> list[Tensor]:
        """Return the Gaussian weights of the nodes around inputs x (B, U, X).

        There is one tensor (B, ..., U, G) for each axis, with G nodes. `log_length` (...) is the
        logarithm of the Gaussians' standard deviations, in units of x.
        """
        factor = -0.5 * torch.exp(-2 * log_length)
        least = LEAST_EXPONENT / self.n_inputs
        apart = (column - self.nodes for column in x.split(1, -1))
        squares = (d * d for d in apart)
        if factor.ndim:
            factor = factor[..., None, None]
            squares = (s.view(len(x), *(1,) * (factor.ndim - 2), *s.shape[1:]) for s in squares)
        exponents = (factor * square for square in squares)
        if x.dtype != torch.float64:
            exponents = (exponent.clamp(min=least) for exponent in exponents)
        return [torch.exp(exponent) for exponent in exponents]

    def bumps_of(self, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what points x (B, U, X), y (B, U, Y) add to the state, (B, 1 + Y, *grid).

        The mask (B, U) is True for real points.
        """
        values = F.pad(y, (1, 0), value=1.0)  # (B, U, 1 + Y)
        if mask is not None:
            x, values = (torch.where(mask[..., None], rows, 0.0) for rows in (x, values))
        weights = self.bumps(x, self.log_length_in)
        values = values.mT  # (B, 1 + Y, U)
        if self.by_channel:
            rows = values[:, :, None]  # (B, 1 + Y, 1, U), times weights (B, 1 + Y, U, G)
            if len(weights) == 2:
                rows = rows * weights[0].mT
            return (rows @ weights[-1]).view(-1, *self.grid_shape)
        if len(weights) == 2:
            values = (values[:, :, None] * weights[0].mT[:, None]).flatten(1, 2)
        return (values @ weights[-1]).view(-1, *self.grid_shape)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.condition(state, x[:, None], y[:, None])

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        return {"sums": state["sums"] + self.bumps_of(x, y, mask)}

    def merge(self, state: State, other: State) -> State:
        return {"sums": state["sums"] + other["sums"]}

    def refresh(self, state: State) -> Cache:
        return {"told": self.told(state["sums"])}

    def told(self, sums: Tensor) -> Tensor:
        """Compute the cache `told` from the sums of points (B, 1 + Y, *grid)."""
        density, signals = sums[:, :1], sums[:, 1:]
        read = torch.log1p(density) if self.config.density == "log" else density
        known = torch.cat([read, signals / (density + 1e-8)], 1)
        hidden: Tensor = self.unet(torch.sigmoid(self.first(known)))
        if self.by_channel:
            return hidden
        numbers: Tensor = self.last(hidden)
        return numbers / self.bump_sums() if self.config.unit_bumps else numbers

    def bump_sums(self) -> Tensor:
        """Return the sums of a query's bumps over all nodes, in the shape of `log_length_out`."""
        length = torch.exp(self.log_length_out) * self.config.nodes_per_unit  # in nodes
        sums: Tensor = (math.sqrt(2 * math.pi) * length) ** self.n_inputs
        return sums

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        weights, nodes = self.bumps(x, self.log_length_out), cache["told"]
        if self.by_channel:
            numbers = self._after_channels(weights, nodes)
        else:
            numbers = weights[0] @ nodes.transpose(1, 2).flatten(2)  # (B, M, 2Y) or (B, M, 2Y*G)
            if len(weights) == 2:
                numbers = numbers.unflatten(-1, (2 * self.n_outputs, -1))
                numbers = (numbers @ weights[1][..., None])[..., 0]
        mean, spread = (numbers + self.bias).chunk(2, -1)
        return {"mean": mean, "std": std_of(spread, self.config.least_std)}

    def _after_channels(self, weights: list[Tensor], nodes: Tensor) -> Tensor:
        """Weigh each channel of the nodes by bumps of its own, and apply the last linear layer.

        Args:
            weights: Weights of each axis, for mean and deviation, (B, 2, 2C, M, G).
            nodes: Result of the UNet, (B, 2C, *grid).

        Returns:
            The numbers of mean and deviation of each output without their bias, (B, M, 2Y).
        """
        if len(weights) == 2:
            near = ((weights[0] @ nodes[:, None]) * weights[1]).sum(-1)  # (B, 2, 2C, M)
        else:
            near = (weights[0] @ nodes[:, None, ..., None])[..., 0]
        if self.config.unit_bumps:
            near = near / self.bump_sums()[..., None]
        last = self.last.weight.reshape(2, self.n_outputs, -1)
        return (last @ near).flatten(1, 2).mT

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

    def merge(self, state: State, other: State) -> State:
        return merged_sums(state, other)

    def refresh(self, state: State) -> Cache:
        return {"told": self.model.told(total_of(state))}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.model.query(cache, x)
