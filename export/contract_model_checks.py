"""The laws of the contract that only a model in PyTorch can be asked about."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from edgefold.export.contract_checks import (
    Check,
    NotApplicableError,
    answers,
    distance,
    draw,
    place_of,
    require_close,
    require_learning,
    targets,
)
from edgefold.export.contract_subjects import Arrays, TorchSubject
from edgefold.export.lowering.declare import StepDeclarer
from edgefold.export.lowering.graphs import Sizes
from edgefold.train.models.contract import StreamingModel, overrides


def _declared(subject: TorchSubject, n_steps: int) -> str:
    declarer = StepDeclarer(subject.model, Sizes(8, 4, subject.n_streams))
    steps = declarer.steps()
    return f"{', '.join(step.name for step in steps)}; state {', '.join(declarer.state)}"


def _masked(subject: TorchSubject, n_steps: int) -> str:
    require_learning(subject)
    x, y = (subject.tensor(array) for array in draw(subject, 12))
    mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(0)) < 0.6
    x[~mask], y[~mask] = torch.nan, torch.nan
    asked = subject.tensor(targets(subject))
    masked, found = _predictions(subject.model, x, y, mask, asked), []
    for stream in range(subject.n_streams):
        one, kept = slice(stream, stream + 1), mask[stream]
        alone = _predictions(subject.model, x[one, kept], y[one, kept], None, asked[one])
        found.append(distance({name: array[one] for name, array in masked.items()}, alone))
    problem = (
        f"masked rows of NaN change the prediction{place_of(subject, 'condition')}; replace them "
        "before computing: x = torch.where(mask[..., None], x, 0.0)"
    )
    return require_close(found, subject.tolerance, problem)


@torch.no_grad()
def _predictions(
    model: StreamingModel, x: Tensor, y: Tensor, mask: Tensor | None, asked: Tensor
) -> Arrays:
    """Of the fold, whatever forward() does."""
    return _arrays(StreamingModel.forward(model, x, y, asked, mask))


def _forward(subject: TorchSubject, n_steps: int) -> str:
    model = subject.model
    if subject.is_filter or not overrides(model, "forward"):
        raise NotApplicableError("the model has no forward() of its own")
    asked, found = subject.tensor(targets(subject)), []
    for n in (0, 1, 40):
        x, y = (subject.tensor(array) for array in draw(subject, n))
        ragged = torch.ones(x.shape[:2], dtype=torch.bool)
        ragged[0, n // 2 :] = False
        for mask in (None, ragged):
            with torch.no_grad():
                whole = _arrays(model(x, y, asked, mask))
            found.append(distance(whole, _predictions(model, x, y, mask, asked)))
    problem = f"forward() is not query() after update(){place_of(subject, 'forward')}"
    return require_close(found, subject.tolerance, problem)


def _for_device(subject: TorchSubject, n_steps: int) -> str:
    device = subject.model.for_device(subject.n_streams).eval()
    if device is subject.model:
        raise NotApplicableError("for_device() gives the model itself")
    other, found = TorchSubject(device, subject.n_streams), []
    x, y = draw(subject, 400)
    subject.reset()
    other.reset()
    for start, stop in pairwise([0, 1, 2, 40, *range(41, 400, 9)]):
        points = x[:, start:stop], y[:, start:stop]
        found.append(distance(answers(other, *points), answers(subject, *points)))
    problem = f"what for_device() gives predicts something else{place_of(subject, 'for_device')}"
    return require_close(found, subject.tolerance, problem)


def _arrays(told: Mapping[str, Tensor]) -> Arrays:
    return {name: np.asarray(tensor) for name, tensor in told.items()}


MODEL_CHECKS = (
    Check("steps are pure and return the declared names, shapes and types", _declared),
    Check("masked rows change nothing, NaN included", _masked),
    Check("forward equals the fold", _forward),
    Check("the device's form predicts the same", _for_device),
)
