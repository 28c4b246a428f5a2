"""THP: steps against whole sequences, the integral of its intensity, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import advance
from edgefold.train.models.events import thp as thp_module
from edgefold.train.models.events.softplus_intensity import SoftplusIntensity
from edgefold.train.models.events.thp import Thp, ThpConfig
from tests.pairwise import leave_out
from tests.train.models.events.test_cmhp import followed, odd_events

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
SLOPES = (-10.0, -1.0, -1e-5, 0.0, 1e-7, 0.1, 3.0)


FORMS: dict[str, dict[str, Any]] = {
    "ours": {},
    "published": {"encoder": "published", "head": "mixture", "dependent_marks": False},
    "a mixture": {"head": "mixture"},
    "published encoder": {"encoder": "published"},
}


def thp(form: str = "ours") -> Thp:
    torch.manual_seed(0)
    sizes = {"width": 16, "n_heads": 2, "feedforward": 16, "window": 6, "n_components": 8}
    config = ThpConfig(**{**sizes, **FORMS[form]})
    model = Thp(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return model


def intensity(slope: float) -> SoftplusIntensity:
    found = SoftplusIntensity(3, LEVELS)
    with torch.no_grad():
        found.slopes.fill_(slope)
        found.raw_scales.copy_(torch.tensor([0.1, 1.0, 3.0]))
    return found


def by_fine_quadrature(of: SoftplusIntensity, a: Tensor, t: Tensor) -> Tensor:
    """The integral of the rates of each mark in float64, by 400 pieces of 20 nodes, (..., K)."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(20))
    share = ((torch.arange(400)[:, None] + 0.5 + 0.5 * nodes) / 400).flatten()
    rates = of.double().rates(a.double()[..., None, :], t.double()[..., None] * share)
    of.float()
    return (rates * (weights.repeat(400) / 800)[:, None]).sum(-2) * t.double()[..., None]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_events", leave_out([5, 60], [5]))
def test_a_sequence_at_once_has_the_likelihood_of_its_steps(
    n_events: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thp_module, "CHUNK", 16)
    model, events = thp(form), odd_events(n_events)
    with torch.no_grad():
        at_once = model.event_log_likelihood(events)
    told = followed(model, events)[1]["log_likelihood"][..., 0]
    torch.testing.assert_close(told, at_once, atol=1e-4, rtol=1e-4)  # float32


def test_only_the_events_of_the_windows_count() -> None:
    model, events = thp(), odd_events(40)  # the published encoder sees the absolute time
    reach = model.config.window * model.config.n_layers
    ends = [followed(model, part)[1] for part in (events, events[:, -reach - 1 :])]
    for name in ("gap_quantiles", "mark_probabilities"):
        torch.testing.assert_close(ends[0][name][:, -1], ends[1][name][:, -1])


@torch.no_grad()
def test_nothing_depends_on_the_absolute_time() -> None:
    model, events = thp(), odd_events(20)
    told = []
    for begin in (0, 10**15 + 7):
        state = model.initial_state(2)
        state["ticks"] += begin
        for row in range(20):
            written, prediction = model.step(state, events[:, row])
            state = advance(model, state, written)
            told.append(prediction)
    for early, late in zip(told[:20], told[20:], strict=True):
        for name, tensor in early.items():  # angles of other turns: float32
            torch.testing.assert_close(late[name], tensor, atol=2e-5, rtol=2e-5)


@torch.no_grad()
@pytest.mark.parametrize("slope", SLOPES)
def test_the_integral_of_the_intensity_is_exact(slope: float) -> None:
    random, of = torch.Generator().manual_seed(0), intensity(slope)
    a = 4 * torch.randn(60, 3, generator=random)
    t = torch.randn(60, generator=random).mul(2).exp()
    expected = by_fine_quadrature(of, a, t)
    # Quadrature to 1e-6 of the integral, and float32.
    torch.testing.assert_close(of.expected_marks(a, t).double(), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("slope", SLOPES)
def test_quantiles_and_marks_are_those_of_the_distribution(slope: float) -> None:
    of, a = intensity(slope), 3 * torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    quantiles, marks = of(a)
    reached = by_fine_quadrature(of, a[:, None].expand(-1, 5, -1), quantiles).sum(-1)
    levels = torch.tensor(LEVELS, dtype=torch.float64).expand(12, -1)
    torch.testing.assert_close(1 - torch.exp(-reached), levels, atol=1e-5, rtol=0)  # float32
    log_t = torch.linspace(-14.0, 6.0, 2001, dtype=torch.float64)
    t, of = log_t.exp().expand(12, -1), of.double()
    wide = a.double()[:, None]
    density = of.rates(wide, t) * torch.exp(-of.expected(wide, t))[..., None] * t[..., None]
    total = torch.trapezoid(density, log_t, dim=1)  # one, but for what comes after e^6
    torch.testing.assert_close(total.sum(-1), torch.ones(12).double(), atol=1e-3, rtol=0)
    # Nine intervals, in each of which the shares are averaged by the intensity alone.
    torch.testing.assert_close(marks.double(), total, atol=0.01, rtol=0)


@torch.no_grad()
def test_an_event_is_scored_by_what_was_known_before_it() -> None:
    model, events = thp(), odd_events(12, 1)
    log_t = torch.linspace(-14.0, 8.0, 2001)
    gap = log_t.exp()
    total = torch.zeros(())
    for mark in range(3):
        last = torch.stack([gap, torch.full_like(gap, mark)], -1)[:, None]
        scored = model.event_log_likelihood(torch.cat([events.expand(2001, -1, -1), last], 1))
        total = total + torch.trapezoid((scored[:, -1] + log_t).exp(), log_t)
    # A state that had seen the event would make this no density.
    torch.testing.assert_close(total, torch.ones(()), atol=2e-3, rtol=0)


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(ValueError, match="even"):
        ThpConfig(width=12, n_heads=4)


@pytest.mark.parametrize("setting", ["encoder", "head"])
def test_a_form_that_does_not_exist_is_refused(setting: str) -> None:
    settings: dict[str, Any] = {setting: "none"}
    with pytest.raises(ValueError, match=f"{setting} is 'none'; take one of"):
        ThpConfig(**settings)


def test_the_published_encoder_keeps_no_times() -> None:
    assert "ticks_seen" in thp().initial_state()
    assert "ticks_seen" not in thp("published").initial_state()
