"""Join the experts and their mixture to one forecaster, the floor, which the network corrects.

    row ─> its density as forecast before ─> z, log density ─> experts, mixture and memory learn
        └> features and densities of the slots that follow

An expert is a simple forecaster. A slot is one place in the even sequence of times in which rows
come. z is a value in the coordinates of the density that was forecast for it (`features`). The
floor has no weights to be trained, and computes without gradients.

Letters of shapes: B streams, H horizons (numbers of slots that a forecast looks ahead), K experts,
N components of the mixture, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.contract import Ring, State
from edgefold.train.models.sensors import experts as bank
from edgefold.train.models.sensors import features as sight
from edgefold.train.models.sensors import mixture as density
from edgefold.train.models.sensors import scale as sizes
from edgefold.train.models.sensors.past_values import N_RECENT, past_of, read_values
from edgefold.train.models.sensors.slot import Slot, SlotSeason

FIRST = 10
"""Number of slots that must have come before a forecast for anything to be learned from it."""
EXPERTS, DENSITY, SIGHT = "experts_", "mixture_", "features_"


@dataclass(frozen=True, slots=True)
class Scored:
    """Holds a row, the forecasts of it that were made H horizons before, and how they compare.

    Attributes:
        slot: The row, as a slot (time step) of the stream.
        forecast: Forecasts of its value by K experts, made at each horizon, (B, H, K).
        mixture: Densities of its value that were forecast at each horizon, of N components.
        explained: Log of each component's weight times its density at the value, plus log root 2
            pi, (B, H, N).
        below: Probability mass below the value, as forecast one slot before, (B, 1).
        above: Probability mass above the value, as forecast one slot before, (B, 1).
        log_density: Log density of the value in nats, as forecast one slot before, (B, 1).
        z: Normal quantile of `below`, Phi^-1(below), (B, 1).
        known: 1.0 where the experts learn from the forecast of a horizon, else 0.0, (B, H, 1).
    """

    slot: Slot
    forecast: Tensor
    mixture: density.Mixture
    explained: Tensor
    below: Tensor
    above: Tensor
    log_density: Tensor
    z: Tensor
    known: Tensor

    @property
    def counts(self) -> Tensor:
        """Return 1.0 where the forecast one slot before is learned from, else 0.0, (B, 1)."""
        return self.known[:, 0]


@dataclass(frozen=True, slots=True)
class Coming:
    """Holds the forecast of the slots that follow.

    Attributes:
        mixture: Densities of the values, at each horizon.
        features: Features of the next slot for the network, (B, F).
        likely: Values that the next slot may have exactly, (B, N_LIKELY).
    """

    mixture: density.Mixture
    features: Tensor
    likely: Tensor


class Floor:
    """Forecasts the next slot by experts and their mixture, for several streams.

    Args:
        longest: Longest season that is used, in slots.
        n_values: Number of last values that are kept.
        farthest: Largest number of slots that forecasts by these values look ahead, but a season.
    """

    def __init__(self, longest: int, n_values: int, farthest: int = 1):
        least = 2 * longest + N_RECENT + farthest
        if n_values < least:
            raise ValueError(f"values is {n_values}, must be at least {least}")
        self._longest, self._n_values = longest, n_values
        self.rings: Mapping[str, Ring] = {
            "values": Ring(1, "slots"),
            f"{EXPERTS}season": Ring(2, slot="season_slot"),
            f"{SIGHT}z_season": Ring(1, "slots"),
        }

    def initial_state(self, n_streams: int) -> State:
        """Return the state of n_streams streams that have seen no row."""
        zeros = torch.zeros
        parts = {
            EXPERTS: bank.initial_experts(n_streams, 1, self._longest),
            DENSITY: density.initial_mixture(n_streams, 1),
            SIGHT: sight.initial_features(n_streams, self._longest),
        }
        return {
            "slots": zeros(n_streams, dtype=torch.int64),
            "values": zeros(n_streams, self._n_values),
            "started": zeros(n_streams, 1),  # whether any value was measured
            "fill": zeros(n_streams, 1),
            "season_length": zeros(n_streams, 1, dtype=torch.int64),
            "season_age": zeros(n_streams, 1),
            "newest": zeros(n_streams, 1),
            "change_sum": zeros(n_streams, 1),
            "change_weight": zeros(n_streams, 1),
            "scale": torch.full((n_streams, 1), sizes.LEAST),
            "forecast": zeros(n_streams, 1, bank.N_EXPERTS),
            "expected": zeros(n_streams, 1),
            **{head + name: held for head, part in parts.items() for name, held in part.items()},
        }

    def score(self, state: State, x: Tensor) -> Scored:
        """Read a row x (B, 4) and compare it with the forecast that was made of it.

        The columns are the value, 1 where it was measured, and the season's length and phase.
        """
        slot = self._slot(state, x)
        forecast = state["forecast"]
        mixture = density.mixture(part(state, DENSITY), forecast, slot.newest)
        below, above, explained = mixture.score(slot.value)
        below, above = below[:, :1], above[:, :1]
        return Scored(
            slot,
            forecast,
            mixture,
            explained,
            below,
            above,
            explained[:, 0].logsumexp(-1, keepdim=True) - density.LOG_ROOT_2PI,
            sight.normal_score(below, above),
            _known(state, slot),
        )

    def learn(self, state: State, row: Scored) -> tuple[State, Coming]:
        """Return the state of the streams after a row, and their forecast of the slots after it.

        The caller must add to the state `fill`, the value that the next slot gets if it is missing.
        """
        slot, old = row.slot, part(state, DENSITY)
        held, of_season = read_values(state["values"], slot)
        recent = held[:, -1, :N_RECENT]
        total, weight = sizes.following(
            state["change_sum"], state["change_weight"], recent, slot.measured * slot.started
        )
        scale = sizes.scale_of(total, weight, recent, slot.started)
        then, past = past_of(held, of_season, slot, scale)
        learned = bank.learned(part(state, EXPERTS), then, slot, row.known, old["error"][..., :1])
        mixed = density.learned(old, row.explained, row.forecast, slot, row.known)
        seen = sight.learned(part(state, SIGHT), row.z, state["expected"], slot)
        # Of the slots that follow.
        forecast = bank.forecasts(learned, state[f"{EXPERTS}season"], past, slot, scale)
        mixed |= density.shape(mixed, scale)
        ahead = density.mixture(mixed, forecast, slot.value)
        running = sight.errors_of(seen["running"], scale)
        expected = sight.expected(ahead.expert[:, 0], forecast[:, 0])
        likely = sight.likely_values(seen, expected, scale)
        features = sight.features(
            seen, state[f"{SIGHT}z_season"], ahead.first(), mixed["share"][:, 0], forecast[:, 0],
            expected, likely, mixed["error"][:, 0], running, past, slot, scale, weight,
        )  # fmt: skip
        return {
            "slots": state["slots"] + 1,
            "values": slot.value,
            "started": torch.maximum(slot.started, slot.measured),
            "season_length": slot.season.length,
            "season_age": slot.age,
            "season_slot": slot.season.phase[:, 0],
            "newest": slot.value,
            "change_sum": total,
            "change_weight": weight,
            "scale": scale,
            "forecast": forecast,
            "expected": expected,
            **{EXPERTS + name: tensor for name, tensor in learned.items()},
            **{DENSITY + name: tensor for name, tensor in mixed.items()},
            **{SIGHT + name: tensor for name, tensor in seen.items()},
            f"{SIGHT}error": running[:, 1:2],
        }, Coming(ahead, features, likely)

    def total(self, following: State) -> Tensor:
        """Return a sum, (B,), that is not finite if `learn` computed numbers that are not finite.

        It covers the tensors of the new state, `following`, that no forecast shows.
        """
        return (
            following[f"{EXPERTS}root"].sum((1, 2, 3, 4))
            + following[f"{EXPERTS}weights"].sum((1, 2, 3))
            + following[f"{EXPERTS}filters"].sum((1, 2))
            + following[f"{EXPERTS}error"].sum((1, 2))
        )

    def _slot(self, state: State, x: Tensor) -> Slot:
        """Return a row x (B, 4), with the columns that `score` names, as a `Slot`.

        From the state come the number of slots, the last value and the scale; `fill`, the value of
        a missing slot; and the age of the season.
        """
        n = state["slots"][:, None]
        value, measured, season = x.split([1, 1, 2], 1)
        length, phase = season.long().split(1, 1)
        known = (length > 1) & (length <= self._longest)
        length = torch.where(known, length, 1)
        season = SlotSeason(length, phase % length, known.float())
        age = torch.where(length == state["season_length"], state["season_age"] + 1, 0.0)
        horizon = torch.ones_like(n)[..., None]
        return Slot(
            n,
            torch.where(measured > 0, value, state["fill"]),
            (measured > 0).float(),
            state["started"],
            state["newest"],
            state["scale"],
            season,
            age,
            (age >= length.float()).float(),
            horizon,
            (season.phase[..., None] + horizon) % length[..., None],
        )


def part(state: State, head: str) -> dict[str, Tensor]:
    """Return the state tensors whose names begin with `head`, under the names without it."""
    return {name.removeprefix(head): held for name, held in state.items() if name.startswith(head)}


def _known(state: State, slot: Slot) -> Tensor:
    """Return 1.0 for a measured slot whose forecast had enough values, else 0.0, (B, H, 1)."""
    return (slot.n[..., None] >= slot.horizon + FIRST).float() * settled(state, slot)[..., None]


def settled(state: State, slot: Slot) -> Tensor:
    """Return 1.0 for a measured slot of a stream that has a scale before it, else 0.0, (B, 1)."""
    return slot.measured * (state["change_weight"] > 3).float()
