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

NO_SEASON = 64
"""Longest horizon, in slots, of a stream without a season."""
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
    """Forecasts by experts and their mixture, for several streams.

    Args:
        longest: Longest season that is used, in slots.
        n_values: Number of last values that are kept.
        horizons: Numbers of slots that forecasts look ahead; the first is 1.
        with_season: Whether there is a last horizon of one season.
    """

    def __init__(self, longest: int, n_values: int, horizons: tuple[int, ...], with_season: bool):
        least = 2 * longest + N_RECENT + max(horizons)
        if n_values < least:
            raise ValueError(f"values is {n_values}, must be at least {least}")
        self._longest, self._n_values = longest, n_values
        self._horizons, self._with_season = horizons, with_season
        self._n_horizons = len(horizons) + with_season
        # Forecasts wait in a queue for each horizon, one behind the other, but those of a season.
        self._waiting = [n for h in horizons[1:] for n in (h - 2, 1)]
        rings = ("values", "ahead_season") if with_season else ("values",)
        self.rings: Mapping[str, Ring] = {
            **{name: Ring(1, "slots") for name in rings},
            f"{EXPERTS}season": Ring(2, slot="season_slot"),
            f"{SIGHT}z_season": Ring(1, "slots"),
        }

    def initial_state(self, n_streams: int) -> State:
        """Return the state of n_streams streams that have seen no row."""
        zeros, n_horizons, n_waiting = torch.zeros, self._n_horizons, sum(self._waiting)
        waiting = {"ahead": n_waiting, "ahead_season": self._longest * self._with_season}
        parts = {
            EXPERTS: bank.initial_experts(n_streams, n_horizons, self._longest),
            DENSITY: density.initial_mixture(n_streams, n_horizons),
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
            "forecast": zeros(n_streams, n_horizons, bank.N_EXPERTS),
            **{name: zeros(n_streams, n, bank.N_EXPERTS) for name, n in waiting.items() if n},
            "expected": zeros(n_streams, 1),
            **{head + name: held for head, part in parts.items() for name, held in part.items()},
        }

    def score(self, state: State, x: Tensor) -> Scored:
        """Read a row x (B, 4) and compare it with the forecast that was made of it.

        The columns are the value, 1 where it was measured, and the season's length and phase.
        """
        slot = self._slot(state, x)
        forecast = self._forecast_then(state, slot)
        mixture = density.mixture(_part(state, DENSITY), forecast, slot.newest)
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
        slot, old = row.slot, _part(state, DENSITY)
        held, of_season = read_values(state["values"], slot)
        recent = held[:, -1, :N_RECENT]
        total, weight = sizes.following(
            state["change_sum"], state["change_weight"], recent, slot.measured * slot.started
        )
        scale = sizes.scale_of(total, weight, recent, slot.started)
        then, past = past_of(held, of_season, slot, scale)
        learned = bank.learned(_part(state, EXPERTS), then, slot, row.known, old["error"][..., :1])
        mixed = density.learned(old, row.explained, row.forecast, slot, row.known)
        seen = sight.learned(_part(state, SIGHT), row.z, state["expected"], slot)
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
            **self._queued(state),
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
        length, last = (torch.where(known, length, other) for other in (1, self._none))
        season = SlotSeason(length, phase % length, known.float())
        age = torch.where(length == state["season_length"], state["season_age"] + 1, 0.0)
        horizon = n.new_tensor(self._horizons).expand(len(x), -1)
        horizon = (torch.cat([horizon, last], 1) if self._with_season else horizon)[..., None]
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

    @property
    def _none(self) -> int:
        return min(NO_SEASON, self._longest)

    def _forecast_then(self, state: State, slot: Slot) -> Tensor:
        """Return the experts' forecasts of a slot, as made at each horizon before it, (B, H, K)."""
        parts = [state["forecast"][:, :1]]
        if self._waiting:
            parts += state["ahead"].split(self._waiting, 1)[1::2]
        if self._with_season:
            ring = state["ahead_season"]
            place = (slot.n[..., None] + 1 - slot.horizon[:, -1:]) % ring.shape[1]
            parts.append(ring.gather(1, place.expand(-1, -1, bank.N_EXPERTS)))
        return torch.cat(parts, 1)

    def _queued(self, state: State) -> State:
        """Return the changed queues, in which forecasts wait for slots two or more slots later.

        The forecasts that were made after the last slot, the state's `forecast`, are added.
        """
        forecasts = state["forecast"].split(1, 1)[1:]
        following = {"ahead_season": forecasts[-1]} if self._with_season else {}
        if self._waiting:
            older = state["ahead"].split(self._waiting, 1)[::2]
            queues = [part for pair in zip(forecasts, older, strict=False) for part in pair]
            following["ahead"] = torch.cat(queues, 1)
        return following


def _part(state: State, head: str) -> dict[str, Tensor]:
    """Return the state tensors whose names begin with `head`, under the names without it."""
    return {name.removeprefix(head): held for name, held in state.items() if name.startswith(head)}


def _known(state: State, slot: Slot) -> Tensor:
    """Return 1.0 for a measured slot whose forecast had enough values, else 0.0, (B, H, 1)."""
    settled = slot.measured * (state["change_weight"] > 3).float()
    return (slot.n[..., None] >= slot.horizon + FIRST).float() * settled[..., None]
