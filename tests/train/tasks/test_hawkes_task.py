"""The simulator of events, and how models are scored on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgefold.runtime.errors import DataError, TrainingError
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.events.event_scores import HeldOutEvents, score_events
from edgefold.train.tasks.events.event_task import event_model, sequences
from edgefold.train.tasks.events.hawkes import HawkesOptions, HawkesSetting, HawkesTask, simulate
from edgefold.train.training_loop import FitConfig, fit


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_simulated_gaps_are_exponential_once_their_compensator_is_the_clock() -> None:
    setting = HawkesSetting(n_marks=2, base=0.8, branching=0.6, decay=3.0, n_events=40)
    events = simulate(setting, 500, generator()).numpy()
    rates, jumps = setting.rates.numpy(), (setting.caused * setting.decay).numpy()
    excited, found = np.zeros((500, 2)), []
    hits, expected = np.zeros(2), np.zeros(2)
    for gap, mark in events.transpose(1, 2, 0):
        left = excited * np.exp(-3 * gap)[:, None]
        found.append(rates.sum() * gap + (excited - left).sum(1) / 3)
        shares = (rates + left) / (rates + left).sum(1, keepdims=True)
        expected += shares.sum(0)
        hits += np.bincount(mark.astype(int), minlength=2)
        excited = left + jumps[mark.astype(int)]
    areas = np.sort(np.concatenate(found))
    uniform = 1 - np.exp(-areas)
    n = len(areas)
    assert n == 20_000
    distance = np.abs(uniform - np.arange(1, n + 1) / n).max()
    assert distance < 1.63 / np.sqrt(n)  # Kolmogorov and Smirnov, 1 %
    assert np.abs(hits - expected).max() < 3 * np.sqrt(n) / 2  # three standard deviations


def test_events_come_in_the_long_run_at_the_rate_of_the_setting() -> None:
    setting = HawkesSetting(n_events=2000)
    gaps = simulate(setting, 20, generator())[:, 500:, 0]
    assert gaps.mean() == pytest.approx(setting.mean_gap, rel=0.05)  # four standard errors


def test_batches_repeat_with_the_generator_and_are_scaled() -> None:
    task = HawkesTask(HawkesSetting(n_events=20))
    one, other = (task.training_batch(4, generator()) for _ in range(2))
    assert torch.equal(one.x_context, other.x_context) and one.x_context.shape == (4, 20, 2)
    raw = simulate(task.setting, 4, generator())
    torch.testing.assert_close(one.x_context[..., 0], (raw[..., 0] / task.time_scale).float())


def test_evaluation_puts_the_simulator_above_a_poisson_process() -> None:
    task = HawkesTask(HawkesSetting(n_events=30))
    scores, text = task.evaluate(create_model("hawkes"), 4, 0, ("mine", "3 steps"))
    simulator, poisson = scores["the simulator"], scores["a Poisson process"]
    assert simulator["log_likelihood"] > poisson["log_likelihood"] + 0.1
    assert simulator["accuracy"] > poisson["accuracy"]
    assert simulator["gap_error"] < poisson["gap_error"]
    assert simulator["difference"] < 0
    assert scores["hawkes"]["n_events"] == 4 * 32 * 30 and "mine, 3 steps" in text


def test_scores_count_only_what_they_shall() -> None:
    model = event_model(create_model("hawkes"))
    drawn = HawkesTask(HawkesSetting(n_events=12)).training_batch(2, generator()).x_context
    events, mask = sequences([drawn[0], drawn[1, :7]])
    history = torch.zeros_like(mask)
    history[:, :4] = True
    score, sums, counts = score_events(model, [HeldOutEvents(events, mask & ~history)])
    each = [model.event_log_likelihood(part[None])[0, 4:] for part in (drawn[0], drawn[1, :7])]
    torch.testing.assert_close(sums, torch.stack([part.double().sum() for part in each]))
    assert counts.tolist() == [8, 3] and score.n_events == 11
    assert score.log_likelihood == pytest.approx(torch.cat(each).mean().item(), rel=1e-5)


def test_a_run_comes_back_with_its_setting() -> None:
    task = HawkesTask(HawkesSetting(n_marks=5, decay=7.0))
    again = HawkesTask.from_options(HawkesOptions(), task.describe())
    assert again.setting == task.setting and again.model_settings == {"n_marks": 5}


@pytest.mark.parametrize("format", ["png", "svg"])
def test_a_picture_is_drawn(format: str) -> None:
    task = HawkesTask(HawkesSetting(n_events=15))
    assert len(task.draw(create_model("poisson"), format, 0, "title")) > 1000


@pytest.mark.parametrize(
    "wrong", [{"branching": 1.0}, {"decay": 0.0}, {"base": -1}, {"n_marks": 0}, {"n_events": 1}]
)
def test_a_process_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TrainingError):
        HawkesSetting(**wrong)


def test_models_of_other_things_are_refused() -> None:
    with pytest.raises(DataError, match="EventModel"):
        HawkesTask().evaluate(create_model("cnp"), 1, 0, ("a", "b"))


@pytest.mark.long
def test_training_finds_the_simulator(tmp_path: Path) -> None:
    task = HawkesTask(HawkesSetting(n_events=50))
    torch.manual_seed(0)
    model = create_model("hawkes")
    config = FitConfig(steps=200, learning_rate=0.1, warmup=10)
    assert fit(model, task, config, tmp_path / "run")
    scores, _ = task.evaluate(model.eval(), 4, 0, ("mine", "200 steps"))
    # The last batches are noisy; on these 6,400 events the simulator itself is not the best fit.
    assert -0.01 < scores["the simulator"]["difference"] < 0.002
