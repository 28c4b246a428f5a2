from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from edgefold.runtime import files
from edgefold.runtime.errors import CheckpointError, TrainingError
from edgefold.train import checkpoints
from edgefold.train.batch import Batch
from edgefold.train.checkpoints import load_model
from edgefold.train.contract import Prediction, State, StreamingModel
from edgefold.train.models.constant_memory.cmanp import Cmanp, CmanpConfig
from edgefold.train.models.registry import accepts, create_model
from edgefold.train.tasks.gp import GpTask, covariance, draw_functions
from edgefold.train.training_loop import FitConfig, TrainingProcess, fit

CONFIG = FitConfig(steps=12, batch=2, warmup=3, log_every=2, threads=1)


def fresh() -> Cmanp:
    torch.manual_seed(0)
    return Cmanp(CmanpConfig(n_blocks=1, width=16, n_heads=2, n_latents=8, feedforward=16))


class StopsAfter(GpTask):
    """Asks the training to stop, as Ctrl-C would, while drawing a batch."""

    def __init__(self, n: int):
        super().__init__(n_context=8, n_targets=4)
        self.n = n

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        self.n -= 1
        if self.n == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().training_batch(n_tasks, generator)


def test_a_stopped_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    task = GpTask(n_context=8, n_targets=4)
    assert fit(fresh(), task, CONFIG, tmp_path / "whole")
    assert not fit(fresh(), StopsAfter(5), CONFIG, tmp_path / "cut")
    assert (tmp_path / "cut" / "resume.safetensors").exists()
    assert fit(fresh(), task, CONFIG, tmp_path / "cut", resume=True)
    whole, cut = (load_model(tmp_path / name)[0].state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert not (tmp_path / "cut" / "resume.safetensors").exists()


def test_the_settings_of_an_older_run_never_stand_beside_weights_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = GpTask(n_context=8, n_targets=4)
    assert fit(fresh(), task, CONFIG, tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, "write_config", killed)
        fit(fresh(), task, replace(CONFIG, seed=1), tmp_path)
    with pytest.raises(CheckpointError):
        load_model(tmp_path)


def test_history_after_a_kill_holds_each_step_once(tmp_path: Path) -> None:
    task = GpTask(n_context=8, n_targets=4)
    fit(fresh(), StopsAfter(5), CONFIG, tmp_path)
    with (tmp_path / "history.jsonl").open("a") as file:  # logged after the last checkpoint
        file.write(json.dumps({"step": 6, "loss": 0.0, "rate": 0.0}) + "\n")
    fit(fresh(), task, CONFIG, tmp_path, resume=True)
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "history.jsonl").read_text().splitlines()
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == CONFIG.steps


def test_a_model_without_weights_becomes_a_run_of_no_steps(tmp_path: Path) -> None:
    spec = f"{Path(__file__).parents[2]}/examples/rls.py:Rls"
    settings = {"n_inputs": 1, "forget": 0.9}
    assert fit(create_model(spec, settings), GpTask(8, 4), CONFIG, tmp_path)
    model, config = load_model(tmp_path, spec)
    assert config["training"]["steps_done"] == 0
    assert model.n_inputs == 1
    assert model.settings() == settings


