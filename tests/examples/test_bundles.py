"""Every example as a bundle, held to the contract and to PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefold.devices.profile.paced import PacedOptions, measure_bundle
from edgefold.export.bundle import ExportConfig, ExportReport, export_bundle
from edgefold.export.checks.laws import CHECKS, FAILED, Law, answers, distance, draw
from edgefold.export.checks.model_laws import MODEL_CHECKS, TorchSubject
from edgefold.export.checks.subjects import StreamSubject
from edgefold.runtime.backends.base import Contender, EngineOptions
from edgefold.runtime.backends.tensorrt.builder import build_plan
from edgefold.runtime.backends.tensorrt.variant import find_variant
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.lockstep import run_lockstep
from edgefold.runtime.series.forecasters import LeastSquares
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream
from edgefold.train.contract import StreamingModel
from edgefold.train.models.registry import create_model
from tests.native_builds import Native, stays_with_onnxruntime

ROOT = Path(__file__).parents[2]
LINEAR = ("kalman:Kalman", "rls:Rls", "rls_information:InformationRls")
NAMES = (
    *("gru:Gru", "lstm:Lstm", "ssm:Ssm", "tcn:Tcn", "transformer:Transformer"),
    *("keyword_spotter:KeywordSpotter", *LINEAR),
)


@dataclass(frozen=True, slots=True)
class Exported:
    """An example, its bundle with two streams, and how they agree."""

    name: str
    model: StreamingModel
    bundle: Path
    report: ExportReport


@pytest.fixture(scope="module", params=NAMES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    file, _, name = request.param.partition(":")
    model = create_model(f"{ROOT}/examples/{file}.py:{name}")
    bundle = tmp_path_factory.mktemp("examples") / file
    config = ExportConfig(chunk=8, targets=4, streams=2, parity_steps=400)
    return Exported(
        request.param, model, bundle, export_bundle(model, {"name": "verify"}, bundle, config)
    )


@pytest.fixture
def of_bundle(exported: Exported) -> Iterator[StreamSubject]:
    with Stream.open(exported.bundle, backend="onnxruntime") as stream:
        yield StreamSubject(stream, exported.model.ordered, exported.model.input_range)


def failures(checks: tuple[Law, ...], subject: TorchSubject | StreamSubject) -> list[str]:
    verdicts = [check.verdict(subject, 500) for check in checks]
    return [f"{row.name}: {row.detail}" for row in verdicts if row.verdict == FAILED]


@pytest.mark.one_case
def test_an_example_keeps_the_contract_in_pytorch(exported: Exported) -> None:
    assert failures((*MODEL_CHECKS, *CHECKS), TorchSubject(exported.model)) == []


@pytest.mark.one_case
def test_an_example_keeps_the_contract_as_a_bundle(of_bundle: StreamSubject) -> None:
    assert failures(CHECKS, of_bundle) == []


@pytest.mark.one_case
def test_an_example_keeps_the_contract_as_compiled_c(exported: Exported, native: Native) -> None:
    with Stream.open(exported.bundle, "native", engine=native(exported.bundle)) as stream:
        subject = StreamSubject(stream, exported.model.ordered, exported.model.input_range)
        assert failures(CHECKS, subject) == []


@pytest.mark.slow
def test_compiled_c_stays_with_onnxruntime_over_10_000_points(
    exported: Exported, of_bundle: StreamSubject, native: Native
) -> None:
    with Stream.open(exported.bundle, "native", engine=native(exported.bundle)) as stream:
        subject = StreamSubject(stream, exported.model.ordered, exported.model.input_range)
        stays_with_onnxruntime(subject, of_bundle)


@pytest.mark.one_case
def test_the_graphs_give_pytorchs_predictions(exported: Exported) -> None:
    """1e-5 for two linear filters; the others pass float32 through some ten layers."""
    tolerance = 1e-5 if exported.name in LINEAR else 1e-4
    assert max(row.graphs_to_float32 for row in exported.report.parity) < tolerance


@pytest.mark.one_case
def test_both_streams_of_a_bundle_follow_pytorch(
    exported: Exported, of_bundle: StreamSubject
) -> None:
    """300 points are more than two rings of the transformer."""
    in_torch = TorchSubject(exported.model)
    x, y = draw(in_torch, 300)
    in_torch.reset()
    of_bundle.reset()
    for part in np.split(np.arange(300), (1, 2, 150)):
        found = answers(of_bundle, x[:, part], y[:, part])
        assert distance(found, answers(in_torch, x[:, part], y[:, part])) < 1e-5


@pytest.mark.one_case
def test_sensors_that_take_turns_follow_pytorch_each(
    exported: Exported, of_bundle: StreamSubject
) -> None:
    """A ring's position goes with its sensor: they learn unlike numbers of points."""
    in_torch, stream = TorchSubject(exported.model), of_bundle.stream
    of_bundle.reset()
    slots, runs = StateSlots(stream.manifest, 2), []
    for number in (0, 1):
        points = draw(in_torch, 60 + 30 * number, seed=number)
        in_torch.reset()
        cuts = np.array_split(np.arange(len(points[0][0])), 4)
        runs.append(
            [(points, cut, answers(in_torch, *(p[:, cut] for p in points))) for cut in cuts]
        )
    for turn in zip(*runs, strict=True):
        for number, ((x, y), cut, expected) in enumerate(turn):
            stream.put(slots, number)
            found = answers(of_bundle, x[:, cut], y[:, cut])
            assert distance(found, expected) < 1e-5
            stream.take(slots, number)
    assert slots.n_points.tolist() == [60, 90]


