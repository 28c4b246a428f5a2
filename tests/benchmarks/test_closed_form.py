from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.accuracy.closed_form import (
    ClosedForm,
    PaperForm,
    RunningAttention,
    exact_form,
    exact_predictions,
    graph_form,
    of_graph,
    relative_errors,
    scores_values,
)
from benchmarks.accuracy.drift import counts_after, moments, without_consolidation
from edgefold.runtime import Stream
from edgefold.train.models.constant_memory.cmanp import Cmanp
from tests.conftest import tiny_model

N = 16  # distinct points
Array = NDArray[Any]
Points = tuple[Array, Array]


@pytest.fixture(scope="module")
def model() -> Cmanp:
    return tiny_model()  # the weights of the bundle `tiny`


@pytest.fixture(scope="module")
def points() -> Points:
    draw = np.random.default_rng(3)
    x, y = draw.uniform(-2, 2, (N, 2)), draw.normal(size=(N, 1))
    return x.astype(np.float32).astype(np.float64), y.astype(np.float32).astype(np.float64)


def folded(model: Cmanp, x: Array, y: Array, order: list[int]) -> RunningAttention:
    """The model's own recurrence, one point an update, in its own precision."""
    state = model.initial_state()
    like = model.block_latents
    with torch.inference_mode():
        for index in order:
            point = (torch.from_numpy(a[index : index + 1])[None].to(like) for a in (x, y))
            state = model.condition(state, *point)
    attended, log_count = (
        state[name][0].flatten(0, 1).double().numpy() for name in ("attended", "log_count")
    )
    return RunningAttention(attended, log_count[..., 0])


def test_the_closed_form_is_the_float64_recurrence(model: Cmanp, points: Points) -> None:
    x, y = points
    order = [0] * 5 + [3] * 2 + list(range(N))
    counts = np.bincount(order, minlength=N)
    errors = relative_errors(
        exact_form(model, x, y).after(counts), folded(tiny_model().double(), x, y, order)
    )
    assert max(errors.values()) < 1e-12  # float64 sums of 23 terms


def test_the_papers_form_is_the_models_update(model: Cmanp, points: Points) -> None:
    x, y = points
    order = [i % N for i in range(200)]
    form = PaperForm(model, x, y)
    for index in order:
        form.fold(index)
    errors = relative_errors(form.state(), folded(model, x, y, order))
    assert max(errors.values()) < 2e-5  # float32 products in another order, 200 times over


@pytest.mark.parametrize("step", ["update", "condition"])
def test_a_stream_of_the_bundle_reaches_the_closed_form(
    model: Cmanp, points: Points, tiny_bundle: Path, step: str
) -> None:
    x, y = points
    width = 1 if step == "update" else 8
    own = graph_form(tiny_bundle, step, x, y)
    with Stream.open(tiny_bundle) as stream:
        for _ in range(40):
            for start in range(0, N, width):
                stream.update(x[start : start + width], y[start : start + width])
        found = of_graph(stream.state())
        targets = x[:4] * 0.9
        prediction = stream.query(targets)
        mean, std = prediction.mean.copy(), prediction.std.copy()
    counts = np.full(N, 40)
    exact = exact_form(model, x, y).after(counts)
    assert max(relative_errors(found, own.after(counts)).values()) < 2e-6  # sums of 128 points
    assert max(relative_errors(found, exact).values()) < 2e-5  # and float32 scores
    expected = exact_predictions(model, exact, targets)
    np.testing.assert_allclose(mean, expected[0], atol=2e-5)
    np.testing.assert_allclose(std, expected[1], atol=2e-5)


def test_relative_errors_see_a_wrong_latent(model: Cmanp, points: Points) -> None:
    exact = ClosedForm(*scores_values(model, *points)).after(np.ones(N, np.int64))
    attended, log_count = exact.attended.copy(), exact.log_count.copy()
    attended[1, 2] *= 1.01
    log_count[0, 0] += 1e-3
    errors = relative_errors(RunningAttention(attended, log_count), exact)
    assert errors["attended"] == pytest.approx(0.01)
    assert errors["count"] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 130, 1000])
def test_counts_follow_the_stream_of_both_sets(n: int) -> None:
    change = 128
    stream = [i % 64 if i < change else 64 + (i - change) % 64 for i in range(n)]
    np.testing.assert_array_equal(counts_after(n, change), np.bincount(stream, minlength=128))


def test_moments_rise_to_the_end_in_whole_rounds() -> None:
    found = moments(100_000_000)
    assert found == sorted(set(found)) and found[-1] == 100_000_000
    assert found[0] >= 10_000 and len(found) == 17
    assert all(n % 64 == 0 for n in found[:-1])
    assert 3_162_304 in moments(4_000_000)


def test_a_copy_without_consolidation_never_fills_the_base(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with Stream.open(without_consolidation(tiny_bundle, tmp_path / "plain")) as stream:
        stream.condition(np.zeros((400, 2)), np.ones((400, 1)))
        assert not stream.state()["base_sums"].any()
