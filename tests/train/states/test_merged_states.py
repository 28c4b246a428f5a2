"""How exact merged sums are: no digit of their two levels is lost, but what a peak rescales."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from edgefold.train.contract import State, can_merge
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig, CmanpOnDevice
from edgefold.train.models.neural_processes.pooling import NO_MERGE
from edgefold.train.models.registry import create_model
from edgefold.train.states.running_attention import RunningAttentionOnDevice
from edgefold.train.states.running_sums import BASE, RECENT, REST, empty_sums, merged_sums
from tests.conftest import tiny_model

PAIR = 2.0**-44
"""Relative error of a pair of float32 after three additions, each of which rounds some 48 bits."""
RESCALED = 2e-7
"""What `RunningAttentionOnDevice.merge` states of one rescaling: exp and two products round."""


def sums(seed: int, size: float) -> State:
    """Sums of so many points in two levels, as a stream has them."""
    generator = torch.Generator().manual_seed(seed)
    state = empty_sums(1, 1000)
    exact = size * torch.randn(1, 1000, generator=generator, dtype=torch.float64)
    state[BASE] = exact.float()
    state[REST] = (exact - state[BASE].double()).float()
    state[RECENT] = 100 * torch.randn(1, 1000, generator=generator)
    return state


def total(state: State) -> Tensor:
    return state[BASE].double() + state[REST].double() + state[RECENT].double()


@pytest.mark.parametrize("sizes", [(1e9, 1e9), (1e9, 1.0), (0.0, 1e6)])
def test_merged_sums_keep_the_digits_that_float32_has_not(sizes: tuple[float, float]) -> None:
    states = [sums(seed, size) for seed, size in enumerate(sizes)]
    merged = merged_sums(*states)
    assert not merged[RECENT].any()
    expected, largest = total(states[0]) + total(states[1]), max(*sizes, 100.0)
    assert (total(merged) - expected).abs().max() <= PAIR * 5 * largest  # 5: normal numbers
    if min(sizes) > 0:  # else no digit is below float32's
        plain = (states[0][BASE] + states[1][BASE]) + (states[0][RECENT] + states[1][RECENT])
        assert (plain.double() - expected).abs().max() > 100 * PAIR * largest


# Sums under peaks ------------------------------------------------------------------------------


@pytest.fixture
def running() -> RunningAttentionOnDevice:
    device = tiny_model().for_device(1)
    assert isinstance(device, CmanpOnDevice)
    return device.running


def attention(
    running: RunningAttentionOnDevice, seed: int, peaks: tuple[float, float], size: float
) -> State:
    """A state of older and of recent sums; `peaks` are the peaks of both."""
    state, generator = running.initial_state(1), torch.Generator().manual_seed(seed)
    shape = state["base_sums"].shape
    exact = size * torch.randn(shape, generator=generator, dtype=torch.float64)
    state["base_sums"] = exact.float()
    state["base_rest"] = (exact - state["base_sums"].double()).float()
    state["recent_sums"] = torch.randn(shape, generator=generator)
    for name, peak in zip(("base_peak", "recent_peak"), peaks, strict=True):
        state[name] = torch.full_like(state[name], peak)
    return state


def weighed(state: State, peak: Tensor, absolute: bool = False) -> Tensor:
    """The sums under a common peak in float64, or those of their absolute values."""
    parts = (
        (state["base_sums"].double() + state["base_rest"].double(), state["base_peak"]),
        (state["recent_sums"].double(), state["recent_peak"]),
    )
    shares = ((part, torch.exp(own.double() - peak.double())) for part, own in parts)
    return sum(((p.abs() if absolute else p) * s for p, s in shares), torch.zeros(()))


@pytest.mark.parametrize("others", [(3.0, 3.0), (2.75, 3.0), (9.0, -2.0), (-90.0, -1e30)])
def test_a_merge_of_attentions_is_exact_but_for_the_rescaling(
    running: RunningAttentionOnDevice, others: tuple[float, float]
) -> None:
    one, other = attention(running, 0, (3.0, 3.0), 1e6), attention(running, 1, others, 1e5)
    merged = running.merge(one, other)
    peak = merged["base_peak"]
    assert (peak == max(3.0, *others)).all()
    expected = weighed(one, peak) + weighed(other, peak)
    scale = weighed(one, peak, absolute=True) + weighed(other, peak, absolute=True)
    error = ((weighed(merged, peak) - expected).abs() / scale).max()
    assert error <= (PAIR if others == (3.0, 3.0) else RESCALED)
    for name, empty in running.initial_state(1).items():
        if name.startswith("recent"):
            torch.testing.assert_close(merged[name], empty, rtol=0, atol=0)


def test_an_empty_state_changes_as_much_as_a_consolidation(
    running: RunningAttentionOnDevice,
) -> None:
    state, empty = attention(running, 0, (3.0, 5.0), 1e6), running.initial_state(1)
    for merged in (running.merge(state, empty), running.merge(empty, state)):
        for name, tensor in running.consolidate(state).items():
            torch.testing.assert_close(merged[name], tensor, rtol=0, atol=0)
    merged = running.merge(empty, running.initial_state(1))
    for name, tensor in empty.items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=0)


def test_peaks_that_rise_a_hundred_times_cost_no_more_than_each_once(
    running: RunningAttentionOnDevice,
) -> None:
    parts = [attention(running, n, (0.3 * n, 0.3 * n), 10.0) for n in range(100)]
    state = running.initial_state(1)
    for part in parts:
        state = running.merge(state, part)
    peak = state["base_peak"]
    expected = sum((weighed(part, peak) for part in parts), torch.zeros(()))
    scale = sum((weighed(part, peak, absolute=True) for part in parts), torch.zeros(()))
    # Older parts were rescaled more often and weigh less: 1 / (1 - exp(-0.3)) rescalings in all.
    assert ((weighed(state, peak) - expected).abs() / scale).max() <= 4 * RESCALED


# Who does not merge ----------------------------------------------------------------------------


def test_latents_that_forget_say_why_their_states_do_not_join() -> None:
    model = Cmanp(CmanpConfig(n_blocks=1, n_latents=8, width=16, n_heads=2, half_lives=(50.0,)))
    device, state = model.for_device(1), model.initial_state(1)
    assert not can_merge(model) and not can_merge(device)
    assert device.no_merge == model.no_merge != ""
    with pytest.raises(ValueError, match="half_lives"):
        model.merge(state, state)


def test_bootstraps_say_why_their_states_do_not_join() -> None:
    model = create_model("bnp", {"width": 8, "n_samples": 3})
    assert not can_merge(model) and model.no_merge == NO_MERGE
    with pytest.raises(ValueError, match="bootstrap"):
        model.merge(model.initial_state(), model.initial_state())
