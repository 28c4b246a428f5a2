"""The general model of sensor streams, as one step of fixed shapes.

    row ─> score it by the forecast made before ─> learn it ─> forecast the next slots

A row is a value, whether it was measured, the season's length and the slot's phase in it. A missing
slot is a row too: the stream goes on by its own forecast, which nothing learns from. All that a
stream keeps has a fixed size; what it keeps of a season is data, so that one bundle serves every
sensor, whatever its season, its unit and its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS, SensorForecast
from edgefold.train.models.contract import Prediction, Ring, State, StreamingModel
from edgefold.train.models.sensors import experts as bank
from edgefold.train.models.sensors import features as sight
from edgefold.train.models.sensors import mixture as density
from edgefold.train.models.sensors.past import N_RECENT, read_past
from edgefold.train.models.sensors.slot import Season, Slot

LEVELS = SENSOR_LEVELS
HORIZONS = (1, 4, 16)
N_HORIZONS = len(HORIZONS) + 1
NO_SEASON = 64
"""The longest horizon, in slots, of a stream without a season."""
FIRST = 10
"""Slots that a forecast must have seen for anything to be learned from it."""
SCALE_MEMORY = 0.998
SETTLED, JUMP = 20, 20.0
"""After so many changes, one of them counts as at most so many of the usual ones."""
LEAST_SCALE, RELATIVE_SCALE = 1e-12, 1e-6
EXPERTS, DENSITY, SIGHT = "experts_", "mixture_", "features_"
AHEAD = {f"ahead_{h}": (h, at) for at, h in enumerate(HORIZONS) if h > 1}
"""Rings of forecasts that wait for their slot: its length, and the index of the horizon."""


@dataclass(frozen=True)
class SensorsConfig:
    """Sizes.

    Attributes:
        longest: Of seasons, in slots; a longer one is not used.
        values: Last values that are kept: two seasons and some.
    """

    longest: int = 1440
    values: int = 3072


class Sensors(StreamingModel):
    """Experts and their calibrated mixture.

    x (B, 4): the value; 1 where it was measured, 0 where the slot is missing; the season's length
    in slots, 0 for none; the slot's phase in it, in slots.

    The answer tells of the row's own slot what was forecast of it before: quantiles `band` at
    `LEVELS`, `mean`, and of its value `log_density` and `p_value`, twice the smaller tail. Of the
    slots 1, 4, 16 and one season ahead it gives quantiles `ahead` and means `ahead_mean`.
    """

    name = "sensors"
    n_inputs, n_outputs = 4, 1
    presets: ClassVar = {"small": SensorsConfig()}
    prediction = SensorForecast(LEVELS, HORIZONS)

    def __init__(self, config: SensorsConfig | None = None):
        super().__init__()
        self.config: SensorsConfig = config or SensorsConfig()
        self.prediction = SensorForecast(LEVELS, HORIZONS, self.config.longest)
        least = 2 * self.config.longest + N_RECENT + max(HORIZONS)
        if self.config.values < least:
            raise ValueError(f"values is {self.config.values}, must be at least {least}")
        self.rings = {
            **{name: Ring(1, "slots") for name in ("values", *AHEAD, "ahead_season")},
            f"{EXPERTS}season": Ring(2, slot="season_slot"),
            f"{SIGHT}z_season": Ring(1, "slots"),
        }

    def initial_state(self, n_streams: int = 1) -> State:
        zeros, config = torch.zeros, self.config
        parts = {
            EXPERTS: bank.initial_experts(n_streams, N_HORIZONS, config.longest),
            DENSITY: density.initial_mixture(n_streams, N_HORIZONS),
            SIGHT: sight.initial_features(n_streams, config.longest),
        }
        return {
            "slots": zeros(n_streams, dtype=torch.int64),
            "values": zeros(n_streams, config.values),
            "measured": zeros(n_streams, 1),  # whether any value was
            "season_length": zeros(n_streams, 1, dtype=torch.int64),
            "season_age": zeros(n_streams, 1),
            "changes": zeros(n_streams, 2),  # sum and weight of absolute changes
            "forecast": zeros(n_streams, N_HORIZONS, bank.N_EXPERTS),
            "band": zeros(n_streams, len(LEVELS)),
            "mean": zeros(n_streams, 1),
            **{name: zeros(n_streams, h, bank.N_EXPERTS) for name, (h, _) in AHEAD.items()},
            "ahead_season": zeros(n_streams, config.longest, bank.N_EXPERTS),
            **{head + name: held for head, part in parts.items() for name, held in part.items()},
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """Score the row's value, learn it, and forecast the slots after it."""
        slot, following = self._read(state, x)
        old = _part(state, DENSITY)
        then = _forecast_then(state, slot)
        error = density.errors(old, slot.scale)
        made = density.mixture(old, then, error, slot.newest, slot.scale)
        known = _known(state, slot)
        learned = self._learned(state, slot, known)
        mixed = density.learned(old, made, then, error, slot, known[..., None])
        scored = (known[:, :1] * slot.measured) > 0
        below, above, log_density = _score(made, slot)
        log_density = torch.where(scored, log_density, 0.0)
        p_value = torch.where(scored, 2 * torch.minimum(below, above), 1.0)
        z = sight.normal_score(below, above)
        middle = sight.expected(old["log_weight"][:, 0].softmax(-1), then[:, 0])
        seen = sight.learned(_part(state, SIGHT), z, middle, slot)
        # Of the slots that follow.
        scale = _scale(following["changes"], slot.value)
        season = slot.season.next()
        position = (slot.n + 1).expand_as(slot.horizon)
        past = read_past(state["values"], position, slot.horizon, season, scale, slot.value)
        ring = state[f"{EXPERTS}season"]
        forecast = bank.forecasts(learned, ring, past, slot, season, scale)
        error = density.errors(mixed, scale)
        ahead = density.mixture(mixed, forecast, error, slot.value, scale)
        band, mean = ahead.quantiles(x.new_tensor(LEVELS)), ahead.middle()[..., 0]
        answer = {
            "mean": state["mean"],
            "quantiles": state["band"],
            "log_density": log_density,
            "p_value": p_value,
            "floor": torch.cat([state["mean"], log_density, p_value], 1),
            "ahead_mean": mean,
            "ahead_quantiles": band,
        }
        following |= {
            "forecast": forecast,
            "band": band[:, 0],
            "mean": mean[:, :1],
            **{name: state["forecast"][:, at : at + 1] for name, (_, at) in AHEAD.items()},
            "ahead_season": state["forecast"][:, -1:],
            **{EXPERTS + name: tensor for name, tensor in learned.items()},
            **{DENSITY + name: tensor for name, tensor in mixed.items()},
            **{SIGHT + name: tensor for name, tensor in seen.items()},
        }
        return following, answer

    def _read(self, state: State, x: Tensor) -> tuple[Slot, State]:
        """The row beside what the state says of it, and what the state keeps of it as it is."""
        n = state["slots"][:, None]
        length, phase = (x[:, at : at + 1].long() for at in (2, 3))
        length = torch.where((length > 1) & (length <= self.config.longest), length, 1)
        season = Season(length, phase % length, (length > 1).float())
        age = torch.where(length == state["season_length"], state["season_age"] + 1, 0.0)
        measured, started = (x[:, 1:2] > 0).float(), state["measured"]
        newest = state["values"].gather(1, (n - 1) % self.config.values)
        value = torch.where(measured > 0, x[:, :1], state["mean"])
        slot = Slot(
            n,
            value,
            measured,
            started,
            newest,
            scale=_scale(state["changes"], newest),
            season=season,
            young=(age < length.float()).float(),
            horizon=torch.cat(
                [n.new_tensor(HORIZONS).expand(len(x), -1),
                 torch.where(length > 1, length, NO_SEASON)], 1
            ),
        )  # fmt: skip
        return slot, {
            "slots": state["slots"] + 1,
            "values": value,
            "measured": torch.maximum(started, measured),
            "season_length": length,
            "season_age": age,
            "season_slot": season.phase[:, 0],
            "changes": _changes(state["changes"], slot),
        }

    def _learned(self, state: State, slot: Slot, known: Tensor) -> dict[str, Tensor]:
        """The experts after a slot."""
        position = (slot.n + 1 - slot.horizon).clamp(min=0)
        past = read_past(
            state["values"], position, slot.horizon, slot.season, slot.scale, slot.newest
        )
        return bank.learned(_part(state, EXPERTS), past, slot, known)


