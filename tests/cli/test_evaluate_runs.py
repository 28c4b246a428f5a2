"""Every kind of run and bundle is scored, or refused in a line that says what to do."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("torch")

from edgefold.cli.main import main
from edgefold.runtime.bundle.manifest_file import with_checksum

MODELS = """
    import torch
    from edgefold.runtime.predictions import Quantiles
    from edgefold.train import StreamingModel

    class Mean(StreamingModel):
        def __init__(self, n_inputs: int = 1, n_outputs: int = 1):
            super().__init__()
            self.n_inputs, self.n_outputs = n_inputs, n_outputs

        def initial_state(self, n_streams=1):
            return {"sum": torch.zeros(n_streams, self.n_outputs), "n": torch.zeros(n_streams, 1)}

        def update(self, state, x, y):
            return {"sum": state["sum"] + y, "n": state["n"] + 1}

        def query(self, cache, x):
            mean = (cache["sum"] / (cache["n"] + 1))[:, None].expand(-1, x.shape[1], -1)
            return {"mean": mean, "std": torch.ones_like(mean)}

    class Bounds(Mean):
        prediction = Quantiles((0.1, 0.9))

        def query(self, cache, x):
            mean = super().query(cache, x)["mean"]
            return {"quantiles": torch.stack([mean - 1, mean + 1], -2)}

    class Breaks(Mean):
        def query(self, cache, x):
            return {}["mean"]

    class Filter(StreamingModel):
        def __init__(self, n_inputs: int = 1, n_outputs: int = 1):
            super().__init__()
            self.n_inputs = n_inputs
            self.gain = torch.nn.Parameter(torch.ones(1))

        def initial_state(self, n_streams=1):
            return {"n": torch.zeros(n_streams, 1)}

        def step(self, state, x):
            return {"n": state["n"] + 1}, self.forward(None, None, x)

        def forward(self, x_context, y_context, x_target, mask=None):
            mean = x_target[..., :1] * self.gain
            return {"mean": mean, "std": torch.ones_like(mean)}
"""

TASKS = """
    import torch
    from edgefold.train import Batch, Task

    class Plant(Task):
        n_inputs, n_outputs = 3, 2
        training = {"steps": 2, "batch": 2, "warmup": 1}

        def training_batch(self, n_tasks, generator):
            x = torch.randn(n_tasks, 12, self.n_inputs, generator=generator)
            y = x[..., :1].expand(-1, -1, self.n_outputs)
            return Batch(x[:, :8], y[:, :8], x[:, 8:], y[:, 8:])

    class Features(Plant):
        def describe(self):
            return {"name": "features", "features": {"pumps": 2}}

    class Level(Plant):
        n_inputs, n_outputs = 1, 1

    class Forgets(Level):
        @classmethod
        def from_options(cls, args, kept=None):
            return cls() if kept is None else cls(kept["size"])

    class Fails(Level):
        def evaluate(self, model, n_batches, seed, names):
            raise RuntimeError("no plant is connected")
