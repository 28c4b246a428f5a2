"""Each kind of part enters by one file and one registry line; here the files lie elsewhere."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from edgefold.cli import main as cli
from edgefold.devices.host import Host
from edgefold.devices.power import probe
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream
from edgefold.runtime.backends import registry as backends
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.predictions.registry import KINDS
from edgefold.runtime.stream.memory_estimate import footprint
from edgefold.train.checkpoints import load_model
from edgefold.train.models.registry import MODELS, create_model
from edgefold.train.tasks.registry import TASKS

MODEL = """
    import torch
    from edgefold.train.contract import StreamingModel

    class Mean(StreamingModel):
        name = "mean"

        def __init__(self, n_inputs: int = 1, n_outputs: int = 1):
            super().__init__()
            self.n_inputs, self.n_outputs = n_inputs, n_outputs
            self.spread = torch.nn.Parameter(torch.zeros(n_outputs))

        def initial_state(self, n_streams=1):
            return {"total": torch.zeros(n_streams, self.n_outputs), "n": torch.zeros(n_streams, 1)}

        def update(self, state, x, y):
            return {"total": state["total"] + y, "n": state["n"] + 1}

        def query(self, cache, x):
            mean = (cache["total"] / (cache["n"] + 1))[:, None].expand(-1, x.shape[1], -1)
            return {"mean": mean, "std": torch.exp(self.spread).expand_as(mean)}
"""

FILTER = """
    import torch
    from edgefold.runtime.predictions import Categorical
    from edgefold.train.contract import StreamingModel

    class Trace(StreamingModel):
        name = "trace"

        def __init__(self, n_inputs: int = 1, n_classes: int = 2):
            super().__init__()
            self.n_inputs, self.prediction = n_inputs, Categorical(n_classes)
            self.scores = torch.nn.Linear(8 * n_inputs, n_classes)

        def initial_state(self, n_streams=1):
            return {"last": torch.zeros(n_streams, 8 * self.n_inputs)}

        def step(self, state, x):
            last = torch.cat([state["last"][:, self.n_inputs :], x], -1)
            return {"last": last}, {"scores": self.scores(last)}
"""

TASK = """
    import torch
    from edgefold.train.batch import Batch
    from edgefold.train.tasks.contract import Task

    class Levels(Task):
        name = "levels"
        training = {"steps": 3, "batch": 2, "warmup": 1}

        def training_batch(self, n_tasks, generator):
            x = torch.rand(n_tasks, 9, 1, generator=generator)
            y = torch.randn(n_tasks, 1, 1, generator=generator).expand(-1, 9, -1)
            return Batch(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])
"""

BACKEND = """
    from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend

    class CountingBackend(OnnxRuntimeBackend):
        bound = 0

        def bind(self, graph, placed):
            type(self).bound += 1
            return super().bind(graph, placed)
"""

KIND = """
    from dataclasses import dataclass
    from typing import ClassVar
    from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor

    @dataclass(frozen=True)
    class Laplace(PredictionKind):
        name: ClassVar[str] = "laplace"

        def tensors(self, n_outputs):
            median = PredictionTensor("median", (n_outputs,), "affine")
            return median, PredictionTensor("b", (n_outputs,), "scale")

        def log_likelihood(self, prediction, y, xp):
            distance = xp.abs(y - prediction["median"])
            return -(distance / prediction["b"] + xp.log(2 * prediction["b"])).sum(-1)
"""

METER = """
    class Shunt:
        name, scope = "shunt", "the whole board"
        period_s, memory_s, step_w = 0.01, 0.0, 0.001

        def __init__(self, path):
            self.path = path

        def read_w(self):
            return float(self.path.read_text())

        def close(self):
            pass
"""

COMMAND = """
    EXAMPLES = ("edgefold greet you",)

    def add_arguments(parser):
        parser.add_argument("whom")

    def run(args):
        print(f"hello {args.whom}")
        return 0