def _part(state: State, head: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that."""
    return {name.removeprefix(head): held for name, held in state.items() if name.startswith(head)}


def _scale(changes: Tensor, newest: Tensor) -> Tensor:
    """The mean absolute change of a stream, positive, (B, 1)."""
    total, weight = changes.split(1, -1)
    return total / weight.clamp(min=1.0) + RELATIVE_SCALE * newest.abs() + LEAST_SCALE


def _changes(changes: Tensor, slot: Slot) -> Tensor:
    """Sum and weight of absolute changes after a slot, (B, 2)."""
    change = (slot.value - slot.newest).abs()
    bounded = torch.minimum(change, JUMP * slot.scale)
    change = torch.where(changes[:, 1:] > SETTLED, bounded, change)
    weight = slot.measured * slot.started
    seen = torch.cat([change, torch.ones_like(change)], 1)
    return changes + weight * (seen - (1 - SCALE_MEMORY) * changes)


def _known(state: State, slot: Slot) -> Tensor:
    """1.0 where a slot was measured and its forecast at a horizon had a past, else 0.0, (B, H)."""
    settled = slot.measured * (state["changes"][:, 1:] > 3).float()
    return ((slot.n + 1 - slot.horizon) > FIRST).float() * settled


def _forecast_then(state: State, slot: Slot) -> Tensor:
    """What the experts have forecast of a slot at each horizon, (B, H, K)."""
    found = [state["forecast"][:, :1]]
    for name, back in (*((name, h) for name, (h, _) in AHEAD.items()), ("ahead_season", None)):
        span = slot.horizon[:, -1:] if back is None else back
        place = ((slot.n + 1 - span) % state[name].shape[1])[..., None]
        found.append(state[name].gather(1, place.expand(-1, -1, bank.N_EXPERTS)))
    return torch.cat(found, 1)


def _score(made: density.Mixture, slot: Slot) -> tuple[Tensor, Tensor, Tensor]:
    """Mass below and above the value as forecast one slot ahead, and its log density, (B, 1)."""
    one = density.Mixture(made.mean[:, :1], made.std[:, :1], made.weight[:, :1])
    below, above = (tail[..., 0] for tail in one.tails(slot.value[:, None]))
    return below, above, one.explained(slot.value).logsumexp(-1) - density.LOG_ROOT_2PI
