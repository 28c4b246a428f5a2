"""Predictions whose standard deviations have a lower bound, as tasks with constant pixels need."""

from __future__ import annotations

import pytest
import torch

from edgefold.train.contract import advance
from edgefold.train.layers.prediction_head import LEAST_STD, Outputs
from edgefold.train.models.registry import MODELS, accepted, accepts, create_model
from edgefold.train.tasks.images.image_sources import SIZES, load_images
from edgefold.train.tasks.images.images import ImageTask

SMALL = {"width": 16, "n_heads": 2, "n_layers": 2, "n_blocks": 2, "n_latents": 4, "capacity": 16}
BOUNDED = [name for name in MODELS if accepts(name, "bounded")]


@pytest.mark.parametrize("bounded", [False, True])
def test_a_standard_deviation_keeps_the_bound(bounded: bool) -> None:
    prediction = Outputs(1, bounded=bounded).prediction_of(torch.tensor([[0.5, -30.0]]))
    assert prediction["mean"].item() == 0.5
    assert prediction["std"].item() == pytest.approx(LEAST_STD if bounded else 0.0, abs=1e-7)


@pytest.mark.parametrize("name", BOUNDED)
@torch.no_grad()
def test_a_bounded_model_keeps_the_bound_on_devices_too(name: str) -> None:
    model = create_model(name, {**accepted(name, SMALL), "bounded": True}).eval()
    for parameter, values in model.named_parameters():  # all weights 0: the head's bias alone tells
        is_head = parameter.startswith("head") and parameter.endswith("down.bias")
        values.fill_(-30.0 if is_head else 0.0)
    for form in (model, model.for_device(1)):
        state = form.initial_state(1)
        state = advance(form, state, form.update(state, torch.ones(1, 1), torch.ones(1, 1)))
        prediction = form.query(form.refresh(state), torch.zeros(1, 2, 1))
        assert prediction["std"].min().item() == pytest.approx(LEAST_STD, rel=1e-5)


@pytest.mark.parametrize(("source", "bounded"), [("digits", True), ("photographs", False)])
def test_images_of_one_background_ask_for_the_bound(source: str, bounded: bool) -> None:
    assert (
        ImageTask(source, load_images(source, SIZES[source][0], None)).model_settings["bounded"]
        is bounded
    )
