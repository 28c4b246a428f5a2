"""CMHP and THP give what their papers' equations give, in one batch and event by event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import advance, follow
from edgefold.train.models.events.event_model import EventModel, event_batch
from edgefold.train.models.registry import model_class
from tests.reference import event_models
from tests.reference.numpy_layers import Rows, Weights

SIZES: dict[str, dict[str, Any]] = {
    "one head": {"width": 8, "n_heads": 1, "feedforward": 6, "n_layers": 1, "n_blocks": 1},
    "three heads": {"width": 12, "n_heads": 3, "feedforward": 10, "n_layers": 3, "n_blocks": 3},
}
SHARED = {"n_marks": 4, "n_components": 5, "n_latents": 5, "window": 4}
"""With a window of 4, an event of 11 does not see all before it."""
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "cmhp": ("cmhp", {}),
    "thp": ("thp", {}),
    "thp, all events": ("thp", {"window": 16}),
    "thp, marks that depend on the gap": ("thp", {"dependent_marks": True}),
    "thp, relative": ("thp", {"encoder": "relative"}),
    "thp, intensities": ("thp", {"head": "softplus"}),
    "thp, relative, intensities": ("thp", {"head": "softplus", "encoder": "relative"}),
}
MIXTURES = [case for case in SETTINGS if "intensities" not in case]
B = 3


def noisy(case: str, size: str) -> EventModel:
    """A small model of the preset `paper` in float64, with noise on every parameter."""
    torch.manual_seed(0)
    name, settings = SETTINGS[case]
    of: Any = model_class(name)
    paper = of.presets["paper"]
    known = {key: value for key, value in (SHARED | SIZES[size]).items() if hasattr(paper, key)}
    model: EventModel = of(replace(paper, **known | settings)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def drawn(n_events: int) -> tuple[Tensor, Tensor]:
    """Events of three streams, with gaps of many sizes, and how many of each are real."""
    random = np.random.default_rng(1)
    gaps = random.choice([0.0, 0.01, 0.3, 2.0, 50.0], (B, n_events)) * random.exponential(
        size=(B, n_events)
    )
    events = np.stack([gaps, random.integers(0, 4, (B, n_events))], -1)
    n_real = torch.tensor([n_events, max(1, n_events - 3), 1])
    return torch.from_numpy(events), torch.arange(n_events) < n_real[:, None]


def reference(model: EventModel, events: Rows, **departures: bool) -> Any:
    of: Any = model.config
    weights = Weights.of(model)
    if type(model).name == "cmhp":
        return event_models.cmhp(weights, of, events, **departures)
    if of.head == "mixture":
        return event_models.thp_of_mixtures(weights, of, events, **departures)
    return event_models.thp_of_intensities(weights, of, events)


PUBLISHED = {
    "cmhp": {
        **{"tokens": "time", "residual": "normalised", "forgetting": False},
        **{"dependent_marks": False, "n_components": 64},
    },
    "thp": {
        **{"encoder": "published", "head": "mixture", "dependent_marks": False},
        "n_components": 64,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_has_the_published_settings(name: str) -> None:
    paper = model_class(name).presets["paper"]
    assert {key: getattr(paper, key) for key in PUBLISHED[name]} == PUBLISHED[name]


QUADRATURE = 1e-5
"""Relative error of the integral of intensities, which the model computes by 20 nodes."""


def equals(case: str, found: Tensor, expected: Rows) -> None:
    """In float64, behind three layers and for likelihoods of some nats, 1e-13 was found."""
    tolerance = 1e-9 if case in MIXTURES else QUADRATURE
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n_events", [1, 2, 11])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", SETTINGS)
@torch.no_grad()
def test_the_equations_give_the_likelihoods(case: str, size: str, n_events: int) -> None:
    model = noisy(case, size)
    events, real = drawn(n_events)
    padded = torch.where(real[..., None], events, 1.0)  # what is not real may be anything finite
    batch = torch.split(model.log_likelihood(event_batch(padded, real)), real.sum(1).tolist())
    told = follow(model, model.initial_state(B), events)[1]
    for b in range(B):
        of = reference(model, events[b].numpy())
        expected = of.log_densities(events[b].numpy())
        equals(case, batch[b], expected[: int(real[b].sum())])
        equals(case, told["log_likelihood"][b, :, 0], expected)
        if case in MIXTURES:
            equals(case, told["mark_probabilities"][b], of.mark_probabilities()[1:])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", MIXTURES)
@torch.no_grad()
def test_quantiles_hold_their_share_of_the_published_distribution(case: str, size: str) -> None:
    model = noisy(case, size)
    events, _ = drawn(5)
    gaps = follow(model, model.initial_state(B), events)[1]["gap_quantiles"][..., 0]
    for b in range(B):
        of = reference(model, events[b].numpy())
        for n, quantiles in enumerate(gaps[b].tolist(), start=1):
            found = [of.chance_before(gap, n) for gap in quantiles]
            # Two steps of Newton's method from a bracket's 4,913th part; levels are float32.
            np.testing.assert_allclose(found, model.levels, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", [case for case in SETTINGS if case not in MIXTURES])
@torch.no_grad()
def test_the_equations_give_the_intensities(case: str, size: str) -> None:
    model: Any = noisy(case, size)
    events, _ = drawn(11)
    state, gaps = model.initial_state(B), torch.linspace(0.0, 9.0, B).double()
    expected = [reference(model, rows.numpy()) for rows in events]
    for n in range(12):
        rates = model.intensity.rates(state["intensity"], gaps)
        for b in range(B):
            at = replace(expected[b], outputs=expected[b].outputs[n:]).at(gaps[b : b + 1].numpy())
            np.testing.assert_allclose(rates[b].numpy(), at[0], rtol=1e-9, atol=1e-9)
        if n < 11:
            state = advance(model, state, model.step(state, events[:, n])[0])
    for mark in range(4):  # in one batch: without a gap nothing is integrated
        last = torch.tensor([0.0, mark]).double().expand(B, 1, 2)
        found = model.event_log_likelihood(torch.cat([events, last], 1))[:, -1]
        for b in range(B):
            at = replace(expected[b], outputs=expected[b].outputs[11:]).at(np.zeros(1))
            np.testing.assert_allclose(found[b].exp().item(), at[0, mark], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["cmhp", "thp"])
@torch.no_grad()
def test_whole_ticks_change_what_is_published_by_little(case: str) -> None:
    model = noisy(case, "three heads")
    events = drawn(11)[0][0].numpy()
    mixtures = [reference(model, events, whole_ticks=whole) for whole in (True, False)]
    ours, published = (mixture.log_densities(events) for mixture in mixtures)
    assert 0 < np.abs(ours - published).max() < 1e-3  # angles of 1e-6 of some hundred units


@pytest.mark.parametrize("case", SETTINGS)
@torch.no_grad()
def test_the_device_form_follows(case: str) -> None:
    model, (events, _) = noisy(case, "three heads").float(), drawn(11)
    events = events.float()
    device = model.for_device(B)
    told = [follow(form, form.initial_state(B), events)[1] for form in (model, device)]
    for name, found in told[1].items():
        # float32 along three layers or blocks
        torch.testing.assert_close(found, told[0][name], rtol=1e-4, atol=1e-4)
