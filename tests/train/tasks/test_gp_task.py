"""The gp task: which batches it draws, and the exact posterior among them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from edgefold.runtime.errors import DataError, TrainingError
from edgefold.train import FitConfig, fit
from edgefold.train.batch import Batch
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.gp import (
    NOISE_STD,
    GpTask,
    covariance,
    draw_processes,
    length_scale,
    posterior,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_papers_draw_their_numbers_once_a_batch() -> None:
    task = GpTask(draws="batch")
    sizes = set()
    for seed in range(200):
        batch = task.training_batch(2, seeded(seed))
        assert batch.mask is None
        n, m = batch.x_context.shape[1], batch.x_target.shape[1]
        assert 3 <= n <= 46 and 3 <= m <= 49 - n
        sizes.add(n)
    assert len(sizes) > 30


def test_functions_have_numbers_of_their_own() -> None:
    batch = GpTask().training_batch(200, seeded())
    assert batch.mask is not None and batch.x_target.shape == (200, 48, 1)
    counts = batch.mask.sum(1)
    assert counts.min() < 3 and counts.max() == 46 and len(set(counts.tolist())) > 30


def test_the_options_of_a_run_are_kept() -> None:
    from edgefold.train.tasks.gp import GpOptions

    assert GpTask.from_options(GpOptions()).draws == "function"
    kept = GpTask(draws="posterior").describe()
    assert GpTask.from_options(GpOptions(), kept).draws == "posterior"
    older = {"name": "gp", "n_context": 20, "n_targets": 30}  # a run of before the option
    again = GpTask.from_options(GpOptions(), older)
    assert (again.n_context, again.n_targets, again.draws) == (20, 30, "function")
    assert again.least_length == 0.1


def test_shorter_length_scales_make_rougher_functions() -> None:
    rough = GpTask(draws="posterior", least_length=0.01).training_batch(256, seeded())
    smooth = GpTask(draws="posterior").training_batch(256, seeded())
    assert torch.equal(rough.x_context, smooth.x_context)  # the same draws
    order = smooth.x_context.argsort(1)
    changes = [b.y_context.gather(1, order).diff(dim=1).abs().mean() for b in (rough, smooth)]
    assert changes[0] > 1.05 * changes[1]
    with pytest.raises(DataError, match="leave out --draws batch"):
        GpTask(draws="batch", least_length=0.05)


@pytest.mark.parametrize("length", [0.0, -0.1, 0.6, math.nan, math.inf])
def test_a_task_refuses_a_length_scale_that_is_none(length: float) -> None:
    with pytest.raises(DataError, match="no length scale"):
        GpTask(least_length=length)


@pytest.mark.parametrize("word", ["0", "0.6", "-1", "short", "nan"])
def test_a_length_scale_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(DataError, match="no length scale"):
        length_scale(word)


def test_the_posterior_is_the_formula_of_a_dense_solution() -> None:
    drawn = draw_processes(3, 12, "rbf", seeded(1))
    mask = torch.arange(7)[None] < torch.tensor([[7], [3], [0]])
    mean, deviation = posterior(drawn, mask)
    for b, n in enumerate((7, 3, 0)):
        own = drawn.covariance[b, :n, :n] + NOISE_STD**2 * torch.eye(n, dtype=torch.float64)
        across, y = drawn.covariance[b, 7:, :n], drawn.y[b, :n]
        expected = across @ torch.linalg.inv(own) @ y
        left = drawn.covariance[b, 7:, 7:] - across @ torch.linalg.inv(own) @ across.mT
        std = (left.diagonal() + NOISE_STD**2).sqrt()
        torch.testing.assert_close(mean[b], expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(deviation[b, :, 0], std, rtol=1e-7, atol=1e-9)


def test_both_values_of_a_target_have_its_mean_loss() -> None:
    """For a Gaussian prediction: against an integral over the values that a target may have."""
    mean, deviation = torch.tensor(0.3).double(), torch.tensor(0.2).double()

    def log_density(y: Tensor) -> Tensor:  # of a prediction with mean 0.1 and deviation 0.5
        return -0.5 * ((y - 0.1) / 0.5) ** 2 - math.log(0.5 * math.sqrt(2 * math.pi))

    pair = log_density(torch.stack([mean + deviation, mean - deviation])).mean()
    nodes = torch.linspace(-8, 8, 4001).double()
    density = torch.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi)
    integral = torch.trapezoid(density * log_density(mean + deviation * nodes), nodes)
    torch.testing.assert_close(pair, integral, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_targets_of_the_posterior_stand_around_the_drawn_values(seed: int) -> None:
    plain = GpTask().training_batch(64, seeded(seed))
    batch: Batch = GpTask(draws="posterior").training_batch(64, seeded(seed))
    torch.testing.assert_close(batch.y_context, plain.y_context)
    torch.testing.assert_close(batch.x_target, plain.x_target.repeat(1, 2, 1))
    above, below = batch.y_target.chunk(2, 1)
    standard = (plain.y_target - (above + below) / 2) / ((above - below) / 2)
    # 3,072 standard normal numbers of 64 functions: means of functions have a deviation of 1 at
    # most, so that of all is within 4 / sqrt(64); their mean square is 1 within the same.
    assert abs(float(standard.mean())) < 0.5
    assert abs(float(standard.square().mean()) - 1) < 0.5


def test_pairs_of_values_are_refused_by_a_model_that_predicts_targets_jointly(
    tmp_path: Path,
) -> None:
    model = create_model("tnp-nd", {"n_layers": 1, "width": 8, "n_heads": 1})
    with pytest.raises(TrainingError, match="takes models of gaussian predictions"):
        fit(model, GpTask(draws="posterior"), FitConfig(steps=1), tmp_path)


def test_a_matern_is_rougher_than_an_rbf() -> None:
    x = torch.tensor([[[0.0], [0.1]]]).double()
    one = torch.ones(1, 1, 1).double()
    smooth, rough = (covariance(x, one, one, kernel)[0, 0, 1] for kernel in ("rbf", "matern52"))
    assert 0.9 < rough < smooth < 1
