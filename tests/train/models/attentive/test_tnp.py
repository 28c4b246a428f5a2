"""Transformer neural processes: what sees what, and what devices make of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, Prediction, StreamingModel, advance
from edgefold.train.layers import buffer_attention
from edgefold.train.models.registry import create_model

N_STREAMS, CAPACITY = 2, 12
PARAMETERS = {
    "tnp-d": 222_082,
    "tnp-a": 222_082,
    "tnp-nd": 332_821,
    "eqtnp": 492_354,
    "transformer-ca": 325_186,
}
NAMES = pytest.mark.parametrize("name", PARAMETERS)
ROUNDING = 1e-5
"""Float32 sums of at most 64 numbers near 1, in another order, through a few layers."""


def tiny(name: str, **settings: object) -> StreamingModel:
    torch.manual_seed(0)
    shape = {"n_layers": 2, "width": 16, "n_heads": 2, "feedforward": 24, "capacity": CAPACITY}
    return create_model(name, shape | settings)


def drawn(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(N_STREAMS, n, 1, generator=generator) * 4 - 2
    return x, torch.sin(3 * x)


@torch.no_grad()
def streamed(model: StreamingModel, x: Tensor, y: Tensor, x_target: Tensor) -> Prediction:
    state = model.initial_state(N_STREAMS)
    for row in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, row], y[:, row]))
    return model.query(model.refresh(state), x_target)


def close(found: Prediction, expected: Prediction) -> None:
    torch.testing.assert_close(dict(found), dict(expected), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("name", "expected"), PARAMETERS.items())
def test_the_papers_size_has_the_papers_parameters(name: str, expected: int) -> None:
    model = create_model(name, preset="paper")
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@NAMES
@pytest.mark.parametrize("embedding", ["mlp", "fourier"])
@pytest.mark.parametrize("n_points", [0, 5, CAPACITY])
@torch.no_grad()
def test_the_batched_form_the_stream_and_the_devices_form_agree(
    name: str, embedding: str, n_points: int
) -> None:
    model, x_target = tiny(name, embedding=embedding), drawn(4, 1)[0]
    x, y = drawn(n_points)
    expected = model(x, y, x_target)
    close(streamed(model, x, y, x_target), expected)
    close(streamed(model.for_device(N_STREAMS), x, y, x_target), expected)


@NAMES
@torch.no_grad()
def test_masked_points_are_invisible_nan_included(name: str) -> None:
    model, x_target = tiny(name), drawn(4, 1)[0]
    x, y = drawn(6)
    mask = torch.tensor([[True, False, True, True, False, True], [False] * 6])
    poisoned = (torch.where(mask[..., None], tensor, torch.nan) for tensor in (x, y))
    found = model(*poisoned, x_target, mask)
    kept = model(x[:1, mask[0]], y[:1, mask[0]], x_target[:1])
    none = model(x[1:, :0], y[1:, :0], x_target[1:])
    close(found, {key: torch.cat([kept[key], none[key]]) for key in kept})


@NAMES
@torch.no_grad()
def test_blocks_of_rows_give_what_all_rows_at_once_give(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (x, y), x_target = tiny(name), drawn(7), drawn(4, 1)[0]
    expected = streamed(model.for_device(N_STREAMS), x, y, x_target)
    monkeypatch.setattr(buffer_attention, "MOST_SCORES", 1)
    monkeypatch.setattr(buffer_attention, "LEAST_ROWS", 5)  # the last block is smaller
    close(streamed(model.for_device(N_STREAMS), x, y, x_target), expected)


@NAMES
def test_a_full_buffer_does_what_was_chosen(name: str) -> None:
    (x, y), x_target = drawn(CAPACITY + 4), drawn(3, 1)[0]
    refusing = tiny(name)
    state = refusing.initial_state(N_STREAMS)
    state["count"] += CAPACITY
    assert not refusing.update(state, x[:, 0], y[:, 0])[FINITE].isfinite().any()
    forgetting = tiny(name, when_full="overwrite")
    with torch.no_grad():
        expected = forgetting(x[:, 4:], y[:, 4:], x_target)
    for model in (forgetting, forgetting.for_device(N_STREAMS)):
        close(streamed(model, x, y, x_target), expected)
    sampling = tiny(name, when_full="reservoir")
    found = streamed(sampling.for_device(N_STREAMS), x, y, x_target)
    close(found, streamed(sampling, x, y, x_target))


@pytest.mark.parametrize("name", ["tnp-d", "tnp-a", "eqtnp", "transformer-ca"])
@torch.no_grad()
def test_targets_do_not_see_each_other(name: str) -> None:
    model, (x, y), x_target = tiny(name), drawn(6), drawn(4, 1)[0]
    moved = x_target.clone()
    moved[:, 2] += 1
    before, after = model(x, y, x_target), model(x, y, moved)
    for key, tensor in before.items():
        same = (tensor == after[key]).all(-1).all(0)
        assert same.tolist() == [True, True, False, True]


@torch.no_grad()
def test_the_joint_prediction_correlates_targets_without_moving_other_means() -> None:
    model, (x, y), x_target = tiny("tnp-nd"), drawn(6), drawn(4, 1)[0]
    moved = x_target.clone()
    moved[:, 2] += 1
    before, after = model(x, y, x_target), model(x, y, moved)
    assert torch.equal(before["mean"][:, [0, 1, 3]], after["mean"][:, [0, 1, 3]])
    assert not torch.equal(before["factor"][:, 3], after["factor"][:, 3])


@pytest.mark.parametrize("n_points", [0, 6])
@torch.no_grad()
def test_tnp_a_scores_a_target_by_the_context_and_the_targets_before_it(n_points: int) -> None:
    """The first target has none before it: `query` predicts the same."""
    model, (x, y), (x_target, y_target) = tiny("tnp-a"), drawn(n_points), drawn(5, 1)
    batch = Batch(x, y, x_target, y_target)
    before = model.log_likelihood(batch)
    changed = y_target.clone()
    changed[:, 2] += 1
    after = model.log_likelihood(dataclasses.replace(batch, y_target=changed))
    same = torch.isclose(before, after, rtol=0, atol=1e-6).all(0)
    assert same.tolist() == [True, True, False, False, False]
    first = model.prediction.log_likelihood(model(x, y, x_target), y_target, torch)[:, 0]
    torch.testing.assert_close(before[:, 0], first, rtol=0, atol=ROUNDING)


@torch.no_grad()
def test_tnp_a_masks_context_points_when_it_scores() -> None:
    model, (x, y), (x_target, y_target) = tiny("tnp-a"), drawn(6), drawn(5, 1)
    mask = (torch.arange(6) < 4).expand(N_STREAMS, -1)
    bad_x, bad_y = (torch.where(mask[..., None], tensor, torch.nan) for tensor in (x, y))
    found = model.log_likelihood(Batch(bad_x, bad_y, x_target, y_target, mask))
    expected = model.log_likelihood(Batch(x[:, :4], y[:, :4], x_target, y_target))
    torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING)


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["tnp-nd", "eqtnp"])  # both rewrites
@torch.no_grad()
def test_the_bundle_predicts_what_the_model_predicts(name: str, tmp_path: Path) -> None:
    model = tiny(name, capacity=64, when_full="overwrite")
    config = ExportConfig(targets=4, streams=N_STREAMS, parity_steps=128)
    export_bundle(model, {"name": "untrained"}, tmp_path / "bundle", config)
    (x, y), x_target = drawn(20), drawn(3, 1)[0]
    expected = model(x, y, x_target)
    with Stream.open(tmp_path / "bundle") as stream:
        stream.condition(x.numpy(), y.numpy())
        found = torch.from_numpy(stream.query(x_target.numpy()).mean).float()
    torch.testing.assert_close(found, expected["mean"], rtol=0, atol=ROUNDING)