@pytest.mark.one_case
def test_tensorrt_rtx_builds_every_graph(exported: Exported) -> None:
    pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx (x86-64 only)")
    variant = find_variant("tensorrt_rtx")
    manifest = load_manifest(exported.bundle)
    for graph in manifest.graphs.values():
        options = EngineOptions(compute_capabilities=("8.6",))
        plan = build_plan(variant, manifest.path / graph.file, options).plan
        assert len(plan) > 10_000


@pytest.mark.long
@pytest.mark.parametrize("exported", ["rls:Rls"], indirect=True)
def test_recursive_least_squares_follows_float64_where_a_direction_falls_silent(
    exported: Exported,
) -> None:
    """P grows to 4e6 there, where the textbook's form in float32 is off by 46."""
    n, n_inputs = 10_000, exported.model.n_inputs
    random = np.random.default_rng(0)
    sources = random.normal(size=(n, n_inputs))
    sources[2000:, 0] = 0
    x = sources @ random.normal(size=(n_inputs, n_inputs)) / 3
    y = 0.1 * x @ random.normal(size=(n_inputs, 1)) + 0.3 * random.normal(size=(n, 1))
    x, y = x.astype(np.float32), y.astype(np.float32)
    baseline = LeastSquares(n_inputs)
    errors = []
    with Stream.open(exported.bundle, backend="onnxruntime") as stream:
        for row in range(n):
            points = np.stack([x[row : row + 1]] * 2), np.stack([y[row : row + 1]] * 2)
            if row % 20 == 0:
                mean, std = baseline.predict(x[row].astype(float))
                told = stream.query(points[0])
                errors.append(max(abs(told.mean[1, 0, 0] - mean), abs(told.std[1, 0, 0] - std)))
            stream.update(*points)
            baseline.update(x[row].astype(float), float(y[row, 0]))
    assert max(errors[:100]) < 1e-5
    assert max(errors) < 2e-4


@pytest.mark.one_case
def test_lockstep_runs_every_graph_of_an_example_and_finds_no_difference(
    exported: Exported,
) -> None:
    same = Contender("onnxruntime")
    report = run_lockstep(exported.bundle, same, same)
    assert report.passed
    assert {t.graph for t in report.along.tensors} == {
        *load_manifest(exported.bundle).graphs
    } - set(report.never_ran)
    assert all(t.largest is not None and t.largest.difference == 0 for t in report.along.tensors)
    roles = {t.role for t in report.alone.tensors}
    rings = [t for t in load_manifest(exported.bundle).state if t.ring is not None]
    assert ("row" in roles) == bool(rings)


@pytest.mark.one_case
def test_a_paced_profile_serves_an_example_as_the_loop_does(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefold.devices.profile.paced.SETTLE_S", 0.05)  # no governor is judged
    options = PacedOptions((200.0,), (Contender("onnxruntime"),), 0.1)
    paced = measure_bundle(str(exported.bundle), options, EngineOptions(), lambda line: None)
    is_filter = load_manifest(exported.bundle).is_filter
    assert paced["what"] == ("step" if is_filter else "row")
    assert paced["runs"][0]["latency"]["n"] > 0 and paced["refused"] == {}
