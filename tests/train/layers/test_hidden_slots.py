"""Empty slots of a buffer change no prediction, and cost no more than full ones."""

from __future__ import annotations

import pytest
import torch

from edgefold.train.contract import StreamingModel, advance
from edgefold.train.models.registry import create_model

MODELS = ("lbanp", "tnp-d", "eqtnp", "transformer-ca", "canp", "anp")
N_POINTS = 5


def model_of(name: str, capacity: int, gain: float) -> StreamingModel:
    """A model whose matrices are `gain` times as large, with the same weights at any capacity."""
    torch.manual_seed(0)
    model = create_model(name, {"capacity": capacity}, "small").eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if key.endswith((".q.weight", ".k.weight")):
                weight.mul_(gain)
    return model


@torch.inference_mode()
def predicted(model: StreamingModel, n_points: int = N_POINTS) -> torch.Tensor:
    """Mean and deviation that the device's form predicts after so many points."""
    form = model.for_device(1)
    state = form.initial_state(1)
    points = torch.rand(n_points, 1, 2, generator=torch.Generator().manual_seed(0)) * 4 - 2
    for point in points:
        state = advance(form, state, form.update(state, point[:, :1], point[:, 1:]))
    told = form.query(form.refresh(state), torch.linspace(-2, 2, 7)[None, :, None])
    return torch.stack([told["mean"], told["std"]])


@pytest.mark.parametrize("gain", [1.0, 8.0])
@pytest.mark.parametrize("name", MODELS)
def test_empty_slots_change_no_prediction_however_large_the_scores_are(
    name: str, gain: float
) -> None:
    full, empty = (predicted(model_of(name, n, gain)) for n in (N_POINTS, 64))
    # atol: float32 products of other shapes add up in another order; large scores magnify that
    torch.testing.assert_close(empty, full, rtol=0, atol=2e-6 * gain**2)


@pytest.mark.parametrize("name", MODELS)
def test_no_weight_of_an_empty_slot_is_a_denormal_number(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    softmax, found = torch.softmax, []

    def recorded(scores: torch.Tensor, dim: int) -> torch.Tensor:
        found.append(softmax(scores, dim))
        return found[-1]

    model = model_of(name, 64, 1.0)
    monkeypatch.setattr(torch, "softmax", recorded)
    predicted(model)
    assert found
    smallest = min(float(weights.min()) for weights in found)
    assert smallest >= torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_buffer_predicts_the_same_at_any_capacity(name: str) -> None:
    small, large = (predicted(model_of(name, n, 1.0), 0) for n in (1, 64))
    assert torch.isfinite(large).all()
    torch.testing.assert_close(large, small, rtol=0, atol=2e-6)  # float32 sums in another order
