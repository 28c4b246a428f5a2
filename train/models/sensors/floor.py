"""The experts and their mixture as one forecaster: what the network corrects and never falls below.

    row ─> its density as forecast before ─> z, log density ─> experts, mixture and memory learn
        └> features and densities of the slots that follow

It has no weights to be trained, and computes without gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefold.train.models.contract import Ring, State
from edgefold.train.models.sensors import experts as bank
from edgefold.train.models.sensors import features as sight
from edgefold.train.models.sensors import mixture as density
from edgefold.train.models.sensors import scale as sizes
from edgefold.train.models.sensors.past import N_RECENT, Past, read_past
from edgefold.train.models.sensors.slot import Season, Slot

NO_SEASON = 64
"""The longest horizon, in slots, of a stream without a season."""
FIRST = 10
"""Slots that a forecast must have seen for anything to be learned from it."""
EXPERTS, DENSITY, SIGHT = "experts_", "mixture_", "features_"


@dataclass(frozen=True, slots=True)
class Scored:
    """A row beside what was forecast of it one slot before.

    Attributes:
        slot: The row.
        forecast: The experts', at every horizon, (B, H, K). error: Their running errors.
        mixture: The density of it, at every horizon.
        below: Mass below its value, one slot ahead, (B, 1). above: Likewise.
        log_density: Of its value, one slot ahead, (B, 1), nats.
        z: Phi^-1(below), (B, 1).
        known: 1.0 where it has a value and a forecast of it that counts, else 0.0, (B, H).
    """

    slot: Slot
    forecast: Tensor
    error: Tensor
    mixture: density.Mixture
    below: Tensor
    above: Tensor
    log_density: Tensor
    z: Tensor
    known: Tensor

    @property
    def counts(self) -> Tensor:
        """`known` of the first horizon, (B, 1)."""
        return self.known[:, :1]


@dataclass(frozen=True, slots=True)
class Coming:
    """The slots that follow.

    Attributes:
        mixture: Their densities, at every horizon.
        features: Of the next one, (B, F).
        scale: Of the stream, (B, 1).
    """

    mixture: density.Mixture
    features: Tensor
    scale: Tensor


class Floor:
    """Experts and mixture of streams.

    Args:
        longest: Of seasons, in slots.
        n_values: Last values that are kept.
        horizons: In slots; the first is 1.
        with_season: Whether there is a last horizon of one season.
    """

    def __init__(self, longest: int, n_values: int, horizons: tuple[int, ...], with_season: bool):
        least = 2 * longest + N_RECENT + max(horizons)
        if n_values < least:
            raise ValueError(f"values is {n_values}, must be at least {least}")
        self._longest, self._n_values = longest, n_values
        self._horizons, self._with_season = horizons, with_season
        self._n_horizons = len(horizons) + with_season
        waiting = {f"ahead_{h}": h for h in horizons[1:]}
        self._waiting = waiting | ({"ahead_season": longest} if with_season else {})
        self.rings: Mapping[str, Ring] = {
            **{name: Ring(1, "slots") for name in ("values", *self._waiting)},
            f"{EXPERTS}season": Ring(2, slot="season_slot"),
            f"{SIGHT}z_season": Ring(1, "slots"),
        }

    def initial_state(self, n_streams: int) -> State:
        """What streams keep that have seen nothing."""
        zeros, n_horizons = torch.zeros, self._n_horizons
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
            "changes": zeros(n_streams, 2),
            "scale": torch.full((n_streams, 1), sizes.LEAST),
            "forecast": zeros(n_streams, n_horizons, bank.N_EXPERTS),
            **{name: zeros(n_streams, h, bank.N_EXPERTS) for name, h in self._waiting.items()},
            **{head + name: held for head, part in parts.items() for name, held in part.items()},
        }

    def score(self, state: State, x: Tensor) -> Scored:
        """Read a row (B, 4) and compare it with what was forecast of it."""
        slot = self._slot(state, x)
        mixed = _part(state, DENSITY)
        error = density.errors(mixed, slot.scale)
        forecast = self._forecast_then(state, slot)
        made = density.mixture(mixed, forecast, error, slot.newest, slot.scale)
        one = made.first()
        below, above = (tail[..., 0] for tail in one.tails(slot.value[:, None]))
        return Scored(
            slot,
            forecast,
            error,
            made,
            below,
            above,
            one.explained(slot.value).logsumexp(-1) - density.LOG_ROOT_2PI,
            sight.normal_score(below, above),
            _known(state, slot),
        )

    def learn(self, state: State, row: Scored) -> tuple[State, Coming]:
        """What the streams keep after a row, and their forecast of the slots after it.

        `fill`, what the next slot is taken for if it is missing, stays to be set by the caller.
        """
        slot, old = row.slot, _part(state, DENSITY)
        changes, scale = self._scale(state, slot)
        season = slot.season.next()
        then, past = self._past(state, slot, season, scale)
        learned = bank.learned(_part(state, EXPERTS), then, slot, row.known)
        mixed = density.learned(old, row.mixture, row.forecast, row.error, slot, row.known)
        middle = sight.expected(row.mixture.expert[:, 0], row.forecast[:, 0])
        seen = sight.learned(_part(state, SIGHT), row.z, middle, slot)
        # Of the slots that follow.
        ring = state[f"{EXPERTS}season"]
        forecast = bank.forecasts(learned, ring, past, slot, season, scale)
        error = density.errors(mixed, scale)
        ahead = density.mixture(mixed, forecast, error, slot.value, scale)
        running = sight.errors_of(seen["running"], scale)
        coming = Coming(
            ahead,
            sight.features(
                seen, state[f"{SIGHT}z_season"], ahead.first(), mixed["share"][:, 0],
                forecast[:, 0], error[:, 0], running, past, slot, season, scale, changes[:, 1:],
            ),
            scale,
        )  # fmt: skip
        age = torch.where(
            slot.season.length == state["season_length"], state["season_age"] + 1, 0.0
        )
        at = dict(zip(self._waiting, range(1, self._n_horizons), strict=True))
        return {
            "slots": state["slots"] + 1,
            "values": slot.value,
            "started": torch.maximum(slot.started, slot.measured),
            "season_length": slot.season.length,
            "season_age": age,
            "season_slot": slot.season.phase[:, 0],
            "changes": changes,
            "scale": scale,
            "forecast": forecast,
            **{name: state["forecast"][:, h : h + 1] for name, h in at.items()},
            **{EXPERTS + name: tensor for name, tensor in learned.items()},
            **{DENSITY + name: tensor for name, tensor in mixed.items()},
            **{SIGHT + name: tensor for name, tensor in seen.items()},
            f"{SIGHT}error": running[:, 1:2],
        }, coming

    def total(self, following: State) -> Tensor:
        """A sum, (B,), over what `learn` returned and no forecast shows if it is not finite."""
        return (
            following[f"{EXPERTS}root"].sum((1, 2, 3, 4))
            + following[f"{EXPERTS}weights"].sum((1, 2, 3))
            + following[f"{EXPERTS}filters"].sum((1, 2))
            + following[f"{EXPERTS}error"].sum((1, 2))
        )

    def _slot(self, state: State, x: Tensor) -> Slot:
        """The row beside what the streams say of it."""
        n = state["slots"][:, None]
        length, phase = (x[:, at : at + 1].long() for at in (2, 3))
        length = torch.where((length > 1) & (length <= self._longest), length, 1)
        season = Season(length, phase % length, (length > 1).float())
        age = torch.where(length == state["season_length"], state["season_age"] + 1, 0.0)
        measured = (x[:, 1:2] > 0).float()
        horizons = n.new_tensor(self._horizons).expand(len(x), -1)
        if self._with_season:
            horizons = torch.cat([horizons, torch.where(length > 1, length, self._none)], 1)
        return Slot(
            n,
            torch.where(measured > 0, x[:, :1], state["fill"]),
            measured,
            state["started"],
            newest=state["values"].gather(1, (n - 1) % self._n_values),
            scale=state["scale"],
            season=season,
            young=(age < length.float()).float(),
            horizon=horizons,
        )

    @property
    def _none(self) -> int:
        return min(NO_SEASON, self._longest)

    def _forecast_then(self, state: State, slot: Slot) -> Tensor:
        """What the experts have forecast of a slot at each horizon, (B, H, K)."""
        found = [state["forecast"][:, :1]]
        for at, name in enumerate(self._waiting, 1):
            ring = state[name]
            place = ((slot.n + 1 - slot.horizon[:, at : at + 1]) % ring.shape[1])[..., None]
            found.append(ring.gather(1, place.expand(-1, -1, bank.N_EXPERTS)))
        return torch.cat(found, 1)

    def _past(self, state: State, slot: Slot, season: Season, scale: Tensor) -> tuple[Past, Past]:
        """The past from which the slot was forecast at each horizon, and that of those to come."""
        n = slot.n + 1
        position = torch.cat([(n - slot.horizon).clamp(min=0), n.expand_as(slot.horizon)], 1)
        twice = torch.cat([slot.horizon, slot.horizon], 1)
        sizes = [of.expand_as(slot.horizon) for of in (slot.scale, scale)]
        both = read_past(state["values"], position, twice, season, torch.cat(sizes, 1), slot.value)
        return both.split(self._n_horizons)

    def _scale(self, state: State, slot: Slot) -> tuple[Tensor, Tensor]:
        """Sum and weight of changes after a slot, and the scale."""
        back = torch.arange(1, sizes.N_CHANGES + 1).expand(len(slot.n), -1)
        place = (slot.n - torch.minimum(back, slot.n.clamp(min=1))) % self._n_values
        recent = torch.cat([slot.value, state["values"].gather(1, place)], 1)
        changes = sizes.following(state["changes"], recent, slot.measured * slot.started)
        return changes, sizes.scale_of(changes, recent)


def _part(state: State, head: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that."""
    return {name.removeprefix(head): held for name, held in state.items() if name.startswith(head)}


def _known(state: State, slot: Slot) -> Tensor:
    """1.0 where a slot was measured and its forecast at a horizon had a past, else 0.0, (B, H)."""
    settled = slot.measured * (state["changes"][:, 1:] > 3).float()
    return ((slot.n + 1 - slot.horizon) > FIRST).float() * settled
