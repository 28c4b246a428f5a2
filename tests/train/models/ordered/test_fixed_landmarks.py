"""Landmarks that become fixed: those of all layers together, or layer by layer, as published."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefold.runtime.errors import ModelError
from edgefold.train.batch import Batch
from edgefold.train.checkpoints import load_model
from edgefold.train.contract import follow
from edgefold.train.layers.nystrom_attention import center_inverse
from edgefold.train.models.ordered.window_nystrom import WindowNystrom
from edgefold.train.models.registry import create_model
from edgefold.train.tasks.contract import Task
from edgefold.train.training_loop import FitConfig, fit

SMALL: dict[str, Any] = {
    **{"n_inputs": 3, "n_classes": 4, "width": 12, "n_heads": 2, "feedforward": 8, "n_layers": 3},
    **{"window": 6, "n_landmarks": 2, "landmarks": "fixed"},
}
CONFIG = FitConfig(steps=11, batch=2, warmup=1, log_every=1, learning_rate=1e-2)
MODELS = "continual-nystrom", "window-nystrom"


class Sequences(Task):
    """Random windows of random classes; asks the training to stop while it draws batch `stop`."""

    name = "windows"
    n_inputs, n_outputs = 3, 1
    filters, prediction = True, "categorical"

    def __init__(self, stop: int = 0):
        self.stop, self.sizes = stop, list[int]()

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        self.sizes.append(n_tasks)
        if len(self.sizes) == self.stop:
            os.kill(os.getpid(), signal.SIGINT)
        x = torch.randn(n_tasks, 6, 3, generator=generator)
        y = torch.randint(4, (n_tasks, 1, 1), generator=generator).float()
        return Batch(x[:, :5], x.new_zeros(n_tasks, 5, 1), x[:, 5:], y)


def small(name: str, **settings: Any) -> WindowNystrom:
    torch.manual_seed(0)
    model = create_model(name, {**SMALL, "fixing": "by-block", **settings})
    assert isinstance(model, WindowNystrom)
    return model


def draw(n: int) -> Batch:
    return Sequences().training_batch(n, torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_layers_attend_by_means_until_their_turn_comes(name: str) -> None:
    model, means = small(name), small(name, landmarks="means")
    means.load_state_dict(model.state_dict(), strict=False)
    tokens = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(1))

    def scores(of: WindowNystrom) -> torch.Tensor:
        return follow(of, of.initial_state(), tokens)[1]["scores"]

    model.n_fixed = 0
    assert torch.equal(scores(model), scores(means))
    given = []
    model.prepare(draw, torch.Generator().manual_seed(0))
    for stage in range(1, 4):
        given.append(scores(model))
        assert model.n_fixed == int(model.layers_fixed) == stage
        if stage < 3:
            before = model.landmark_keys.clone()
            model.prepare_stage(stage, draw, torch.Generator().manual_seed(stage))
            moved = [
                not torch.equal(a, b) for a, b in zip(before, model.landmark_keys, strict=True)
            ]
            assert moved == [k == stage for k in range(3)]
    assert not torch.equal(given[0], given[1]) and not torch.equal(given[1], given[2])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_without_training_in_between_the_order_changes_nothing(name: str) -> None:
    in_turn, together = small(name), small(name, fixing="together")
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    together.prepare(draw, generators[0])
    in_turn.prepare(draw, generators[1])
    for stage in (1, 2):
        in_turn.prepare_stage(stage, draw, generators[1])
    for part in ("landmark_queries", "landmark_keys", "inverses"):
        torch.testing.assert_close(getattr(in_turn, part), getattr(together, part))


def test_the_published_inverse_is_iterated() -> None:
    model = small("continual-nystrom", inverse="iterated")
    model.prepare(draw, torch.Generator().manual_seed(0))
    landmarks = model.landmark_queries[0], model.landmark_keys[0]
    assert torch.equal(model.inverses[0], center_inverse(*landmarks))


def test_a_training_goes_from_block_to_block(tmp_path: Path) -> None:
    model, task = small("continual-nystrom"), Sequences()
    assert fit(model, task, CONFIG, tmp_path)
    clustered = [n for n, size in enumerate(task.sizes) if size != CONFIG.batch]
    assert clustered == [0, 4, 9]  # before the steps 0, 3 and 7 of 11
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in lines]  # of the step that follows the logged one
    assert [rates[n] for n in (2, 6)] == [CONFIG.learning_rate] * 2  # the warm-up of a stage
    assert rates[1] < rates[0] and rates[5] < rates[4]
    assert load_model(tmp_path)[0].state_dict()["layers_fixed"] == 3


@pytest.mark.parametrize("stop", [4, 5, 7])
def test_a_training_that_was_stopped_between_blocks_resumes_to_the_same_bits(
    tmp_path: Path, stop: int
) -> None:
    """Batch 4 is the third step's, after which the second block's landmarks become fixed."""
    assert fit(small("continual-nystrom"), Sequences(), CONFIG, tmp_path / "whole")
    assert not fit(small("continual-nystrom"), Sequences(stop), CONFIG, tmp_path / "cut")
    assert fit(small("continual-nystrom"), Sequences(), CONFIG, tmp_path / "cut", resume=True)
    whole, cut = (load_model(tmp_path / name)[0].state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_a_run_that_was_stopped_between_blocks_answers_as_it_was_trained(tmp_path: Path) -> None:
    model = small("continual-nystrom")
    assert not fit(model, Sequences(stop=7), CONFIG, tmp_path)
    loaded = load_model(tmp_path)[0]
    assert isinstance(loaded, WindowNystrom) and loaded.n_fixed == 2
    tokens = torch.randn(1, 20, 3, generator=torch.Generator().manual_seed(1))
    device = loaded.for_device(1)
    with torch.no_grad():
        both = [follow(of, of.initial_state(), tokens[:, :6]) for of in (model.eval(), device)]
    answers = [predictions["scores"] for _, predictions in both]
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-5)  # float32 along three layers


def test_fewer_steps_than_blocks_fix_all_of_them(tmp_path: Path) -> None:
    model = small("window-nystrom")
    assert fit(model, Sequences(), replace(CONFIG, steps=2), tmp_path)
    assert model.n_fixed == 3


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("window-nystrom", {"inverse": "none"}, "inverse is 'none'; take one of"),
        ("window-nystrom", {"fixing": "none"}, "fixing is 'none'; take one of"),
        ("continual-nystrom", {"landmark_serves": "none"}, "landmark_serves is 'none'; take"),
        ("continual-nystrom", {"continual_block": "none"}, "continual_block is 'none'; take"),
        ("hopping-nystrom", {"n_blocks": 2}, "fixing must be together"),
    ],
)
def test_forms_that_do_not_exist_are_refused(
    name: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        small(name, **settings)
