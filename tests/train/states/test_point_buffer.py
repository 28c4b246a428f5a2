"""Buffers of points, and the random numbers that choose a place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import FINITE, State, StreamingModel, advance
from edgefold.train.states.point_buffer import PointBuffer
from edgefold.train.states.random_numbers import mixed, normal, uniform

LENGTH = 8


class Kept(StreamingModel):
    """Keeps points and sums what it holds."""

    def __init__(self, when_full: str):
        super().__init__()
        self.buffer = PointBuffer(LENGTH, when_full, {"points": (1,)})
        self.rings = self.buffer.rings

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": y})

    def held(self, n_points: int, seed: int = 0) -> list[int]:
        state = self.initial_state(1)
        if "seed" in state:
            state["seed"] += seed
        for value in range(n_points):
            point = torch.full((1, 1), float(value))
            state = advance(self, state, self.update(state, point, point))
        return state["points"][0, self.buffer.visible(state)[0], 0].int().tolist()


def test_a_buffer_shows_what_it_was_given_and_no_empty_place() -> None:
    for when_full in ("refuse", "overwrite", "reservoir"):
        assert Kept(when_full).held(5) == [0, 1, 2, 3, 4]


def test_overwrite_replaces_the_oldest() -> None:
    assert Kept("overwrite").held(LENGTH + 3) == [8, 9, 10, 3, 4, 5, 6, 7]


def test_refuse_makes_the_step_of_a_full_buffer_not_finite() -> None:
    model = Kept("refuse")
    state = model.initial_state(1)
    for n in range(LENGTH + 1):
        written = model.update(state, torch.ones(1, 1), torch.ones(1, 1))
        assert bool(written[FINITE].isfinite()) == (n < LENGTH)
        state = advance(model, state, written)


@pytest.mark.long
def test_a_reservoir_holds_every_point_of_the_stream_with_the_same_chance() -> None:
    model, n_points, n_seeds = Kept("reservoir"), 32, 600
    counts = np.zeros(n_points)
    for seed in range(n_seeds):
        held = model.held(n_points, seed)
        assert len(set(held)) == LENGTH
        counts[held] += 1
    # Binomial with p = 1/4: four standard deviations are 42 of the 150 that are expected.
    assert np.abs(counts - n_seeds / 4).max() < 42


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="refuse, overwrite, reservoir"):
        PointBuffer(4, "forget", {})


def test_random_numbers_have_the_moments_of_their_distributions() -> None:
    index = torch.arange(200_000)
    unit, white = uniform(7, index), normal(7, index)
    assert unit.min() > 0 and unit.max() < 1
    # Five standard errors of each mean: 0.29 / sqrt(200,000), 1 / sqrt(200,000).
    assert abs(unit.mean() - 0.5) < 3.3e-3 and abs(white.mean()) < 1.2e-2
    assert abs(white.var() - 1) < 1.6e-2
    for a, b in ((white[1:], white[:-1]), (white, normal(8, index))):
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 1.2e-2
    assert len(np.unique(mixed(7, index).numpy())) == 200_000  # a permutation of residues
