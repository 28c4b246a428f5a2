from typing import Any

import numpy as np
import pytest
import torch

from edgefold.train.evaluate_series import stream_forecasts
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
from edgefold.train.tasks.series import SeriesPrior, SeriesTask


def raw_points(n: int = 400) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
    """Features in odd units, a linear target and noise of a third of its std."""
    random = np.random.default_rng(0)
    x = 50 + 3 * random.normal(size=(n, 4))
    y = 7 + (x[:, :1] - x[:, 1:2]) + random.normal(size=(n, 1))
    description = {
        "features": {"clock": "number", "step": 1.0},
        "x_shift": x.mean(0).tolist(),
        "x_scale": x.std(0).tolist(),
        "y_shift": y.mean(0).tolist(),
        "y_scale": y.std(0).tolist(),
    }
    return x, y, description


def task_of(**prior: Any) -> SeriesTask:
    return SeriesTask(*raw_points(), SeriesPrior(**prior))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_batches_have_the_tasks_shapes_and_are_finite() -> None:
    task, generator = task_of(), seeded()
    for _ in range(20):
        batch = task.training_batch(5, generator)
        n_context = batch.x_context.shape[1]
        assert 2 <= n_context <= 400 - 100
        assert batch.x_context.shape == (5, n_context, 4)
        assert batch.y_context.shape == (5, n_context, 1)
        assert batch.x_target.shape == (5, 100, 4)
        assert batch.y_target.shape == (5, 100, 1)
        for tensor in (batch.x_context, batch.y_context, batch.x_target, batch.y_target):
            assert torch.isfinite(tensor).all()


def test_the_generator_alone_decides_a_batch() -> None:
    task = task_of()
    first, second = (task.training_batch(3, seeded(7)) for _ in range(2))
    assert torch.equal(first.x_context, second.x_context)
    assert torch.equal(first.y_target, second.y_target)
    other = task.training_batch(3, seeded(8))
    assert other.x_context.shape != first.x_context.shape or not torch.equal(
        other.x_context, first.x_context
    )


def test_real_targets_are_never_in_a_batch() -> None:
    x, y, description = raw_points()
    task = SeriesTask(x, y, description, SeriesPrior(jitter=0.0))
    real = torch.from_numpy((y[:, 0] - description["y_shift"]) / description["y_scale"]).float()
    batch = task.training_batch(8, seeded())
    drawn = torch.cat([batch.y_context, batch.y_target], 1).flatten()
    assert torch.isin(drawn, real).float().mean() < 1e-3  # chance hits of float32 alone


def test_centred_tasks_scatter_around_the_fitted_map() -> None:
    task = task_of(centred=1.0, spread=0.0, nonlinear=0.0, jitter=0.0, uneven=0.0, tails=0.0)
    assert task.weights[0] > 0.5
    assert task.weights[1] < -0.5
    assert 0.15 < task.noise_std < 0.35  # noise of std 1 under a target of std sqrt(19)
    batch = task.training_batch(64, seeded())
    error = batch.y_target[..., 0] - batch.x_target @ task.weights
    assert error.std() == pytest.approx(task.noise_std, rel=0.15)


@pytest.mark.parametrize("centred", [0.0, 1.0])
def test_targets_have_about_the_std_of_the_scaled_series(centred: float) -> None:
    task, generator = task_of(centred=centred), seeded()
    stds = [task.training_batch(16, generator).y_target.std(1).median() for _ in range(20)]
    assert 0.7 < torch.stack(stds).median() < 1.4


def test_noise_has_the_std_it_is_given_whatever_its_tails() -> None:
    plain = dict(centred=1.0, spread=0.0, nonlinear=0.0, uneven=0.0, noise_spread=0.0)
    for tails in (0.0, 1.0):
        task = task_of(tails=tails, jitter=0.0, **plain)
        errors = []
        generator = seeded()
        for _ in range(40):
            batch = task.training_batch(32, generator)
            errors.append(batch.y_target[..., 0] - batch.x_target @ task.weights)
        # The offsets of std 0.05 and, with tails, a fourth moment that is hardly finite.
        assert torch.cat(errors).std() == pytest.approx(task.noise_std, rel=0.06)


def test_the_description_holds_specification_scaling_and_prior() -> None:
    described = task_of(jitter=0.1).describe()
    assert described["name"] == "series"
    assert described["features"] == {"clock": "number", "step": 1.0}
    assert described["prior"]["jitter"] == 0.1
    assert len(described["x_shift"]) == 4


def test_wrong_shapes_and_short_series_are_refused() -> None:
    x, y, description = raw_points()
    with pytest.raises(ValueError, match="must be"):
        SeriesTask(x, y[:, 0], description)
    with pytest.raises(ValueError, match="at least 64"):
        SeriesTask(x[:20], y[:20], description)


def test_forecasts_are_made_before_the_row_is_learned() -> None:
    x, y, description = raw_points(120)
    torch.manual_seed(0)
    model = Cmanp(CmanpConfig(n_inputs=4, n_blocks=1, n_latents=4, width=16, feedforward=16)).eval()
    mean, std = stream_forecasts(model, description, x, y, 100)
    assert mean.shape == std.shape == (20, 1)
    assert (std > 0).all()
    changed = y.copy()
    changed[110:] += 1e3
    other, _ = stream_forecasts(model, description, x, changed, 100)
    np.testing.assert_array_equal(other[:11], mean[:11])
    assert not np.array_equal(other[11:], mean[11:])


def test_streamed_forecasts_equal_one_pass_over_the_context() -> None:
    x, y, description = raw_points(120)
    torch.manual_seed(1)
    model = Cmanp(CmanpConfig(n_inputs=4, n_blocks=2, n_latents=4, width=16, feedforward=16)).eval()
    mean, _ = stream_forecasts(model, description, x, y, 119)
    scaled_x = (x - description["x_shift"]) / description["x_scale"]
    scaled_y = (y - description["y_shift"]) / description["y_scale"]
    all_x, all_y = (torch.from_numpy(a).float()[None] for a in (scaled_x, scaled_y))
    with torch.inference_mode():
        whole = model(all_x[:, :119], all_y[:, :119], all_x[:, 119:])["mean"][0].double().numpy()
    expected = whole * description["y_scale"] + description["y_shift"]
    np.testing.assert_allclose(mean, expected, atol=1e-4)  # float32 sums over 119 points
