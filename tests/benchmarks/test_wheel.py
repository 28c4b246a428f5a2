from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import tables
from benchmarks.usage.wheel import draw
from benchmarks.usage.wheel_loop import Problem, play
from benchmarks.usage.wheel_runs import play_all, problem_of
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.tasks.wheel import WheelTask


class Remembers(StreamingModel):
    """Predicts the quadrant's arm, and counts what it learned of each arm.

    The state keeps the last y, so that a test sees what a device was told.
    """

    n_inputs, n_outputs = 2, 5

    def initial_state(self, n_streams: int = 1) -> State:
        return {"last": torch.zeros(n_streams, 5), "n": torch.zeros(n_streams, 1)}

    def update(self, state: State, x: torch.Tensor, y: torch.Tensor) -> State:
        return {"last": y, "n": state["n"] + 1}

    def query(self, cache: Cache, x: torch.Tensor) -> Prediction:
        right, upper = x[..., 0] > 0, x[..., 1] > 0
        arm = torch.where(upper, torch.where(right, 1, 2), torch.where(right, 4, 3))
        mean = (arm[..., None] == torch.arange(5)).to(x.dtype)
        last = 0 * (cache["last"].sum(-1) + cache["n"][:, 0])[:, None, None]
        return {"mean": mean + last, "std": torch.full_like(mean, 0.1)}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    folder = tmp_path_factory.mktemp("wheel") / "bundle"
    config = ExportConfig(targets=1, parity_steps=128)
    export_bundle(Remembers().eval(), WheelTask().describe(), folder, config)
    return Stream.open(folder, "onnxruntime")


def test_problems_are_repeatable_and_differ_by_seed_and_delta() -> None:
    first, again, other, wider = (
        problem_of(delta, seed, 50) for delta, seed in ((0.7, 0), (0.7, 0), (0.7, 1), (0.5, 0))
    )
    assert np.array_equal(first.rewards, again.rewards)
    assert not np.array_equal(first.x, other.x)
    assert not np.array_equal(first.x, wider.x)


def test_regret_is_what_the_best_arm_pays_more() -> None:
    rewards = np.array([[1.2, 1.0, 1.1, 0.9, 1.0], [1.2, 50.0, 1.0, 1.0, 1.0]])
    problem = Problem(np.zeros((2, 2)), rewards)
    assert problem.regret(np.array([0, 1])).tolist() == [0, 0]
    assert problem.regret(np.array([2, 0])) == pytest.approx([0.1, 48.8])
    inside, outside = (0.2 + 0.1 + 0.3 + 0.2) / 5, (48.8 + 3 * 49) / 5
    assert problem.uniform_regret() == pytest.approx(inside + outside)


def test_a_lucky_draw_inside_is_not_the_best_arm() -> None:
    problem = Problem(np.zeros((1, 2)), np.array([[1.1, 1.15, 1.0, 1.0, 1.0]]))
    assert problem.regret(np.array([0])).tolist() == [0]


def test_the_loop_acts_on_the_upper_bound_and_learns_what_came(stream: Stream) -> None:
    problem = problem_of(0.5, 0, 40)
    arms = play(stream, problem, np.random.default_rng(0))
    right, upper = problem.x[:, 0] > 0, problem.x[:, 1] > 0
    expected = np.where(upper, np.where(right, 1, 2), np.where(right, 4, 3))
    assert np.array_equal(arms, expected)
    assert stream.n_points == 40
    outside = np.hypot(*problem.x.T) >= 0.5
    assert (problem.regret(arms)[outside] == 0).all()


def test_only_the_chosen_arms_reward_is_learned(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = []
    update = stream.update

    def kept(x: FloatArray, y: FloatArray) -> None:
        learned.append(y.copy())
        update(x, y)

    monkeypatch.setattr(stream, "update", kept)
    problem = problem_of(0.5, 3, 30)
    arms = play(stream, problem, np.random.default_rng(0))
    rows = np.concatenate(learned)
    is_known = rows == problem.rewards
    assert np.array_equal(is_known.argmax(1), arms)
    assert (is_known.sum(1) == 1).all()


def test_scores_are_percent_of_the_uniform_policy(stream: Stream) -> None:
    problems = {0.5: [problem_of(0.5, seed, 60) for seed in range(2)]}
    found = play_all(stream, problems, "remembers")["0.5"]
    assert len(found["percent"]) == 2
    assert found["curve"][-1] == pytest.approx(np.mean(found["percent"]), abs=1e-3)
    # Right outside of delta, which is nearly all that the uniform policy loses.
    assert 0 < max(found["percent"]) < 3


def test_the_table_sets_runs_beside_the_papers(stream: Stream, tmp_path: Path) -> None:
    problems = {delta: [problem_of(delta, 0, 20)] for delta in (0.5, 0.7)}
    own = {
        "n_parameters": 12,
        "training": {"steps_done": 3},
        "regret": play_all(stream, problems, "remembers"),
    }
    (table,) = tables.RENDERERS["wheel"]({"n_seeds": 1, "n_steps": 20, "models": {"mine": own}})
    rows = {row[0]: row for row in table.rows}
    assert rows["mine"][1:3] == ["12", "3"]
    assert rows["CMANP, as published"][3:5] == ["", "0.93"]


def test_curves_that_lie_on_each_other_are_both_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures")
    kept: list[Any] = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, *_, **__: kept.append(figure)
    )
    one = {str(delta): {"curve_steps": [0, 10], "curve": [0, 1]} for delta in range(6)}
    draw({name: {"regret": one} for name in ("first", "second", "third")}, tmp_path / "wheel.png")
    widths = [line.get_linewidth() for line in kept[0].axes[0].lines]
    assert widths == sorted(set(widths), reverse=True)  # what is drawn later covers less
    assert kept[0].axes[0].lines[-1].get_linestyle() == "--"