def test_the_seed_decides_the_run(tmp_path: Path) -> None:
    task = GpTask(n_context=8, n_targets=4)
    weights = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(fresh(), task, replace(CONFIG, seed=seed), tmp_path / name)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_the_schedule_rises_and_ends_at_zero() -> None:
    config = FitConfig(steps=100, warmup=10, learning_rate=1.0)
    rates = [config.rate(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[10] == 1.0
    assert rates[100] == pytest.approx(0, abs=1e-9)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    fit(fresh(), GpTask(), replace(CONFIG, steps=120, batch=8, log_every=10), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.1


def test_a_run_says_what_made_it(tmp_path: Path) -> None:
    fit(fresh(), GpTask(8, 4), CONFIG, tmp_path, command="edgefold train gp")
    config = checkpoints.read_config(tmp_path)
    assert config["training"]["command"] == "edgefold train gp"
    assert config["training"]["steps_done"] == 12
    assert config["training"]["duration_s"] > 0
    assert "torch" in config["training"]["machine"]


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("data", [None, b"", b"{\x00", b"\xff" * 64])
def test_a_damaged_run_is_refused_and_the_file_named(
    tmp_path: Path, name: str, data: bytes | None
) -> None:
    fit(fresh(), GpTask(8, 4), CONFIG, tmp_path)
    (tmp_path / name).unlink() if data is None else (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_model(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    fit(fresh(), GpTask(8, 4), CONFIG, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"n_latents": 8', '"n_latents": 9'))
    with pytest.raises(CheckpointError, match="does not fit"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", None),
        ("model", {"kind": ["cmanp"]}),
        ("model", {"kind": "cmanp", "n_heads": 0}),
        ("model", {"kind": "cmanp", "width": "wide"}),
        ("task", {}),
        ("task", None),
        ("task", {"name": "series", "features": "x"}),
        ("training", []),
        (None, []),
        (None, "text"),
    ],
)
def test_a_config_that_is_wrong_is_one_error(
    tmp_path: Path, part: str | None, value: object
) -> None:
    checkpoints.write_config(tmp_path, fresh(), GpTask(8, 4).describe(), {})
    path = tmp_path / "config.json"
    config = json.loads(path.read_text()) | {part: value} if part else value
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"config\.json|the run's model|model kind"):
        load_model(tmp_path)


def test_a_checkpoint_without_its_step_is_refused(tmp_path: Path) -> None:
    fit(fresh(), StopsAfter(5), CONFIG, tmp_path)
    path = tmp_path / "resume.safetensors"
    checkpoints.save_tensors(path, checkpoints.load_tensors(path)[0], {})
    with pytest.raises(CheckpointError, match="names no step"):
        fit(fresh(), GpTask(8, 4), CONFIG, tmp_path, resume=True)


@pytest.mark.parametrize("name", ["resume.safetensors", "model.safetensors"])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
def test_tensors_whose_bytes_were_lost_are_refused(tmp_path: Path, name: str, share: float) -> None:
    fit(fresh(), StopsAfter(5), CONFIG, tmp_path)
    data = (tmp_path / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")  # behind the header, which is read otherwise
    n_kept = start + int(share * (len(data) - start))
    (tmp_path / name).write_bytes(data[:n_kept].ljust(len(data), b"\0"))
    with pytest.raises(CheckpointError, match=name):
        checkpoints.load_tensors(tmp_path / name)


def test_a_torn_line_of_history_does_not_stop_a_resume(tmp_path: Path) -> None:
    fit(fresh(), StopsAfter(5), CONFIG, tmp_path)
    path = tmp_path / "history.jsonl"
    with path.open("ab") as file:  # as a power cut leaves it
        file.write(b'{"step": 6, "lo\xff\0\0')
    fit(fresh(), GpTask(n_context=8, n_targets=4), CONFIG, tmp_path, resume=True)
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps[-1] == CONFIG.steps and steps == sorted(set(steps))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("name", ["history.jsonl", "config.json", "resume.safetensors"])
def test_a_full_disk_names_the_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        path.touch()
        raise SafetensorError("Error while serializing: No space left on device")

    def refuse(path: Path) -> None:
        raise OSError(28, "No space left on device")

    training = TrainingProcess(fresh(), GpTask(8, 4), replace(CONFIG, save_every_s=0), tmp_path, "")
    training.start()
    if name == "resume.safetensors":
        monkeypatch.setattr(checkpoints, "save_file", full)
    elif name == "config.json":
        monkeypatch.setattr(checkpoints, "save_progress", lambda *_: None)
        monkeypatch.setattr(files, "sync", refuse)
    else:
        (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises((OSError, CheckpointError), match=name.replace(".", r"\.")) as refused:
        training.run_from(0)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("*.tmp"))


# The task -------------------------------------------------------------------------------------


def test_functions_have_the_kernels_covariance() -> None:
    """Drawn functions against the closed form, at fixed hyperparameters, over many draws."""
    x = torch.tensor([[[0.0], [0.3], [1.0]]], dtype=torch.float64)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    rbf = covariance(x, 0.5 * one, 2.0 * one, "rbf")[0]
    assert rbf[0, 1].item() == pytest.approx(4 * 2.718281828 ** (-0.5 * 0.36))
    matern = covariance(x, 0.5 * one, 2.0 * one, "matern52")[0]
    r = 5**0.5 * 0.6
    assert matern[0, 1].item() == pytest.approx(4 * (1 + r + r * r / 3) * 2.718281828**-r)
    assert torch.equal(rbf, rbf.mT)


def test_draws_stay_in_range_and_follow_the_seed() -> None:
    x, y = draw_functions(200, 20, "rbf", torch.Generator().manual_seed(0))
    again, _ = draw_functions(200, 20, "rbf", torch.Generator().manual_seed(0))
    assert torch.equal(x, again)
    assert x.min() >= -2
    assert x.max() <= 2
    # Signal std is U(0.1, 1): the mean variance is 0.37, plus noise.
    assert y.var().item() == pytest.approx(0.37, abs=0.08)


def test_evaluation_sizes_follow_the_papers_protocol() -> None:
    generator = torch.Generator().manual_seed(0)
    task = GpTask()
    sizes = set()
    for _ in range(400):
        batch = task.evaluation_batch(1, "matern52", generator)
        sizes.add((batch.x_context.shape[1], batch.x_target.shape[1]))
    assert min(n for n, _ in sizes) == 3
    assert max(n for n, _ in sizes) == 46
    assert all(3 <= m <= 49 - n for n, m in sizes)


class Wide(StreamingModel):
    """Two inputs, and no constructor of its own."""

    n_inputs = 2


class Answers(StreamingModel):
    """A filter of two inputs."""

    n_inputs = 2

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        return state, {"mean": x, "std": torch.ones_like(x)}


@pytest.mark.parametrize(("model", "named"), [(Wide, r"\(2, 1\)"), (Answers, r"\(2, 1\)")])
def test_a_model_that_does_not_fit_the_task_is_refused_before_a_run_is_made(
    tmp_path: Path, model: type[StreamingModel], named: str
) -> None:
    with pytest.raises(TrainingError, match=named):
        fit(model(), GpTask(8, 4), CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_without_a_constructor_takes_no_settings_of_the_task() -> None:
    assert not accepts(f"{__name__}:Wide", "n_inputs")


class OtherBatches(GpTask):
    """Gives y with two columns, or as an array, though its n_outputs is 1."""

    as_array = False

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        batch = super().training_batch(n_tasks, generator)
        wide: Any = torch.cat([batch.y_target, batch.y_target], -1)
        return replace(batch, y_target=wide.numpy() if self.as_array else wide)


@pytest.mark.parametrize("as_array", [False, True])
def test_a_batch_that_is_not_of_the_tasks_sizes_is_refused(tmp_path: Path, as_array: bool) -> None:
    task = OtherBatches(8, 4)
    task.as_array = as_array
    with pytest.raises(TrainingError, match="OtherBatches"):
        fit(fresh(), task, CONFIG, tmp_path / "run")
