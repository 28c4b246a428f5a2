"""Encoders of ordered streams give what their papers' equations give, in a window and by tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import StreamingModel, advance, follow
from edgefold.train.models.ordered.continual_device import ContinualDevice
from edgefold.train.models.ordered.window_encoder import WindowEncoder
from edgefold.train.models.registry import accepted, create_model, model_class
from tests.reference.numpy_layers import Rows, Weights
from tests.reference.ordered_models import (
    Continual,
    Form,
    Retroactive,
    answers,
    embedded,
    fixed_landmarks,
    projected,
)

SIZES: dict[str, dict[str, Any]] = {
    "equal segments": {"width": 8, "n_heads": 2, "window": 6, "n_landmarks": 3},
    "unequal segments": {"width": 9, "n_heads": 3, "window": 7, "n_landmarks": 3},
}
FIXED = {"landmarks": "fixed", "inverse": "iterated"}
LAST = {"landmark_serves": "last"}
CASES: dict[str, tuple[str, dict[str, Any], Form]] = {
    "window-transformer": ("window-transformer", {}, Form()),
    "continual-transformer": ("continual-transformer", {}, Form()),
    "window-nystrom": ("window-nystrom", {}, Form("nystrom")),
    "window-nystrom, fixed": ("window-nystrom", FIXED, Form("nystrom", n_fixed=9)),
    "continual-nystrom": (
        *("continual-nystrom", LAST),
        Form("nystrom", "last", "first"),
    ),
    "continual-nystrom, last block": (
        *("continual-nystrom", LAST | {"continual_block": "last"}),
        Form("nystrom", "last", "last"),
    ),
    "continual-nystrom, ours": ("continual-nystrom", {}, Form("nystrom", "next", "first")),
    "continual-nystrom, ours in the last block": (
        *("continual-nystrom", {"continual_block": "last"}),
        Form("nystrom", "next", "last"),
    ),
    "continual-nystrom, fixed": ("continual-nystrom", FIXED, Form("nystrom", n_fixed=9)),
    "continual-nystrom, fixed, exact inverse": (
        *("continual-nystrom", {"landmarks": "fixed"}),
        Form("nystrom", inverse="exact", n_fixed=9),
    ),
}
ONE_BLOCK = [case for case in CASES if "block" not in case and "window" not in case]
"""Those that a device runs token by token."""
SHARED = {"n_inputs": 3, "n_classes": 4, "feedforward": 10}
T, B = 25, 2


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    """Tensors that a model makes are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def noisy(case: str, size: str, n_layers: int) -> WindowEncoder:
    """A model in float64, with noise on every parameter."""
    torch.manual_seed(0)
    name, settings, _ = CASES[case]
    sizes = accepted(name, SHARED | SIZES[size])
    model = create_model(name, {**sizes, **settings, "n_layers": n_layers})
    assert isinstance(model, WindowEncoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def streams(seed: int = 1) -> Tensor:
    return torch.randn(B, T, 3, generator=torch.Generator().manual_seed(seed))


def expected(case: str, model: WindowEncoder, tokens: Tensor) -> Rows:
    form = CASES[case][2]
    return np.stack(
        [answers(Weights.of(model), model.config, rows.numpy(), form) for rows in tokens]
    )


def equal(found: Tensor, reference: Rows) -> None:
    """In float64, along two layers and with scores of some units, 1e-13 was found."""
    np.testing.assert_allclose(found.numpy(), reference, rtol=1e-9, atol=1e-9)


def along(model: StreamingModel, tokens: Tensor) -> Tensor:
    """Return what a device answers after each token, (B, T, classes)."""
    state, scores, every = model.initial_state(B), [], model.consolidate_every
    for n, token in enumerate(tokens.unbind(1)):
        if every and n and n % every == 0:
            state = advance(model, state, model.consolidate(state))
        written, answer = model.step(state, token)
        state = advance(model, state, written)
        scores.append(answer["scores"])
    return torch.stack(scores, 1)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_equations_give_the_scores(case: str, size: str, n_layers: int) -> None:
    model, tokens = noisy(case, size, n_layers), streams()
    reference = expected(case, model, tokens)
    equal(follow(model, model.initial_state(B), tokens)[1]["scores"], reference)
    equal(along(model.for_device(B), tokens), reference)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_equations_give_the_scores_of_a_batch_with_masks(case: str, size: str) -> None:
    model, tokens = noisy(case, size, 2), streams(2)
    mask = torch.rand(B, T - 4, generator=torch.Generator().manual_seed(3)) < 0.7
    context = torch.where(mask[..., None], tokens[:, :-4], torch.nan)
    found = model(context, context[..., :0], tokens[:, -4:], mask)["scores"]
    for b in range(B):
        real = torch.cat([tokens[b, :-4][mask[b]], tokens[b, -4:]])
        equal(found[b], expected(case, model, real[None])[0, -4:])


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", ONE_BLOCK)
@torch.no_grad()
def test_the_continual_equations_give_the_attention_of_a_device(
    case: str, size: str, n_layers: int
) -> None:
    """One layer is single output, more are retroactive."""
    model, tokens = noisy(case, size, n_layers), streams()[:1]
    device = model.for_device(1)
    assert isinstance(device, ContinualDevice)
    config, form, weights = model.config, CASES[case][2], Weights.of(model)
    rows, own = embedded(weights, config, tokens[0].numpy()), weights["layers"][0]
    parts = projected(own, config.n_heads, rows)
    continual: Retroactive | Continual = Retroactive(config.window)
    if form.attention == "nystrom":
        fixed = fixed_landmarks(weights, 0, form.inverse) if form.n_fixed else None
        continual = Continual(config, config.n_heads, parts[0].shape[-1], form, fixed)
    state, every = device.initial_state(1), device.consolidate_every
    for t in range(T):
        if every and t and t % every == 0:
            state = advance(device, state, device.consolidate(state))
        found = device.form.step(state, torch.from_numpy(rows[t : t + 1]))[1][0].numpy()
        query, key, value = (part[:, t : t + 1] for part in parts)
        reference = continual.step(query, key, value)  # (H, rows, d), the oldest first
        if n_layers == 1:
            found, reference = found[:, None], reference[:, -1:]
        else:
            places = [p % config.window for p in range(max(0, t - config.window + 1), t + 1)]
            found = found[:, places]
        np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-9)
        state = advance(device, state, device.step(state, tokens[:, t])[0])


@torch.no_grad()
def test_a_whole_window_is_answered_as_by_nystromformer() -> None:
    """The published scores come from whole windows: there the newest landmark must serve."""
    for size in SIZES:
        model, window = noisy("continual-nystrom", size, 1), noisy("window-nystrom", size, 1)
        n = SIZES[size]["window"]
        token = [along(of, streams()[:, :n])[:, -1] for of in (model.for_device(B), window)]
        torch.testing.assert_close(*token, rtol=1e-12, atol=1e-12)


PUBLISHED = {
    "window-nystrom": {"inverse": "iterated", "fixing": "by-block"},
    "continual-nystrom": {"inverse": "iterated", "fixing": "by-block", "landmark_serves": "last"},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_has_the_published_settings(name: str) -> None:
    paper = model_class(name).presets["paper"]
    assert {key: getattr(paper, key) for key in PUBLISHED[name]} == PUBLISHED[name]
