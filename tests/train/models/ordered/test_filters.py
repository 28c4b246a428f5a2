"""Filters are trained and scored like any model: forward() is the fold of step() by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.runtime.errors import TrainingError
from edgefold.runtime.predictions import Categorical
from edgefold.train.batch import Batch
from edgefold.train.contract import (
    Prediction,
    Ring,
    State,
    StreamingModel,
    advance,
    follow,
)
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.contract import Task, mean_score
from edgefold.train.training_loop import FitConfig, fit

N_CLASSES = 3
EXAMPLES = Path(__file__).parents[4] / "examples"


class Window(StreamingModel):
    """Scores of the mean of the last four tokens, which lie in a ring."""

    prediction = Categorical(N_CLASSES)
    rings = {"last": Ring(axis=1, counter="n")}  # noqa: RUF012

    def __init__(self, n_inputs: int = 2):
        super().__init__()
        self.n_inputs, self.scores = n_inputs, nn.Linear(n_inputs, N_CLASSES)

    def initial_state(self, n_streams: int = 1) -> State:
        return {
            "last": torch.zeros(n_streams, 4, self.n_inputs),
            "n": torch.zeros(n_streams, dtype=torch.int64),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        written = {"last": x[:, None], "n": state["n"] + 1}
        mean = advance(self, state, written)["last"].mean(1)
        return written, {"scores": self.scores(mean)}


class Batched(Window):
    """The same with a forward of its own, right or off by one token."""

    lag = 0

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        lead = torch.zeros(len(x_target), 4, self.n_inputs)
        if mask is None:
            mask = torch.ones(x_context.shape[:2], dtype=torch.bool)
        found = []
        for stream, seen in enumerate(mask):  # real tokens only
            x = torch.cat([lead[stream], x_context[stream][seen], x_target[stream]])
            windows = x[1 - self.lag : len(x) - self.lag].unfold(0, 4, 1)[-len(x_target[stream]) :]
            found.append(windows.mean(-1))
        return {"scores": self.scores(torch.stack(found))}


class Late(Batched):
    lag = 1


class Largest(Task):
    """Which column had the largest mean over the last four tokens."""

    name = "largest"
    n_inputs, n_outputs = 3, 1
    filters, prediction = True, "categorical"

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        x = torch.randn(n_tasks, 12, 3, generator=generator)
        y = torch.stack([x[:, i - 3 : i + 1].mean(1).argmax(-1) for i in range(8, 12)], 1)
        return Batch(x[:, :8], x.new_zeros(n_tasks, 8, 1), x[:, 8:], y[..., None].float())


@pytest.fixture
def model() -> Window:
    torch.manual_seed(0)
    return Window().eval()


def tokens(n: int, n_inputs: int = 2) -> Tensor:
    return torch.randn(3, n, n_inputs, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("n_context", [0, 7])
def test_forward_is_the_answers_of_step_at_the_targets(model: Window, n_context: int) -> None:
    x, target = tokens(n_context), tokens(5)
    state = model.initial_state(3)
    for token in torch.cat([x, target], 1).unbind(1):
        written, answer = model.step(state, token)
        state = advance(model, state, written)
    told = model(x, x[..., :1], target)["scores"]
    assert told.shape == (3, 5, N_CLASSES)
    assert torch.equal(told[:, -1], answer["scores"])


def test_a_hidden_token_changes_nothing_whatever_it_holds(model: Window) -> None:
    x, target = tokens(9), tokens(5)
    mask = torch.rand(3, 9, generator=torch.Generator().manual_seed(1)) < 0.5
    told = model(torch.where(mask[..., None], x, torch.nan), x, target, mask)["scores"]
    for stream in range(3):
        one = slice(stream, stream + 1)
        alone = model(x[one][:, mask[stream]], x[one], target[one])["scores"]
        assert torch.equal(told[one], alone)


def test_the_state_after_some_tokens_goes_on(model: Window) -> None:
    x = tokens(11)
    _, whole = follow(model, model.initial_state(3), x)
    state, first = follow(model, model.initial_state(3), x[:, :4])
    _, rest = follow(model, state, x[:, 4:])
    assert torch.equal(torch.cat([first["scores"], rest["scores"]], 1), whole["scores"])


def test_a_filter_without_a_forward_learns_and_is_scored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, task = Window(3), Largest()
    draw = lambda generator: task.training_batch(64, generator)  # noqa: E731
    before = mean_score(model, draw, 4, 1).log_likelihood
    config = FitConfig(150, 32, learning_rate=0.03, warmup=10)
    assert fit(model, task, config, tmp_path / "run")
    after = mean_score(model, draw, 4, 1).log_likelihood
    # Even odds are -1.10 nats; 150 steps bring it to -0.43.
    assert before < -1.0 and after > -0.5
    scores, text = task.evaluate(model.eval(), 4, 1, ("run", "150 steps"))
    assert scores["training_batches"]["log_likelihood"] == pytest.approx(after, abs=0.1)
    assert "nats" in text


class Learner(StreamingModel):
    """It learns, and predicts classes."""

    n_inputs, prediction = 3, Categorical(N_CLASSES)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return state

    def query(self, cache: State, x: Tensor) -> Prediction:
        return {"scores": x}


@pytest.mark.parametrize(("model", "named"), [(Learner, "step"), (Window, "n_inputs")])
def test_a_task_of_sequences_refuses_what_does_not_fit(
    model: Any, named: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=named):
        fit(model(), Largest(), FitConfig(1), tmp_path / "run")


@pytest.mark.parametrize(("made", "verdict"), [(Batched, "passed"), (Late, "FAILED")])
def test_verify_compares_a_filters_own_forward_with_its_steps(made: Any, verdict: str) -> None:
    torch.manual_seed(0)
    check = next(check for check in MODEL_CHECKS if check.name == "forward equals the fold")
    found = check.verdict(TorchSubject(made().eval()))
    assert found.verdict == verdict
    assert verdict == "passed" or "step()" in found.detail


def test_gradients_reach_every_weight_of_a_filter() -> None:
    torch.manual_seed(0)
    settings = {"width": 8, "n_inputs": 3, "n_classes": N_CLASSES}
    model = create_model(f"{EXAMPLES}/keyword_spotter.py:KeywordSpotter", settings)
    batch = Largest().training_batch(4, torch.Generator().manual_seed(0))
    torch.autograd.backward(model.loss(batch, torch.Generator()))
    sizes = [0.0 if p.grad is None else float(p.grad.abs().sum()) for p in model.parameters()]
    assert np.all(np.array(sizes) > 0)
