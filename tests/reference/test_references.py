"""`paper` is the paper: the published equations in numpy give the models' predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.reference import latent_models, neural_processes, transformers, tree_models
from tests.reference.numpy_layers import Weights
from tests.reference.subjects import B, drawn, published, require_equal, streamed

GAUSSIAN = {
    "lbanp": latent_models.lbanp,
    "perceiver-io": latent_models.perceiver_io,
    "eqtnp": latent_models.eqtnp,
    "cmanp": latent_models.cmanp,
    "tnp-d": transformers.tnp_d,
    "transformer-ca": tree_models.transformer_ca,
    "retreever": tree_models.retreever,
}
CLASSICAL = {
    "cnp": neural_processes.pooling_process,
    "np": neural_processes.pooling_process,
    "canp": neural_processes.attentive_process,
    "anp": neural_processes.attentive_process,
}
REFERENCES: dict[str, Callable[..., Any]] = {**GAUSSIAN, **CLASSICAL}


@pytest.mark.parametrize("n_points", [1, 2, 11])
@pytest.mark.parametrize("name", REFERENCES)
def test_the_published_equations_give_the_predictions(name: str, n_points: int) -> None:
    model = published(name)
    x, y, targets, mask = drawn(n_points)
    with torch.no_grad():
        found = (model(x, y, targets, mask), mask)
        stream = streamed(model, x, y, targets), torch.ones_like(mask)
    more: list[Any] = []
    if name in CLASSICAL:
        noise = getattr(model, "noise", None)
        more = [noise and noise(torch.zeros(1, dtype=torch.int64))[0].double().numpy()]
    for prediction, real in (found, stream):
        for b in range(B):
            rows = (t.numpy() for t in (x[b][real[b]], y[b][real[b]], targets[b]))
            expected = REFERENCES[name](Weights.of(model), model.config, *rows, *more)
            if name in ("cnp", "canp"):
                expected = tuple(numbers[:, 0] for numbers in expected)
            require_equal(prediction, b, expected)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_device_form_follows(name: str) -> None:
    model = published(name).float()
    x, y, targets, _ = (tensor.float() for tensor in drawn(9))
    with torch.no_grad():
        trained, device = (streamed(form, x, y, targets) for form in (model, model.for_device(B)))
    for kind, found in device.items():
        # float32 along some 30 layers, values of some units; 2e-6 was found.
        torch.testing.assert_close(found, trained[kind], rtol=1e-4, atol=1e-4)
