"""Define the general model of sensor streams, as one step of fixed shapes.

    row ─> score it by the forecast made before ─> learn it ─> forecast the next slots

A row is a value, whether it was measured, the season's length and the slot's phase in it. A slot is
one place in the even sequence of times in which rows come. A missing slot is a row too: the stream
goes on by its own forecast, which nothing learns from. All that a stream keeps has a fixed size;
what it keeps of a season is data, so that one bundle serves every sensor, whatever its season, its
unit and its level.

Letters of shapes: B streams, T or N rows of a stream, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS, SensorForecast
from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, Prediction, Ring, State, StreamingModel, commit
from edgefold.train.models.sensors import limits
from edgefold.train.models.sensors.baseline import EXPERTS, Floor, Scored, part, settled
from edgefold.train.models.sensors.expert_weights import Portfolio, first_weights, following
from edgefold.train.models.sensors.experts import trends
from edgefold.train.models.sensors.features import N_FEATURES, N_LIKELY
from edgefold.train.models.sensors.further import Further, banded, usual_value
from edgefold.train.models.sensors.network import N_MOMENTS, Network, Normals, neutral
from edgefold.train.models.sensors.past_values import past_of, read_values
from edgefold.train.models.sensors.plausible_rows import plausible_rows
from edgefold.train.settings import require_sizes

HORIZONS = (1, 2, 4, 8, 16, 32, 48)
FURTHER, LIMITS = "further_", "limits_"
UNBOUNDED = f"{LIMITS}without"
"""The means and quantiles ahead as they are without limits, which a path joins."""
MEDIAN = SENSOR_LEVELS.index(0.5)
MIDDLE, MIDDLE_WEIGHTS = slice(MEDIAN - 1, MEDIAN + 2), (0.3, 0.4, 0.3)
"""Quantiles, and their weights, whose shift is taken for that of the mean: tails would make it
waver."""
DROPPED = 0.1
"""Share of streams in training whose memory is not read."""
NOISE = 0.03
LOSS_BOUNDS = (-8.0, 12.0)
N_SCALED, LEAST_STD = 256, 0.01
"""Number of tasks over which features are scaled, and the least standard deviation of a feature."""


@dataclass(frozen=True, slots=True)
class SensorsConfig:
    """Holds the sizes of the model.

    Attributes:
        longest: Longest season that is used, in slots (steps from row to row).
        values: Number of last values that are kept: two seasons and some.
        width: Width of the network.
        n_heads: Number of heads of the network's memory, for each half-life.
        n_latents: Number of latents of each head.
    """

    longest: int = 1440
    values: int = 3072
    width: int = 96
    n_heads: int = 4
    n_latents: int = 8


@dataclass(frozen=True, slots=True)
class WatchedStreams:
    """Holds B streams of T rows as the network sees them.

    Attributes:
        features: Features of each row, computed from the rows before it, (T, B, F).
        z: Normal quantile of each row's value under the density forecast for it, (T, B).
        counts: 1.0 where the network learns from z, else 0.0, (T, B).
        log_density: Log density of each value under the experts' mixture, in nats, (T, B).
    """

    features: Tensor
    z: Tensor
    counts: Tensor
    log_density: Tensor


class Sensors(StreamingModel):
    """Forecasts by a mixture of experts (simple forecasters), and a network that corrects it.

    Both densities are weighed by their past scores. Input x (B, 4): the value; 1 where it was
    measured, 0 where the slot is missing; the season's length in slots, 0 for none; the slot's
    phase in it, in slots.
    """

    name = "sensors"
    n_inputs, n_outputs = 4, 1
    presets: ClassVar = {"small": SensorsConfig()}

    def __init__(self, config: SensorsConfig | None = None):
        super().__init__()
        self.config: SensorsConfig = config or SensorsConfig()
        require_sizes(self.config)
        self.prediction = SensorForecast(SENSOR_LEVELS, HORIZONS, self.config.longest, True)
        self.floor = Floor(self.config.longest, self.config.values, HORIZONS[-1])
        self.further = Further(HORIZONS[1:])
        waiting = Ring(1, slot=f"{FURTHER}waiting_slot")
        self.rings = {**self.floor.rings, f"{FURTHER}waiting_season": waiting}
        sizes = (self.config.width, self.config.n_heads, self.config.n_latents)
        self.network = Network(N_FEATURES, *sizes)

    def plausible_inputs(self, drawn: FloatArray) -> FloatArray:
        low, high = self.input_range
        return plausible_rows((drawn - low) / (high - low), self.config.longest)

    def initial_state(self, n_streams: int = 1) -> State:
        network = self.network
        size = (n_streams, network.n_heads, network.n_latents)
        return {
            **self.floor.initial_state(n_streams),
            **{FURTHER + name: t for name, t in self.further.initial_state(n_streams).items()},
            **{LIMITS + name: t for name, t in limits.initial_limits(n_streams).items()},
            UNBOUNDED: torch.zeros(n_streams, len(HORIZONS) + 1, 1 + len(SENSOR_LEVELS)),
            "mean": torch.zeros(n_streams, 1),
            "floor_mean": torch.zeros(n_streams, 1),
            "quantiles": torch.zeros(n_streams, len(SENSOR_LEVELS)),
            "attention": torch.zeros(size),
            "memory": torch.zeros(*size, N_MOMENTS),
            "normals": neutral(n_streams).packed(),
            "portfolio": first_weights(n_streams),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Score the value of a row x (B, 4), learn it, and forecast the slots after it."""
        row = self.floor.score(state, x)
        counts, network = row.counts, self.network
        before = Portfolio.of(state["portfolio"], Normals.unpacked(state["normals"]))
        below, above = before.tails(row.below, row.above)
        gains = before.gains(row.z)
        log_density = (row.log_density + before.gain(gains)) * counts
        of_floor = [row.log_density * counts, _p_value(row.below, row.above, counts)]
        # What is kept of the row.
        written, coming = self.floor.learn(state, row)
        memory = network.fold(state["memory"], state["attention"], row.z, counts)
        weights = following(state["portfolio"], gains, counts)
        # Of the slots that follow.
        encoded, attention = network.encode(coming.features)
        normals = network.normals(encoded, network.read(attention, memory), coming.features)
        ahead = Portfolio.of(weights, normals)
        levels = x.new_tensor(SENSOR_LEVELS)
        masses = torch.cat([ahead.floor_masses(levels), levels[MIDDLE].expand(len(x), -1)], -1)
        of_masses = coming.mixture.quantiles(masses[:, None])[:, 0]
        quantiles, middle = of_masses.split([len(levels), len(MIDDLE_WEIGHTS)], -1)
        moved = (quantiles[:, MIDDLE] - middle) * x.new_tensor(MIDDLE_WEIGHTS)
        quantiles = ahead.exact(quantiles, levels, coming.likely)
        floor_mean = coming.mixture.middle()[:, 0]
        kept, usual, later_means, later = self._later(state, written, row)
        found = limits.learned(part(state, LIMITS), row.slot)
        means = torch.cat([floor_mean + moved.sum(-1, keepdim=True), later_means], 1)
        unbounded = torch.cat([means[..., None], torch.cat([quantiles[:, None], later], 1)], -1)
        means, bands = limits.within(unbounded, found["bounds"]).split([1, len(levels)], -1)
        mean, quantiles = means[:, 0], bands[:, 0]
        answer = {
            "mean": state["mean"],
            "quantiles": state["quantiles"],
            "log_density": log_density,
            "p_value": _p_value(below, above, counts),
            "floor": torch.cat([state["floor_mean"], *of_floor], -1),
            "ahead_mean": means[..., 0],
            "ahead_quantiles": bands,
            "usual": usual,
        }
        return written | {
            **{FURTHER + name: tensor for name, tensor in kept.items()},
            **{LIMITS + name: tensor for name, tensor in found.items()},
            UNBOUNDED: unbounded,
            FINITE: quantiles.sum(1) + later.sum((1, 2)) + self.floor.total(written),
            "mean": mean,
            "fill": quantiles[:, MEDIAN : MEDIAN + 1],
            "floor_mean": floor_mean,
            "quantiles": quantiles,
            "attention": attention,
            "memory": memory,
            "normals": normals.packed(),
            "portfolio": weights,
        }, answer

    def _later(
        self, state: State, written: State, row: Scored
    ) -> tuple[State, Tensor, Tensor, Tensor]:
        """Learn from a row how forecasts of it held, and forecast the slots further ahead.

        Args:
            state: Before the row.
            written: What the floor wrote after it.
            row: The row.

        Returns:
            What is kept of it, the value that seasons make usual for it (B, 1), and the means
            (B, R) and quantiles (B, R, Q) of the slots at the horizons behind the first.
        """
        own, slot, scale = part(state, FURTHER), row.slot.ahead(HORIZONS[1:]), written["scale"]
        then, past = past_of(*read_values(state["values"], slot), slot, scale)
        matured = self.further.matured(own, slot, settled(state, slot))
        learned = self.further.learned(own, matured, then, slot)
        ring, experts = state[f"{EXPERTS}season"], part(written, EXPERTS)
        _, seasonal = trends(experts, ring, past, slot, scale)
        each, weights, means, quantiles = self.further.forecast(
            learned, seasonal, past, state["values"], slot, scale
        )
        kept = learned | self.further.kept(own, each, weights, quantiles, slot)
        return kept, usual_value(state["values"], slot), means, banded(quantiles, learned["factor"])

    @torch.no_grad()
    def watched(self, rows: Tensor) -> WatchedStreams:
        """Return what the network sees of B streams of rows (T, B, 4), forecast one slot ahead.

        The columns of rows are those of the input x.
        """
        floor = Floor(self.config.longest, self.config.values)
        state = floor.initial_state(rows.shape[1])
        features = torch.zeros(rows.shape[1], N_FEATURES)
        rows_seen = []
        for x in rows:
            row = floor.score(state, x)
            rows_seen.append((features, row.z[:, 0], row.counts[:, 0], row.log_density[:, 0]))
            written, coming = floor.learn(state, row)
            features = coming.features
            written["fill"] = coming.mixture.first().middle()[:, 0]
            state = commit(floor.rings, state, written, in_place=True)
        return WatchedStreams(*(torch.stack(part) for part in zip(*rows_seen, strict=True)))

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return minus the mean gain over the experts' density, in nats, of rows in their order.

        In the batch `x_context` (B, N, F) are features and `y_context` (B, N, 1) z, as `watched`
        returns them; `mask` (B, N) is True where the network learns from z.
        """
        features, z = batch.x_context.transpose(0, 1), batch.y_context[..., 0].T
        counts = torch.ones_like(z) if batch.mask is None else batch.mask.T.float()
        keep = (torch.rand(z.shape[1], 1, generator=generator) > DROPPED).to(z.device)
        noise = torch.randn(features.shape, generator=generator).to(z.device)
        noise[..., -N_LIKELY:] = 0.0  # at which normals stand
        features = features + NOISE * noise * self.network.feature_std
        normals = self.network.follow(features, z, counts, keep.float())
        loss = -normals.gain(z[..., None])[..., 0].clamp(-LOSS_BOUNDS[1], -LOSS_BOUNDS[0])
        return (loss * counts).sum() / counts.sum().clamp(min=1.0)

    def prepare(self, draw: Callable[[int], Batch], generator: torch.Generator) -> None:
        """Set the mean and deviation that scale the features, from a batch of tasks by `draw`."""
        features = draw(N_SCALED).x_context.flatten(0, 1)
        self.network.feature_mean.copy_(features.mean(0))
        self.network.feature_std.copy_(features.std(0) + LEAST_STD)


def _p_value(below: Tensor, above: Tensor, counts: Tensor) -> Tensor:
    """Return twice the smaller of the masses below and above a value; 1 where `counts` is 0."""
    return torch.where(counts > 0, 2 * torch.minimum(below, above), 1.0)
