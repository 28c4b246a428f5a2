"""What the tests of references share: small models of the preset `paper`, and their streams."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefold.train.contract import Prediction, StreamingModel, advance, initial_state_for
from edgefold.train.models.registry import model_class
from tests.reference.numpy_layers import Rows

SMALL = {
    **{"width": 12, "n_heads": 3, "feedforward": 10, "n_inputs": 2, "n_outputs": 2},
    **{"n_blocks": 3, "n_layers": 3, "n_latents": 5, "capacity": 16, "n_samples": 4},
    **{"n_encoder_layers": 2, "order": "axis", "n_target_latents": 4, "block": 3},
}
"""Sizes; a model takes those that its settings have."""
B, M = 3, 7


def published(name: str, **settings: Any) -> StreamingModel:
    """A small model of the preset `paper` in float64, with noise on every parameter.

    `settings` change the preset.
    """
    torch.manual_seed(0)
    of: Any = model_class(name)
    paper = of.presets["paper"]
    known = {field.name for field in fields(paper)}
    sizes = {key: size for key, size in SMALL.items() if key in known} | settings
    model: StreamingModel = of(replace(paper, **sizes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def drawn(n_points: int, n_inputs: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Points x and y, targets and a mask of three streams, in float64; at least one is real."""
    random = torch.Generator().manual_seed(1)
    x, targets = (2 * torch.randn(B, n, n_inputs, generator=random).double() for n in (n_points, M))
    y = torch.randn(B, n_points, 2, generator=random).double()
    mask = torch.rand(B, n_points, generator=random) < 0.7
    mask[:, 0] = True
    return x, y, targets, mask


def streamed(model: StreamingModel, x: Tensor, y: Tensor, targets: Tensor) -> Prediction:
    """Learn point after point, as a device does, and predict."""
    state = initial_state_for(model, x)
    state = {name: t.to(x.dtype) if t.is_floating_point() else t for name, t in state.items()}
    for n in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, n], y[:, n]))
    return model.query(model.refresh(state), targets)


def require_equal(found: Prediction, b: int, expected: tuple[Rows, Rows]) -> None:
    """Compare the prediction of stream b with mean and deviation of a reference.

    In float64, along some 30 layers and with values of some units, 1e-14 was found.
    """
    for kind, rows in zip(("mean", "std"), expected, strict=True):
        np.testing.assert_allclose(found[kind][b].numpy(), rows, rtol=1e-9, atol=1e-9)
