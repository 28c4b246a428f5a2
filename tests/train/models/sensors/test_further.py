"""Forecasts further ahead stay finite, whatever the errors were beside the scale."""

from __future__ import annotations

import torch

from edgefold.train.models.sensors.further import FIRST_ERROR, LEAST_ERROR, N_EXPERTS, _error


def errors(total: float, weight: float, scale: float) -> torch.Tensor:
    state = {
        "total": torch.full((1, 1, N_EXPERTS), total),
        "weight": torch.full((1, 1, 1), weight),
    }
    return _error(state, torch.full((1, 1, 1), scale))


def test_an_error_that_is_no_value_is_finite_beside_the_smallest_scale() -> None:
    # A row of 1e29 that was taken, and then a scale that began anew: 3e28 / 1e-12 has no float32.
    found = errors(3e28, 70.0, 1e-12)
    assert torch.allclose(found, torch.tensor(3e28 / 70.0))


def test_errors_are_bounded_below_and_begin_in_scales() -> None:
    assert torch.allclose(errors(0.0, 0.0, 2.0), torch.tensor(2.0 * FIRST_ERROR))
    assert torch.allclose(errors(1e-6, 10.0, 2.0), torch.tensor(2.0 * LEAST_ERROR))
    assert torch.allclose(errors(30.0, 10.0, 2.0), torch.tensor(3.0))
