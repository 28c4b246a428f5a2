"""CMANP that forgets: its state against the plain definition, and what a long stream leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.export.checks.laws import CHECKS, Law
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.train.contract import State, StreamingModel, advance
from edgefold.train.models.constant_memory.cmanp import PRESETS, Cmanp
from tests.conftest import tiny_config
from tests.contract import hold

HALF_LIVES = (4.0, 60.0, 0.0)
FORMS = ("model", "device")


def forgetting(*half_lives: float) -> Cmanp:
    torch.manual_seed(0)
    return Cmanp(replace(tiny_config(), half_lives=half_lives or HALF_LIVES)).eval()


def form_of(model: Cmanp, form: str) -> StreamingModel:
    return model if form == "model" else model.for_device(1).eval()


def points(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(1, n, 2, generator=random) * 4 - 2
    return x, torch.sin(2 * x.sum(-1, keepdim=True))


@torch.no_grad()
def learned(model: StreamingModel, x: Tensor, y: Tensor, state: State | None = None) -> State:
    """The state after single updates, consolidated as a device does it."""
    state, every = state or model.initial_state(1), model.consolidate_every
    for row in range(x.shape[1]):
        if every and row and row % every == 0:
            state = advance(model, state, model.consolidate(state))
        state = advance(model, state, model.update(state, x[:, row], y[:, row]))
    return state


def attended(model: Cmanp, form: str, state: State) -> Tensor:
    """What the latents attend to, (K, H, L, D/H)."""
    if form == "model":
        return state["attended"][0]
    c = model.config
    found = model.for_device(1).running.attended(state)  # type: ignore[operator, union-attr]
    return found.view(c.n_blocks, c.n_heads, -1, c.n_latents).mT  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at_once", [False, True])
@torch.no_grad()
def test_the_weight_of_a_point_halves_each_half_life(form: str, at_once: bool) -> None:
    model, (x, y) = forgetting(), points(400)
    running = form_of(model, form)
    if at_once:
        state = advance(
            running, running.initial_state(1), running.condition(running.initial_state(1), x, y)
        )
    else:
        state = learned(running, x, y)
    scores, v = (t[0].double() for t in model.scores_values(x, y, None))
    ages = torch.arange(399, -1, -1.0).double()
    halves = torch.stack(
        [0.5 ** (ages / HALF_LIVES[n % 3]) if HALF_LIVES[n % 3] else ages**0 for n in range(16)]
    )
    weights = halves * torch.exp(scores - scores.amax(-1, keepdim=True))
    expected = weights @ v / weights.sum(-1, keepdim=True)
    found = attended(model, form, state).double()
    # float32 sums over 400 points; a score of some tens is rounded at 2e-6
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_was_long_ago_vanishes_where_a_latent_forgets_it(form: str) -> None:
    model = forgetting()
    running = form_of(model, form)
    (old_x, old_y), (x, y) = points(300, 1), points(300, 2)
    state = learned(running, torch.cat([old_x, x], 1), torch.cat([5 * old_y, y], 1))
    apart = (attended(model, form, state) - attended(model, form, learned(running, x, y))).abs()
    by_rate = [apart[..., first::3, :].amax().item() for first in range(3)]
    assert by_rate[0] < 1e-5  # 2**-75 of the old ones is left
    assert by_rate[0] < by_rate[1] < by_rate[2]
    assert by_rate[2] > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_10_000_points_leaves_bounded_numbers_and_still_learns(form: str) -> None:
    model = forgetting()
    running, (x, y) = form_of(model, form), points(10_000)
    state = learned(running, x, y)
    numbers = [tensor[tensor > -1e29].abs().max().item() for tensor in state.values()]
    assert max(numbers) < 2e4  # no more than the weights of all points
    after = learned(running, x[:, :20], y[:, :20] + 3, state)
    apart = (attended(model, form, after) - attended(model, form, state)).abs().amax((0, 1, 3))
    assert apart[0::3].min() > 10 * apart[2::3].max()


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_a_far_larger_score_of_long_ago_hides_no_point_of_today(form: str) -> None:
    """A peak that never fell would leave sums of 0 for all that follows."""
    model = forgetting(1.0)
    x, y = points(500)
    scores = model.scores_values(x, y, None)[0]
    model.context_attention.q.weight.mul_(250 / (scores.amax(-1) - scores.amin(-1)).max())
    running, scores = form_of(model, form), model.scores_values(x, y, None)[0]
    assert (scores.amax(-1) - scores.amin(-1)).max() > 200
    order = scores[0, 0, 0, 0].argsort(descending=True)
    state = learned(running, x[:, order], y[:, order])
    whole = advance(
        model,
        model.initial_state(1),
        model.condition(model.initial_state(1), x[:, order], y[:, order]),
    )
    found = attended(model, form, state)
    assert torch.isfinite(found).all()
    # scores of some hundred are rounded at 3e-5 each
    torch.testing.assert_close(found, whole["attended"][0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("check", (*MODEL_CHECKS, *CHECKS), ids=lambda check: check.name)
def test_the_preset_keeps_the_contract(check: Law) -> None:
    torch.manual_seed(0)
    small = replace(PRESETS["forgetting"], n_blocks=2, width=32, n_heads=2, n_latents=16)
    subject = TorchSubject(Cmanp(small).eval(), 2)
    assert subject.ordered
    hold(check, subject, 300)


@torch.no_grad()
def test_consolidating_leaves_predictions_as_they_are() -> None:
    model = forgetting().for_device(1).eval()
    x, y = points(90)
    state = learned(model, x, y)
    state = advance(model, state, model.consolidate(state))
    state = learned(model, x, y, state)
    before = model.query(model.refresh(state), x[:, :5])
    state = advance(model, state, model.consolidate(state))
    after = model.query(model.refresh(state), x[:, :5])
    for name, tensor in before.items():  # float32 behind two blocks of layer norms
        torch.testing.assert_close(after[name], tensor, atol=2e-6, rtol=2e-6)


def test_a_model_that_forgets_nothing_has_no_order() -> None:
    assert not Cmanp(tiny_config()).ordered
    assert not any(config.half_lives for name, config in PRESETS.items() if name != "forgetting")
    assert set(forgetting().state_dict()) == set(Cmanp(tiny_config()).state_dict())


@pytest.mark.parametrize("half_life", [-1.0, 0.5, math.inf, np.nan])
def test_an_impossible_half_life_is_refused(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_lives"):
        forgetting(50.0, half_life)
