"""What the network sees of sensors that take few values: steps, and the ends of their range."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import State, follow
from edgefold.train.models.sensors.features import N_LIKELY, N_STEPS
from edgefold.train.models.sensors.model import Sensors, SensorsConfig, WatchedStreams

QUANTUM = 0.25
N_ROWS = 700
SMOOTH, STEPPED, GAPS, FLOORED = range(4)


@cache
def rows() -> Tensor:
    """Four streams (T, B, 4): smooth, in steps, in steps with missing slots, and never below 0."""
    random = np.random.default_rng(0)
    walk = np.cumsum(random.normal(0, 0.4, N_ROWS))
    walk[51] = walk[50] + 2e-6  # a change far below all others
    stepped = np.round(walk / QUANTUM) * QUANTUM
    wave = np.sin(np.arange(N_ROWS) / 5) + 0.1 * random.normal(size=N_ROWS)
    values = np.stack([walk, stepped, stepped + 1000, np.maximum(wave, 0)], 1)
    found = np.zeros((N_ROWS, 4, 4), np.float32)
    found[..., 0], found[..., 1] = values, 1
    found[random.random(N_ROWS) < 0.3, GAPS, 1] = 0
    return torch.from_numpy(found)


@cache
def model() -> Sensors:
    return Sensors(SensorsConfig(longest=48, values=192, width=16, n_heads=2, n_latents=4)).eval()


@cache
def learned() -> State:
    """The state after all rows."""
    with torch.inference_mode():
        return follow(model(), model().initial_state(4), rows().transpose(0, 1))[0]


@cache
def watched() -> WatchedStreams:
    with torch.inference_mode():
        return model().watched(rows())


def came_exactly(stream: int, places: slice) -> float:
    """How often a value of a stream came just where one of these places said."""
    told, z = watched().features[100:, stream, -N_LIKELY:][:, places], watched().z[100:, stream]
    counts = watched().counts[100:, stream] > 0
    return float(((told - z[:, None]).abs() < 1e-3).any(1)[counts].float().mean())


@pytest.mark.long
def test_the_quantum_of_a_sensor_is_its_least_change() -> None:
    quantum, distance = learned()["features_quantum"][:, 0], learned()["features_means"][:, -1]
    assert quantum[[STEPPED, GAPS]].tolist() == [QUANTUM, QUANTUM]
    assert distance[[STEPPED, GAPS]].max() < 1e-3
    assert distance[SMOOTH] == pytest.approx(0.25, abs=0.12)


@pytest.mark.long
def test_a_value_in_steps_comes_where_they_are_expected() -> None:
    steps = slice(0, N_STEPS)
    assert came_exactly(STEPPED, steps) > 0.97
    assert came_exactly(GAPS, steps) > 0.9  # a value after a gap may be far off
    assert came_exactly(SMOOTH, steps) < 0.1


@pytest.mark.long
def test_the_end_of_a_range_is_known_and_how_often_it_comes() -> None:
    values = rows()[:, FLOORED, 0]
    assert learned()["features_ends"][FLOORED, 0] == 0
    lower = learned()["features_means"][FLOORED, 3]
    assert lower == pytest.approx(float((values[-100:] == 0).float().mean()), abs=0.2)
    assert learned()["features_means"][SMOOTH, 3] < 0.1
    zeros = float((values[100:] == 0).float().mean())
    assert came_exactly(FLOORED, slice(N_STEPS, N_STEPS + 1)) == pytest.approx(zeros, abs=0.01)


@pytest.mark.long
def test_float32_sees_what_float64_sees() -> None:
    values = rows().double()
    values[:, SMOOTH, 0] += 1e-8 * (torch.arange(N_ROWS) % 7)  # what float32 has rounded off
    try:
        torch.set_default_dtype(torch.float64)
        with torch.inference_mode():
            exact = copy.deepcopy(model()).double().watched(values).features
    finally:
        torch.set_default_dtype(torch.float32)
    apart = (watched().features - exact)[100:, [SMOOTH, STEPPED]].abs()
    assert apart[..., :-N_LIKELY].max() < 5e-3
    assert apart[:, 0, -N_LIKELY:][:, :N_STEPS].max() < 5e-3  # no rounding moves them by a step
