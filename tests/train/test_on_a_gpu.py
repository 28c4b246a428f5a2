"""Every model's training on another device than the CPU.

No GPU takes part: tensors on torch's `meta` device have shapes and no values, and an operation that
mixes them with tensors of the CPU raises, as one on a GPU would.
"""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental import _config

from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel
from edgefold.train.models.events.event_model import EventModel
from edgefold.train.models.registry import MODELS, accepted, create_model

META = torch.device("meta")
SMALL = {"width": 16, "n_heads": 2, "n_layers": 2, "n_blocks": 2, "n_latents": 4, "capacity": 16}


def small(name: str) -> StreamingModel:
    return create_model(name, accepted(name, SMALL)).to(META)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("masked", "n_context"),
    [
        (False, 0),
        (True, 7),
        pytest.param(False, 7, marks=pytest.mark.product),
        pytest.param(True, 0, marks=pytest.mark.product),
    ],
)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_and_scores_where_its_weights_are(
    name: str, masked: bool, n_context: int
) -> None:
    if name == "sensors":
        pytest.skip("it learns from what its experts have seen: see test_sensors.py")
    model = small(name)
    if isinstance(model, EventModel) and not n_context:
        pytest.skip("events are context alone, and none of them have no likelihood")
    shapes = [(3, n, w) for n in (n_context, 5) for w in (model.n_inputs, model.n_outputs)]
    x_context, y_context, x_target, y_target = (torch.empty(s, device=META) for s in shapes)
    mask = torch.ones(3, n_context, dtype=torch.bool, device=META) if masked else None
    batch = Batch(x_context, y_context, x_target, y_target, mask)
    # What a mask picks out has no shape without values: as if it picked all.
    with _config.patch(meta_nonzero_assume_all_nonzero=True):  # type: ignore[attr-defined]
        torch.autograd.backward(model.loss(batch, torch.Generator()))
        with torch.inference_mode():
            assert model.log_likelihood(batch).device == META
    assert all(p.grad is None or p.grad.device == META for p in model.parameters())
