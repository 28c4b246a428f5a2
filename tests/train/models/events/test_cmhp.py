"""CMHP: its sums against their definition, its distribution against quadrature, odd gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import FINITE, State, StreamingModel, advance
from edgefold.train.layers.device_layers import normalise
from edgefold.train.models.events.cmhp import Cmhp, CmhpConfig, CmhpOnDevice
from edgefold.train.models.events.lognormal_mixture import (
    LEAST_GAP,
    Mixture,
    gap_quantiles,
    log_density,
    mark_probabilities,
    sought,
)
from edgefold.train.states.decayed_attention import (
    CHUNK,
    DecayedAttentionOnDevice,
    attend_along,
    attend_next,
    beside_a_silent_one,
)
from edgefold.train.states.running_attention import empty_attention, scores_values

PAPER = {
    **{"forgetting": False, "dependent_marks": False},
    **{"tokens": "time", "residual": "normalised"},
}
FORMS: dict[str, dict[str, Any]] = {
    "ours": {},
    "published": PAPER,
    "without forgetting": {"forgetting": False, "dependent_marks": False},
    "alike": {"forgetting": False},
    "normalised": {"residual": "normalised"},
}
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def cmhp(**settings: Any) -> Cmhp:
    torch.manual_seed(0)
    sizes = {"width": 16, "n_heads": 2, "feedforward": 16, "n_latents": 3, "n_components": 8}
    config = CmhpConfig(**{**sizes, **settings})
    model = Cmhp(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    return model


def odd_events(n: int, n_streams: int = 2) -> Tensor:
    """Gaps of all sizes, among them the same time twice, and silences of a million units."""
    random = np.random.default_rng(0)
    gaps = random.choice([0.0, 1e-9, 0.01, 0.3, 2.0, 1e6], (n_streams, n))
    gaps *= random.exponential(size=(n_streams, n))
    return torch.tensor(np.stack([gaps, random.integers(0, 3, gaps.shape)], -1)).float()


@torch.no_grad()
def followed(model: StreamingModel, events: Tensor) -> tuple[State, dict[str, Tensor]]:
    """The state after events (B, N, 2), and what the steps told, (B, N, ...)."""
    state, told, every = model.initial_state(len(events)), [], model.consolidate_every
    for row in range(events.shape[1]):
        if every and row and row % every == 0:
            state = advance(model, state, model.consolidate(state))
        written, prediction = model.step(state, events[:, row])
        assert torch.isfinite(written[FINITE]).all()
        state = advance(model, state, written)
        told.append(prediction)
    return state, {name: torch.stack([one[name] for one in told], 1) for name in told[0]}


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_at_once_has_the_likelihood_of_its_steps(form: str) -> None:
    model, events = cmhp(**FORMS[form]), odd_events(3 * CHUNK + 7)
    with torch.no_grad():
        at_once = model.event_log_likelihood(events)
    told = followed(model, events)[1]["log_likelihood"][..., 0]
    # float32 of log-likelihoods up to 20 nats, behind two blocks of layer norms
    torch.testing.assert_close(told, at_once, atol=2e-4, rtol=1e-4)


@pytest.mark.one_case
@pytest.mark.parametrize("form", FORMS)
def test_the_device_s_form_follows_a_stream_like_the_model(form: str) -> None:
    model, events = cmhp(**FORMS[form]), odd_events(140)
    expected = followed(model, events)[1]
    found = followed(model.for_device(2).eval(), events)[1]
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=2e-4, rtol=2e-4)


@pytest.mark.long
@torch.no_grad()
def test_decayed_sums_are_those_of_the_definition_after_thousands_of_events() -> None:
    model = cmhp()
    model.log_rates.sub_(3.0)  # so that hundreds of events count
    random = torch.Generator().manual_seed(0)
    gap = torch.empty(1, 5000).exponential_(generator=random)
    token = model.tokens(gap, torch.randint(3, gap.shape, generator=random), None)
    scores, v = scores_values(model.context_attention, model.block_latents, token, None)
    times = gap.double().cumsum(1)

    ages = times[0, -1] - times[0]
    weights = torch.exp(scores[0].double() - model.rates.double()[..., None] * ages)
    count = weights.sum(-1, keepdim=True)  # (K, H, L, 1)
    average, log_count = weights @ v[0].double() / (1 + count), torch.log1p(count)

    shape = (1, *scores.shape[1:4], v.shape[-1])
    state = empty_attention(token, *shape)
    running = CmhpOnDevice(model, 1).running
    assert isinstance(running, DecayedAttentionOnDevice)
    on_device = running.initial_state()
    for row in range(gap.shape[1]):
        one, aged = slice(row, row + 1), (gap[0, row] * model.rates)[None, ..., None]
        state = attend_next(state, scores[..., one], v[..., one, :], aged)
        on_device = running.after(on_device, normalise(token[:, row]), gap[:, row])
    along = attend_along(scores, v, times, model.rates)
    by_head = running.attended(on_device).view(1, 2, 2, -1, 3).mT  # (1, K, H, L, D/H + 1)
    for found in (
        beside_a_silent_one(state),
        beside_a_silent_one({name: tensor[:, -1] for name, tensor in along.items()}),
        (by_head[..., :-1], by_head[..., -1:]),
    ):
        # A factor is rounded at each event, but only hundreds of them count.
        torch.testing.assert_close(found[0][0].double(), average, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found[1][0].double(), log_count, atol=1e-5, rtol=1e-5)


def test_a_long_silence_leaves_nothing_of_what_was_before() -> None:
    model, silence = cmhp(), torch.tensor([[[1e6, 1.0]]])
    after = followed(model, torch.cat([odd_events(40, 1), silence], 1))[1]
    alone = followed(model, silence)[1]
    for name in ("gap_quantiles", "mark_probabilities"):
        assert torch.equal(after[name][:, -1], alone[name][:, -1])


def test_without_forgetting_all_events_weigh_alike() -> None:
    model, events = cmhp(**FORMS["without forgetting"]), odd_events(50, 1)
    with torch.no_grad():
        assert model.time_layer.weight.any()
        model.time_layer.weight.zero_()  # else a token tells its time
    straight, turned = (followed(model, part)[0] for part in (events, events.flip(1)))
    # float32 sums in another order
    torch.testing.assert_close(straight["means"], turned["means"], atol=1e-5, rtol=1e-5)


def mixture(n: int, spread: float = 2.0) -> Mixture:
    random = torch.Generator().manual_seed(1)
    draws = torch.randn(3, n, 16, generator=random)
    marks = 2 * torch.randn(n, 16, 3, generator=random)
    return {
        "log_weights": torch.log_softmax(draws[0], -1),
        "means": spread * draws[1],
        "log_stds": (draws[2] - 1).clamp(-3.5, 3.0),
        "log_marks": torch.log_softmax(marks, -1),
    }


@pytest.mark.parametrize("spread", [0.0, 2.0, 8.0])
def test_quantiles_are_those_of_the_distribution(spread: float) -> None:
    found = mixture(100, spread)
    gaps = gap_quantiles(found, sought(LEVELS)).double()
    weights, means, log_stds = (
        found[name].double()[:, None] for name in ("log_weights", "means", "log_stds")
    )
    reached = torch.special.ndtr((gaps.log()[..., None] - means) * torch.exp(-log_stds))
    levels = torch.tensor(LEVELS, dtype=torch.float64).expand(100, -1)
    # A float32 logarithm of a gap near 10 is off by 5e-7, over the least deviation of 0.03.
    torch.testing.assert_close((reached * weights.exp()).sum(-1), levels, atol=1e-5, rtol=0)
    assert (gaps.diff(dim=-1) > 0).all()


def test_gaps_and_marks_have_one_distribution_with_exact_marginals() -> None:
    found = {name: tensor.double() for name, tensor in mixture(5).items()}
    found["log_stds"].clamp_(max=0.3)  # so that all lies between the ends of the grid
    log_gap = torch.linspace(-13.0, 30.0, 8_001, dtype=torch.float64)
    gap = log_gap.exp().expand(5, -1)
    assert gap.min() > LEAST_GAP
    wide = {
        name: tensor[:, None].expand(-1, gap.shape[1], *tensor.shape[1:])
        for name, tensor in found.items()
    }
    marks = [
        torch.trapezoid(log_density(wide, gap, torch.full(gap.shape, mark)).exp() * gap, log_gap)
        for mark in range(3)
    ]
    by_quadrature = torch.stack(marks, -1)
    torch.testing.assert_close(by_quadrature.sum(-1), torch.ones(5).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(by_quadrature, mark_probabilities(found), atol=1e-6, rtol=0)


def test_an_impossible_event_is_not_finite() -> None:
    model = cmhp()
    for x in ((-1.0, 0.0), (torch.nan, 0.0), (torch.inf, 0.0), (1.0, 3.0), (1.0, -1.0)):
        written, _ = model.step(model.initial_state(), torch.tensor([x]))
        assert written[FINITE].isnan().all()


def test_many_marks_do_not_depend_on_the_gap() -> None:
    state = Cmhp(CmhpConfig(n_marks=984)).initial_state()
    assert state["log_marks"].shape == (1, 1, 984)


def test_a_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="n_heads"):
        CmhpConfig(width=10, n_heads=4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tokens": "gaps"}, "tokens is 'gaps'; take one of"),
        ({"residual": "none"}, "residual is 'none'; take one of"),
        ({"tokens": "time"}, "needs forgetting false"),
        ({**PAPER, "width": 15, "n_heads": 3}, "width is 15, must be even"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CmhpConfig(**settings)
