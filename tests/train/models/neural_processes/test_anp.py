"""CANP, ANP and BANP: sizes, the fold against the whole, full buffers, bootstraps, export."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime.checking.golden import check_bundle
from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, SEED, State, advance
from edgefold.train.models.neural_processes.attentive import AttentiveProcess as Model
from edgefold.train.models.neural_processes.bootstraps import Draws
from edgefold.train.models.neural_processes.grid import Banp
from edgefold.train.models.registry import create_model

SIZES = {"canp": 331_906, "anp": 348_418, "banp": 364_674}
TINY = {"n_inputs": 2, "width": 16, "n_heads": 2, "capacity": 10}
ROUNDING = 2e-6
"""Of float32 sums over ten points in another order."""


def tiny(name: str, **settings: object) -> Model:
    torch.manual_seed(1)
    samples = {} if name == "canp" else {"n_samples": 5}
    model = create_model(name, {**TINY, **samples, **settings})
    assert isinstance(model, Model)
    return model


def points(n_points: int, seed: int = 0, n_streams: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n_streams, n_points, 2, generator=generator) * 4 - 2
    return x, torch.sin(2 * x.sum(-1, keepdim=True))


def held(model: Model, x: Tensor, y: Tensor, state: State | None = None) -> State:
    """The state after points, one update for each."""
    state = model.initial_state(len(x)) if state is None else state
    for row in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, row], y[:, row]))
    return state


def means(model: Model, state: State, x: Tensor) -> Tensor:
    return model.query(model.refresh(state), x)["mean"]


@pytest.fixture(params=SIZES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_paper_preset_has_the_published_number_of_parameters(name: str) -> None:
    model = create_model(name, preset="paper")
    assert sum(weights.numel() for weights in model.parameters()) == SIZES[name]


@torch.no_grad()
@pytest.mark.parametrize("n_points", [0, 1, 7])
def test_forward_equals_the_fold(name: str, n_points: int) -> None:
    model, (x, y), (targets, _) = tiny(name), points(n_points), points(4, 1)
    whole = model(x, y, targets)
    folded = model.query(model.refresh(held(model, x, y)), targets)
    for part, tensor in whole.items():
        torch.testing.assert_close(folded[part], tensor, atol=ROUNDING, rtol=0)


@torch.no_grad()
def test_masked_points_are_invisible_nan_included(name: str) -> None:
    model, (x, y), (targets, _) = tiny(name), points(8), points(4, 1)
    mask = torch.tensor([1, 0, 1, 1, 0, 0, 1, 1], dtype=torch.bool)
    alone = model(x[:, mask], y[:, mask], targets)["mean"]
    x[:, ~mask], y[:, ~mask] = torch.nan, torch.nan
    hidden = model(x, y, targets, mask.expand(2, -1))["mean"]
    torch.testing.assert_close(hidden, alone, atol=ROUNDING, rtol=0)


@torch.no_grad()
def test_a_full_buffer_refuses_or_forgets_the_oldest_or_a_random_point(name: str) -> None:
    (x, y), (targets, _) = points(13), points(4, 1)
    refusing = tiny(name)
    full = held(refusing, x[:, :10], y[:, :10])
    assert not refusing.update(full, x[:, 10], y[:, 10])[FINITE].isfinite().any()
    # Bootstraps draw places, so that they differ where the same points lie in other places.
    if name != "banp":
        overwriting = tiny(name, when_full="overwrite")
        recent = means(refusing, held(refusing, x[:, 3:], y[:, 3:]), targets)
        found = means(overwriting, held(overwriting, x, y), targets)
        torch.testing.assert_close(found, recent, atol=ROUNDING, rtol=0)
    sampling = tiny(name, when_full="reservoir")
    state = held(sampling, x, y)
    kept = state["points"][:, :10]
    given = sampling.encoders.points(x, y)
    apart = (kept[:, :, None] - given[:, None]).abs().amax((-1, -2)) < ROUNDING
    assert (apart.sum(-1) == 1).all() and apart.any(1).sum(-1).tolist() == [10, 10]
    assert means(sampling, state, targets).isfinite().all()


@torch.no_grad()
def test_the_order_of_points_matters_where_a_model_says_so(name: str) -> None:
    model, (x, y), (targets, _) = tiny(name), points(8), points(4, 1)
    found = means(model, held(model, x, y), targets)
    apart = (means(model, held(model, x.flip(1), y.flip(1)), targets) - found).abs().max()
    assert (apart > ROUNDING) == model.ordered


@torch.no_grad()
def test_a_seed_decides_the_samples(name: str) -> None:
    if name == "canp":
        pytest.skip("no samples")
    model, (x, y), (targets, _) = tiny(name), points(8), points(4, 1)
    same = held(model, x[:1].expand(2, -1, -1), y[:1].expand(2, -1, -1))
    other = {**same, SEED: torch.tensor([0, 7])}
    found, again = (means(model, state, targets[:1].expand(2, -1, -1)) for state in (same, other))
    torch.testing.assert_close(found[0], found[1], atol=ROUNDING, rtol=0)
    torch.testing.assert_close(again[0], found[0], atol=ROUNDING, rtol=0)
    assert (again[1] - found[1]).abs().max() > 1e-4


@torch.no_grad()
def test_a_weight_of_two_is_the_point_twice() -> None:
    encoders, (x, y), (targets, _) = tiny("canp").encoders, points(5), points(4, 1)
    kept, weight = encoders.points(x, y), torch.tensor([1.0, 2, 0, 1, 1]).expand(2, -1)
    repeated = kept[:, [0, 1, 1, 3, 4]]
    one = torch.ones(2, 5)
    for found, expected in (
        (encoders.pooled(kept, weight), encoders.pooled(repeated, one)),
        (
            encoders.at(encoders.found(kept, weight), targets),
            encoders.at(encoders.found(repeated, one), targets),
        ),
    ):
        torch.testing.assert_close(found, expected, atol=ROUNDING, rtol=0)


@torch.no_grad()
def test_residuals_that_are_all_equal_leave_the_prediction_of_the_context() -> None:
    model, (x, y) = tiny("banp"), points(6)
    assert isinstance(model, Banp)
    each_once = torch.ones(2, 5, 6)  # so that stage one sees the context itself
    draws = Draws(each_once, torch.full((2, 5, 6), 3))
    weight, kept = torch.ones(2, 6), model.encoders.points(x, y)
    found = model._bootstrapped(kept[:, None], x[:, None], y[:, None], weight[:, None], draws)
    base, _ = model._hidden(model._cache_of(kept, torch.cat([x, y], -1), weight, draws), x)
    expected = model.decoder.answer(base)["mean"].expand_as(found)
    torch.testing.assert_close(found, expected, atol=ROUNDING, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("n_points", [0, 1, 9])
def test_a_device_predicts_what_the_model_predicts(name: str, n_points: int) -> None:
    model = tiny(name, when_full="reservoir", capacity=8)
    for weights in model.encoders.parameters():  # untrained encoders hardly hear their points
        weights.mul_(1.5)
    (x, y), (targets, _), predictions = points(n_points), points(4, 1), []
    for subject in (model, model.for_device(2)):
        state = {**subject.initial_state(2), SEED: torch.tensor([3, 4])}
        for row in range(n_points):
            state = advance(subject, state, subject.update(state, x[:, row], y[:, row]))
        predictions.append(subject.query(subject.refresh(state), targets))
    for part, tensor in predictions[0].items():
        torch.testing.assert_close(predictions[1][part], tensor, atol=1e-5, rtol=0)  # gain of 1.5


def test_the_loss_falls_and_repeats_with_its_generator(name: str) -> None:
    model, (x, y), (targets, y_target) = tiny(name), points(8), points(12, 1)
    mask = torch.arange(8)[None] < torch.tensor([[3], [8]])
    batch = Batch(x, y, targets, y_target, mask)

    def loss() -> Tensor:
        return model.loss(batch, torch.Generator().manual_seed(3))

    first = loss()
    assert first.item() == loss().item()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        found = loss()
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert found < first - 0.1


@pytest.mark.one_case
def test_the_exported_graphs_equal_the_model(name: str, tmp_path: Path) -> None:
    config = ExportConfig(8, 4, parity_steps=40)
    export_bundle(tiny(name, when_full="overwrite"), {"name": "untrained"}, tmp_path / "b", config)
    assert check_bundle(tmp_path / "b").passed