"""

SIZES = ExportConfig(chunk=8, targets=2, parity_steps=40)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a file into a folder that Python imports from, and give its module's name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return write


@pytest.fixture
def mean(place: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(MODELS, "mean", f"{place('newcomer_model', MODEL)}:Mean")
    return "mean"


def test_a_model_enters(mean: str, tmp_path: Path) -> None:
    out = tmp_path / "b"
    assert cli.main(["export", mean, "--parity-steps", "128", "--out", str(out)]) == 0
    assert check_bundle(out).passed
    with Stream.open(out) as stream:
        for y in (1.0, 2.0, 3.0):
            stream.update([[0.0]], [[y]])
        assert stream.query([[0.0]]).mean.item() == pytest.approx(6 / 4)


def test_a_task_enters(
    mean: str, place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(TASKS, "levels", f"{place('newcomer_task', TASK)}:Levels")
    run = tmp_path / "run"
    assert cli.main(["train", "levels", "--model", mean, "--out", str(run)]) == 0
    model, config = load_model(run)
    assert (config["task"]["name"], config["training"]["steps_done"]) == ("levels", 3)
    assert model.spread.abs().sum() > 0  # type: ignore[operator]
    assert cli.main(["evaluate", str(run), "--batches", "4"]) == 0


@pytest.mark.long
def test_a_filter_enters(
    place: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(MODELS, "trace", f"{place('newcomer_filter', FILTER)}:Trace")
    run, out, rows = tmp_path / "run", tmp_path / "b", tmp_path / "rows.csv"
    train = ["train", "sequences", "--model", "trace", "--steps", "40", "--warmup", "2"]
    assert main_passes(*train, "--learning-rate", "0.05", "--out", str(run))
    assert main_passes("evaluate", str(run), "--threads", "1")
    share = re.search(r"run, 40 steps +([\d.]+)", capsys.readouterr().out)
    assert share and float(share[1]) > 50  # of ten classes
    assert main_passes("export", str(run), "--parity-steps", "128", "--out", str(out))
    rows.write_text("0,3,9,12,4,0,0,0\n" * 9)
    assert main_passes("run", str(out), "--input", str(rows), "--output", str(tmp_path / "o.csv"))
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 10


def main_passes(*words: str) -> bool:
    return cli.main(list(words)) == 0


def test_a_users_own_files_train_and_export_without_a_registry_line(
    place: Any, tmp_path: Path
) -> None:
    model = f"{tmp_path}/{place('newcomer_model', MODEL)}.py:Mean"
    task = f"{tmp_path}/{place('newcomer_task', TASK)}.py:Levels"
    run, out = tmp_path / "run", tmp_path / "b"
    assert cli.main(["train", task, "--model", model, "--out", str(run)]) == 0
    export = ["export", str(run), "--parity-steps", "128", "--out", str(out)]
    assert cli.main([*export, "--model", model]) == 0
    assert check_bundle(out).passed


def test_a_run_never_chooses_code_to_load(place: Any, tmp_path: Path) -> None:
    model = f"{tmp_path}/{place('newcomer_model', MODEL)}.py:Mean"
    task = f"{tmp_path}/{place('newcomer_task', TASK)}.py:Levels"
    run = tmp_path / "run"
    assert cli.main(["train", task, "--model", model, "--out", str(run)]) == 0
    for name in ("newcomer_model", "newcomer_task"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('loaded')")
    assert cli.main(["export", str(run), "--out", str(tmp_path / "b")]) == 1
    assert not (tmp_path / "b").exists()


def test_a_backend_enters(
    tiny_bundle: Path, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("newcomer_backend", BACKEND)
    package = importlib.import_module("edgefold.runtime.backends")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    info = BackendInfo("counting", "newcomer_backend:CountingBackend", "cpu")
    monkeypatch.setitem(backends.BACKENDS, "counting", info)
    assert check_bundle(tiny_bundle, backend="counting").passed
    module = sys.modules["edgefold.runtime.backends.newcomer_backend"]
    assert module.CountingBackend.bound > 5


def test_a_backend_is_judged_by_its_facts_only(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for like in tuple(backends.BACKENDS.values()):
        monkeypatch.setitem(backends.BACKENDS, "newcomer", replace(like, name="newcomer"))
        names = (like.name, "newcomer")
        expected, footprint_ = (footprint(load_manifest(tiny_bundle), name) for name in names)
        assert footprint_ == replace(expected, backend="newcomer")
        answers = []
        for name in names:
            out = tmp_path / f"{like.name}-{name}.json"
            words = ("budget", str(tiny_bundle), "--device", "jetson-orin-nano-8gb")
            code = cli.main([*words, "--backend", name, "--json", str(out)])
            answers.append((code, out.read_text().replace("newcomer", like.name)))
        assert answers[0] == answers[1]


def test_a_prediction_kind_enters(
    mean: str, place: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = importlib.import_module(place("newcomer_kind", KIND)).Laplace
    monkeypatch.setitem(KINDS, "laplace", kind)
    model = create_model(mean)
    model.prediction = kind()
    query = type(model).query

    def renamed(cache: Any, x: Any) -> Any:
        return dict(zip(("median", "b"), query(model, cache, x).values(), strict=True))

    monkeypatch.setattr(type(model), "query", lambda self, cache, x: renamed(cache, x))
    task = {"name": "none", "y_shift": [100.0], "y_scale": [10.0]}
    export_bundle(model, task, tmp_path / "b", SIZES)
    with Stream.open(tmp_path / "b") as stream:
        prediction = stream.query([[0.5]])
        assert prediction.median.item() == pytest.approx(100.0)
        assert prediction.b.item() == pytest.approx(10.0)
        kept = stream.manifest.prediction
        at_median = kept.log_likelihood(prediction.tensors, np.array([[100.0]]), np)
        assert at_median.item() == pytest.approx(-np.log(20.0))


def test_a_meter_enters(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shunt = importlib.import_module(place("newcomer_meter", METER)).Shunt
    (tmp_path / "watts").write_text("4.5\n")
    meter = probe.Meter("shunt", probe.BOARD, lambda host: shunt(host.root / "watts"))
    monkeypatch.setattr(probe, "METERS", (*probe.METERS, meter))
    found = probe.probe_sensors(Host(root=tmp_path))
    opened = [candidate for candidate in found if candidate.sensor is not None]
    assert [candidate.kind for candidate in opened] == ["shunt"]
    assert opened[0].sensor.read_w() == 4.5  # type: ignore[union-attr]


def test_a_command_enters(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place("greet", COMMAND)
    package = importlib.import_module("edgefold.cli.commands")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    monkeypatch.setitem(cli.COMMANDS, "greet", "greet somebody")
    assert cli.main(["greet", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "greet somebody" in capsys.readouterr().out