"""

TINY = ("--set", "n_latents=4", "--set", "width=8", "--set", "n_heads=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, tasks and a series of one's own."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "models.py").write_text(dedent(MODELS))
    (folder / "tasks.py").write_text(dedent(TASKS))
    rows = [f"{i},{20 + 3 * math.sin(i / 4) + math.sin(i * i):.3f}" for i in range(160)]
    (folder / "sensor.csv").write_text("\n".join(["time,value", *rows]) + "\n")
    return folder


def train(folder: Path, task: str, model: str = "", name: str = "run") -> Path:
    """A run of two steps."""
    run = folder / f"{task}-{model}-{name}".replace("/", "").replace(".py:", "")
    words = ["train", f"{folder}/{task}" if ".py" in task else task, "--out", str(run)]
    words += ["--model", f"{folder}/{model}"] if model else [*TINY]
    words += ["--csv", str(folder / "sensor.csv")] if task == "series" else []
    if not run.exists():
        assert main([*words, "--steps", "2", "--batch", "2", "--threads", "1"]) == 0
    return run


def evaluate(run: Path, *words: object) -> int:
    return main(["evaluate", str(run), "--batches", "2", *map(str, words)])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Traceback" not in error
    return error


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("tasks.py:Plant", ""),
        ("tasks.py:Features", ""),
        ("tasks.py:Level", "models.py:Mean"),
        ("tasks.py:Level", "models.py:Filter"),
        ("series", "models.py:Mean"),
        ("gp", ""),
        ("gp", "models.py:Mean"),
    ],
)
def test_a_run_of_any_task_and_model_is_scored(
    task: str, model: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(folder, task, model)
    own = [("--task", task), ("--model", model)]
    words = [word for option, name in own if ".py" in name for word in (option, folder / name)]
    csv = ("--csv", folder / "sensor.csv") if task == "series" else ()
    capsys.readouterr()
    assert evaluate(run, *words, *csv) == 0
    out, error = capsys.readouterr()
    assert run.name in out or model.partition(":")[2] in out
    assert "Traceback" not in error


def test_classes_that_are_not_named_are_asked_for_by_the_whole_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(folder, "tasks.py:Level", "models.py:Mean", "named")
    command = f"edgefold train {folder}/tasks.py:Level --out r --model={folder}/models.py:Mean"
    config = json.loads((run / "config.json").read_text())
    config["training"]["command"] = command
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        evaluate(run)
    asked = (
        f"edgefold evaluate {run} --task {folder}/tasks.py:Level --model {folder}/models.py:Mean"
    )
    assert asked in capsys.readouterr().err
    assert evaluate(run, *asked.split()[3:]) == 0


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("task", "model", "words"),
    [
        ("series", "models.py:Filter", "a filter"),
        ("series", "models.py:Bounds", "quantiles"),
        ("tasks.py:Level", "models.py:Bounds", "evaluate() of its own"),
        ("series", "models.py:Breaks", "models.py:"),
        ("tasks.py:Level", "models.py:Breaks", "models.py:"),
        ("tasks.py:Forgets", "models.py:Mean", "tasks.py:"),
        ("tasks.py:Fails", "models.py:Mean", "no plant is connected"),
    ],
)
def test_a_run_without_a_score_says_why_in_a_line(
    task: str, model: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(folder, task, model)
    csv = ("--csv", folder / "sensor.csv")
    own = csv if task == "series" else ("--task", folder / task)
    capsys.readouterr()
    assert evaluate(run, "--model", folder / model, *own) == 1
    assert words in one_line(capsys)


KEYS = {
    "series": ["features", "x_shift", "x_scale", "y_shift", "y_scale", "n_training_rows"],
    "gp": ["n_context", "n_targets"],
}


@pytest.mark.parametrize(("task", "key"), [(task, key) for task in KEYS for key in KEYS[task]])
def test_a_description_that_lacks_a_key_names_it(
    task: str, key: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(train(folder, task), tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    del config["task"][key]
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert evaluate(run, *(["--csv", folder / "sensor.csv"] if task == "series" else [])) == 1
    assert key in one_line(capsys)


@pytest.mark.parametrize("wrong", [[1.0], "1", None, [["a"]], ["a"]])
def test_a_scaling_of_another_form_is_named(
    wrong: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(train(folder, "series"), tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["task"]["x_scale"] = wrong
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert evaluate(run, "--csv", folder / "sensor.csv") == 1
    assert "x_scale" in one_line(capsys)


def test_a_run_that_does_not_say_its_steps_is_scored(folder: Path, tmp_path: Path) -> None:
    run = shutil.copytree(train(folder, "gp"), tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["training"] = {}
    (run / "config.json").write_text(json.dumps(config))
    assert evaluate(run) == 0


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"name": "gp"}, ["edgefold evaluate RUN"]),
        ({"name": "untrained"}, ["edgefold check"]),
        ({}, ["edgefold evaluate RUN"]),
        ({"name": "mine", "features": {"pumps": 2}}, ["edgefold evaluate RUN"]),
        ({"name": "series"}, ["lacks features"]),
        ({"name": "series", "file": "a.csv", "features": True}, ["lacks features"]),
    ],
)
def test_a_bundle_without_a_series_is_refused_with_what_to_type(
    task: dict[str, Any],
    words: Sequence[str],
    bundles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = shutil.copytree(bundles / "scaled", tmp_path / "bundle")
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["task"] = task
    (bundle / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    assert evaluate(bundle) == 1
    error = one_line(capsys)
    assert all(word in error for word in words)


def test_a_filters_bundle_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = train(folder, "series", "models.py:Filter"), tmp_path / "bundle"
    words = ["--model", f"{folder}/models.py:Filter", "--parity-steps", "128"]
    assert main(["export", str(run), "--out", str(out), *words]) == 0
    capsys.readouterr()
    assert evaluate(out, "--csv", folder / "sensor.csv") == 1
    assert "a filter" in one_line(capsys)


def test_a_failing_training_names_the_line_of_the_users_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "tasks.py").read_text().replace("torch.randn(n_tasks", "torch.randn(q_tasks")
    (tmp_path / "broken.py").write_text(text)
    words = ["--model", f"{folder}/models.py:Filter", "--out", str(tmp_path / "run")]
    assert main(["train", f"{tmp_path}/broken.py:Level", *words, "--threads", "1"]) == 1
    error = capsys.readouterr().err
    assert "broken.py:" in error and "NameError" in error and "Traceback" not in error
