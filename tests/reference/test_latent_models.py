"""`paper` is the paper: the published equations in numpy give the models' predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.contract import Prediction, StreamingModel, advance, initial_state_for
from edgefold.train.models.registry import model_class
from tests.reference import latent_models
from tests.reference.numpy_layers import Weights

SMALL = {"width": 12, "n_heads": 3, "feedforward": 10, "n_inputs": 2, "n_outputs": 2}
SIZES = {
    "lbanp": {"n_blocks": 3, "n_latents": 5, "capacity": 16},
    "eqtnp": {"n_layers": 3, "capacity": 16},
    "cmanp": {"n_blocks": 3, "n_latents": 5},
}
N_POINTS = [1, 2, 11]
B, M = 3, 7


def published(name: str) -> StreamingModel:
    """A small model of the preset `paper` in float64, with noise on every parameter."""
    torch.manual_seed(0)
    of: Any = model_class(name)
    model: StreamingModel = of(replace(of.presets["paper"], **SMALL, **SIZES[name])).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def streamed(model: StreamingModel, x: Tensor, y: Tensor, targets: Tensor) -> Prediction:
    """Learn point after point, as a device does, and predict."""
    state = initial_state_for(model, x)
    state = {name: t.to(x.dtype) if t.is_floating_point() else t for name, t in state.items()}
    for n in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, n], y[:, n]))
    return model.query(model.refresh(state), targets)


@pytest.mark.parametrize("n_points", N_POINTS)
@pytest.mark.parametrize("name", SIZES)
def test_the_published_equations_give_the_predictions(name: str, n_points: int) -> None:
    model = published(name)
    reference: Callable[..., Any] = getattr(latent_models, name)
    random = torch.Generator().manual_seed(1)
    x, targets = (2 * torch.randn(B, n, 2, generator=random).double() for n in (n_points, M))
    y = torch.randn(B, n_points, 2, generator=random).double()
    mask = torch.rand(B, n_points, generator=random) < 0.7
    mask[:, 0] = True
    with torch.no_grad():
        batch = model(x, y, targets, mask)
        stream = streamed(model, x, y, targets)
    weights = Weights.of(model)
    for found, of_points in ((batch, mask), (stream, torch.ones_like(mask))):
        for b in range(B):
            real = of_points[b]
            rows = (t.numpy() for t in (x[b][real], y[b][real], targets[b]))
            mean, std = reference(weights, model.config, *rows)
            # float64 along some 30 layers, values of some units: 1e-14 was found.
            np.testing.assert_allclose(found["mean"][b].numpy(), mean, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found["std"][b].numpy(), std, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", SIZES)
def test_the_device_form_follows(name: str) -> None:
    model = published(name).float()
    on_device = model.for_device(B)
    random = torch.Generator().manual_seed(1)
    x, targets = (2 * torch.randn(B, n, 2, generator=random) for n in (9, M))
    y = torch.randn(B, 9, 2, generator=random)
    with torch.no_grad():
        trained, device = (streamed(form, x, y, targets) for form in (model, on_device))
    for kind, found in device.items():
        # float32 along some 30 layers, values of some units; 2e-6 was found.
        torch.testing.assert_close(found, trained[kind], rtol=1e-4, atol=1e-4)
