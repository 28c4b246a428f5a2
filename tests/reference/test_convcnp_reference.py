"""`paper` of ConvCNP is the paper's: its equations in numpy give the model's predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.models.neural_processes.convcnp import FIRST_BIAS, ConvCnp, ConvCnpConfig
from tests.reference.convolutional import convcnp
from tests.reference.numpy_layers import Weights
from tests.reference.subjects import B, drawn, published, require_equal, streamed

SIZES: list[dict[str, Any]] = [
    {"points_per_unit": 4, "channels": 3, "n_halvings": 2},
    {"points_per_unit": 7.5, "channels": 4, "n_halvings": 1, "kernel": 3},
]
OURS: dict[str, Any] = {
    **{"nodes": "spaced", "density": "log", "unit_bumps": True, "least_std": 0.01},
    "length_scales": "one",
}


def inside(n_points: int, n_inputs: int) -> tuple[Tensor, ...]:
    """Points and targets between -2 and 2, where the published grid is the same for all tasks."""
    x, y, targets, mask = drawn(n_points, n_inputs)
    return x.remainder(4) - 2, y, targets.remainder(4) - 2, mask


@pytest.mark.parametrize("n_points", [1, 2, 11])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_inputs", [1, 2])
def test_the_published_equations_give_the_predictions(
    n_inputs: int, size: dict[str, Any], n_points: int
) -> None:
    model: Any = published("convcnp", n_inputs=n_inputs, **size)
    x, y, targets, mask = inside(n_points, n_inputs)
    with torch.no_grad():
        found = (model(x, y, targets, mask), mask)
        stream = streamed(model, x, y, targets), torch.ones_like(mask)
    for prediction, real in (found, stream):
        for b in range(B):
            rows = (t.numpy() for t in (x[b][real[b]], y[b][real[b]], targets[b]))
            require_equal(prediction, b, convcnp(Weights.of(model), model.config, *rows))


@pytest.mark.parametrize("setting", OURS)
def test_each_departure_is_another_function(setting: str) -> None:
    """The test above fails with any of our settings."""
    model: Any = published("convcnp", **SIZES[0], **{setting: OURS[setting]})
    x, y, targets, _ = inside(11, 2)
    with torch.no_grad():
        found = model(x, y, targets)
    if setting == "length_scales":
        shapes = {"log_length_in": (3,), "log_length_out": (2, 6)}
        for name, shape in shapes.items():  # of the other form; their values say nothing
            setattr(model, name, torch.nn.Parameter(torch.full(shape, -1.0).double()))
    weights = Weights.of(model)
    rows = (t[0].numpy() for t in (x, y, targets))
    expected = convcnp(weights, model.config, *rows)
    pairs = zip(("mean", "std"), expected, strict=True)
    assert max(abs(found[kind][0].numpy() - rows).max() for kind, rows in pairs) > 1e-4


@pytest.mark.parametrize("unit_bumps", [False, True])
@pytest.mark.parametrize("n_inputs", [1, 2])
def test_equal_length_scales_of_all_channels_are_one_length_scale(
    n_inputs: int, unit_bumps: bool
) -> None:
    settings: dict[str, Any] = {"n_inputs": n_inputs, "unit_bumps": unit_bumps, **SIZES[0]}
    one: Any = published("convcnp", length_scales="one", **settings)
    many: Any = published("convcnp", **settings)
    weights = {
        name: tensor.expand(many.state_dict()[name].shape).clone()
        for name, tensor in one.state_dict().items()
    }
    many.load_state_dict(weights)
    x, y, targets, mask = inside(11, n_inputs)
    with torch.no_grad():
        found, expected = (model(x, y, targets, mask) for model in (many, one))
    for kind, numbers in expected.items():
        torch.testing.assert_close(found[kind], numbers, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_inputs", [1, 2])
def test_the_device_form_follows(n_inputs: int) -> None:
    model: Any = published("convcnp", n_inputs=n_inputs, **SIZES[0]).float()
    x, y, targets, _ = (tensor.float() for tensor in inside(9, n_inputs))
    with torch.no_grad():
        trained, device = (streamed(form, x, y, targets) for form in (model, model.for_device(B)))
    for kind, found in device.items():
        # float32 sums over a grid of some hundred nodes; 4e-6 was found.
        torch.testing.assert_close(found, trained[kind], rtol=1e-4, atol=1e-4)


def test_the_paper_has_the_published_number_of_parameters() -> None:
    counts = [
        sum(p.numel() for p in ConvCnp(config).parameters())
        for config in (ConvCnp.presets["paper"], ConvCnpConfig())
    ]
    assert counts == [50_612, 50_580]  # 2 + 16 + 16 length scales in place of 2


def test_weights_start_from_the_published_distribution() -> None:
    """Normal numbers of variance 2 / (fan in + fan out), and constant biases."""
    torch.manual_seed(0)
    model = ConvCnp(replace(ConvCnp.presets["paper"], channels=32, n_outputs=1))
    layers = [*model.unet.down, *model.unet.up]
    tensors: list[Any] = [layer.weight for layer in layers]
    tensors += [model.first.weight, *model.last.weight.chunk(2)]
    for tensor in map(Tensor.detach, tensors):
        n_places = tensor[0, 0].numel()
        variance = 2 / (n_places * (tensor.shape[0] + tensor.shape[1]))
        normal = tensor.flatten().numpy() / np.sqrt(variance)
        # Five standard errors of the mean square of n normal numbers.
        assert abs((normal**2).mean() - 1) < 5 * np.sqrt(2 / normal.size)
        if normal.size > 1000:  # a uniform number would have no more than 1.8
            assert abs(normal).max() > 2.5
    assert all((layer.bias == FIRST_BIAS).all() for layer in layers)
    assert model.first.bias is not None and not model.first.bias.any() and not model.bias.any()


def test_a_wrong_form_is_refused() -> None:
    wrong: dict[str, Any] = {"density": "root", "nodes": "any", "unit_bumps": 2, "least_std": 1.0}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            ConvCnpConfig(**{name: value})
