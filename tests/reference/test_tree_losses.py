"""The loss of ReTreever, and where its gradients stop, held by equations in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.layers.tree_attention import search
from tests.reference.numpy_layers import Rows, Weights
from tests.reference.subjects import B, drawn, published, require_equal, streamed
from tests.reference.tree_models import losses, retreever_full

OURS: dict[str, Any] = {"decisions": "all", "entropy": "path", "tree_gradients": True}
STEP = 1e-5


def batch_of(n_points: int, masked: bool = False) -> Batch:
    x, y, targets, mask = drawn(n_points)
    y_target = torch.randn(*targets.shape, generator=torch.Generator().manual_seed(2)).double()
    return Batch(x, y, targets, y_target, mask if masked else None)


def paths(model: Any, batch: Batch) -> Tensor:
    """The leaves (B, M) to which a loss with the generator of `loss_of` searches."""
    tree = model._tree_of(batch.x_context, batch.y_context, batch.mask)
    queries = model.tree.queries(model.embedding.queries(batch.x_target))
    shape = (len(tree.levels), *batch.x_target.shape[:2], 2)
    uniform = torch.rand(shape, generator=torch.Generator().manual_seed(3)).clamp(1e-7, 1 - 1e-7)
    return search(queries, tree.levels, tree.n_leaves, 2, uniform).leaf


def loss_of(model: Any, batch: Batch) -> Tensor:
    found: Tensor = model.loss(batch, torch.Generator().manual_seed(3))
    return found


def stream(batch: Batch, b: int) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows]]:
    """Context and targets of one stream, as inputs and outputs."""
    real = slice(None) if batch.mask is None else batch.mask[b]
    context = batch.x_context[b][real].numpy(), batch.y_context[b][real].numpy()
    return context, (batch.x_target[b].numpy(), batch.y_target[b].numpy())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_points", [1, 2, 3, 11])
@pytest.mark.parametrize("setting", ["", *OURS])
def test_the_equations_give_the_loss_of_a_path(setting: str, n_points: int, masked: bool) -> None:
    settings = {setting: OURS[setting]} if setting else {}
    model, batch = (
        published("retreever", entropy_weight=0.3, **settings),
        batch_of(n_points, masked),
    )
    with torch.no_grad():
        found, leaves = loss_of(model, batch), paths(model, batch)
    expected = [
        losses(Weights.of(model), model.config, *stream(batch, b), leaves[b].tolist())[0]
        for b in range(B)
    ]
    assert found.item() == pytest.approx(np.mean(expected), rel=1e-9)


@pytest.mark.parametrize("setting", ["decisions", "entropy"])
def test_each_departure_is_another_loss(setting: str) -> None:
    """The test above fails where a model has the other setting than its reference."""
    batch = batch_of(11)
    with torch.no_grad():
        found = [
            loss_of(published("retreever", entropy_weight=0.3, **settings), batch).item()
            for settings in ({}, {setting: OURS[setting]})
        ]
    assert abs(found[0] - found[1]) > 1e-4


@pytest.mark.parametrize("tree_gradients", [False, True])
def test_gradients_stop_where_the_settings_say(tree_gradients: bool) -> None:
    """Along a random direction the gradient is the difference quotient of the equations' loss.

    Rewards are constants of it, and so are the children of a node if gradients stop at them.
    """
    model, batch = published("retreever", tree_gradients=tree_gradients), batch_of(11)
    with torch.no_grad():
        leaves = paths(model, batch)
    loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
    random = torch.Generator().manual_seed(6)
    start, direction, slope = Weights.of(model), {}, 0.0
    for name, parameter in model.named_parameters():
        way = torch.randn(parameter.shape, generator=random).double()
        direction[name] = way.numpy()
        if parameter.grad is not None:
            slope += float((parameter.grad * way).sum())

    def mean_loss(step: float, stops: bool) -> float:
        arrays = {n: t.numpy() for n, t in model.state_dict().items()}
        moved = {n: a + step * direction[n] if n in direction else a for n, a in arrays.items()}
        found = []
        for b in range(B):
            arguments = model.config, *stream(batch, b), leaves[b].tolist()
            _, rewards, levels = losses(start, *arguments)
            frozen = (levels if stops else [], rewards)
            found.append(losses(Weights(moved), *arguments, frozen)[0].mean())
        return float(np.mean(found))

    quotients = [
        (mean_loss(STEP, stops) - mean_loss(-STEP, stops)) / (2 * STEP) for stops in (False, True)
    ]
    # The third derivative times the step squared, and 1e-15 / step of rounding.
    assert slope == pytest.approx(quotients[not tree_gradients], rel=1e-6)
    assert slope != pytest.approx(quotients[tree_gradients], rel=1e-3)


@pytest.mark.parametrize("n_points", [1, 2, 11])
def test_the_equations_give_the_predictions_of_retreever_full(n_points: int) -> None:
    model = published("retreever", full=True)
    x, y, targets, mask = drawn(n_points)
    with torch.no_grad():
        found = (model(x, y, targets, mask), mask)
        held = streamed(model, x, y, targets), torch.ones_like(mask)
    for prediction, real in (found, held):
        for b in range(B):
            rows = (t.numpy() for t in (x[b][real[b]], y[b][real[b]], targets[b]))
            require_equal(prediction, b, retreever_full(Weights.of(model), model.config, *rows))
