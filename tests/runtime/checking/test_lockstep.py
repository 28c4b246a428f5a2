"""Two backends side by side: a fault put into one graph's tensor is named exactly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import Stream, load_manifest
from edgefold.runtime.backends.base import BackendInfo, Contender, EngineOptions
from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.checking.golden import Golden
from edgefold.runtime.checking.lockstep import LockstepReport, run_lockstep
from edgefold.runtime.checking.tensor_differences import TensorDifference
from edgefold.runtime.errors import BackendError
from tests.runtime.backends.host_driver import HostDriver

SOUND = Contender("onnxruntime")
FAULTY = Contender("faulty")

Fault = Callable[[int, np.ndarray[Any, Any]], None]
"""Called after each run of one graph with the run's number, from 1, and one output to spoil."""


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Fault], None]:
    """Register the backend `faulty`, which spoils one output of one graph after it ran."""

    def register(graph_name: str, tensor: str, fault: Fault) -> None:
        class Faulty(OnnxRuntimeBackend):
            n_runs = 0

            def bind(self, graph: Any, placed: Any) -> Any:
                bound = super().bind(graph, placed)
                if graph.name != graph_name:
                    return bound
                output = next(t for t in graph.outputs if t.of == tensor)
                arrays = self._staged[graph.name]
                array = placed[output.name].array if output.name in placed else arrays[output.name]

                def step() -> None:
                    bound()
                    self.n_runs += 1
                    fault(self.n_runs, array)

                return step

        module: Any = SimpleNamespace(Faulty=Faulty)
        monkeypatch.setitem(sys.modules, "edgefold.runtime.backends.faulty", module)
        monkeypatch.setitem(BACKENDS, "faulty", BackendInfo("faulty", "faulty:Faulty", "cpu"))

    return register


def tensor_of(report: LockstepReport, graph: str, name: str) -> TensorDifference:
    return next(t for t in report.alone.tensors if (t.graph, t.tensor) == (graph, name))


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny", "scaled", "streams", "tiny-float16"])
def test_a_backend_agrees_with_itself_to_the_bit(bundles: Path, name: str) -> None:
    report = run_lockstep(bundles / name, SOUND, SOUND)
    assert report.passed
    manifest = load_manifest(bundles / name)
    for done in (report.alone, report.along):
        ran = [g for g in manifest.graphs.values() if g.name not in report.never_ran]
        outputs = {(g.name, t.of) for g in ran for t in g.outputs}
        assert {(t.graph, t.tensor) for t in done.tensors} == outputs
        assert all(t.largest is not None and t.largest.difference == 0 for t in done.tensors)
    golden = Golden.load(manifest)
    short = golden.x.shape[1] < manifest.consolidate_every
    assert report.never_ran == (("consolidate",) if short else ())
    assert (report.bound, report.n_points) == (golden.tolerance, golden.x.shape[1])


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("graph", "tensor", "run", "index"),
    [
        ("update", "recent_sums", 20, (0, 1, 2, 3)),
        ("update", "recent_peak", 20, (0, 1, 0, 3)),  # beside empty latents at -1e30
        ("condition", "recent_sums", 2, (0, 3, 0, 1)),
        ("consolidate", "base_sums", 1, (0, 2, 1, 0)),
        ("refresh", "values_1", 7, (0, 1, 3, 2)),
        ("query", "std", 5, (2, 0)),
        ("query_one", "mean", 5, (0, 0)),
    ],
)
def test_a_fault_in_one_graph_is_named_exactly(
    tiny_bundle: Path,
    spoil: Callable[[str, str, Fault], None],
    graph: str,
    tensor: str,
    run: int,
    index: tuple[int, ...],
) -> None:
    seen: list[tuple[float, float]] = []

    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        if n == run:
            sound = float(array[index])
            array[index] = sound + 0.1 * (1 + abs(sound))
            seen.append((sound, float(array[index])))

    spoil(graph, tensor, fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY)
    first = report.alone.first
    assert first is not None and not report.passed
    assert (first.graph, first.tensor, first.index) == (graph, tensor, index)
    assert (first.a, first.b) == seen[0]  # both are exact: the same float32 numbers
    assert first.difference > report.bound
    others = [t for t in report.alone.tensors if (t.graph, t.tensor) != (graph, tensor)]
    assert all(t.first is None for t in others)  # alone, no graph inherits the fault
    assert tensor_of(report, graph, tensor).first == first


def test_along_the_stream_a_fault_of_the_state_is_inherited(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None]
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        array *= 1.5

    spoil("update", "recent_sums", fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY)
    parted = {t.graph for t in report.along.tensors if t.first is not None}
    assert {"update", "refresh", "query_one"} <= parted
    assert {t.graph for t in report.alone.tensors if t.first is not None} == {"update"}
    assert report.along.first is not None and report.along.first.graph == "update"


def test_a_small_error_that_adds_up_parts_along_the_stream_and_not_alone(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None]
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        array *= 1 + 1e-5

    spoil("update", "recent_sums", fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY, bound=1e-4)
    assert report.alone.passed and not report.along.passed and not report.passed
    own = tensor_of(report, "update", "recent_sums").largest
    assert own is not None and 0.9e-5 < own.difference < 1.1e-5  # 1e-5 of the largest element
    assert run_lockstep(tiny_bundle, SOUND, FAULTY, bound=0.1).passed


@pytest.mark.long
def test_a_lost_compensation_is_found_though_it_is_far_below_the_bound(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None]
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        array[:] = 0

    spoil("consolidate", "base_rest", fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY)
    for done in (report.alone, report.along):
        assert done.first is None and not done.passed
        assert [t.tensor for t in done.tensors if t.rest_is_lost] == ["base_rest"]
    assert tensor_of(report, "consolidate", "base_rest").rest_ratio == 0


@pytest.mark.long
def test_rests_that_round_otherwise_are_no_fault(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None]
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        array *= -1  # the same size, another number: what another order of rounding gives

    spoil("consolidate", "base_rest", fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY)
    assert report.passed
    rest = tensor_of(report, "consolidate", "base_rest")
    assert rest.rest_ratio == pytest.approx(1) and rest.largest is not None
    assert 0 < rest.largest.difference < 1e-6  # of the sums, whose rounding error they are


@pytest.mark.one_case
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_step_that_only_one_backend_refuses_ends_the_pass_and_is_named(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None], value: float
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        if n == 9:
            array.fill(value)

    spoil("update", "finite", fault)
    report = run_lockstep(tiny_bundle, SOUND, FAULTY)
    first = report.alone.first
    assert first is not None and (first.graph, first.tensor) == ("update", "finite")
    assert (first.a, first.b) == (1, 0) and report.alone.refused is not None
    assert report.along.first is None  # the fault came in the first pass


@pytest.mark.long
def test_other_points_are_rows_of_the_recorded_stream_and_the_same_each_time(
    tiny_bundle: Path, spoil: Callable[[str, str, Fault], None]
) -> None:
    def fault(n: int, array: np.ndarray[Any, Any]) -> None:
        array *= 1 + 1e-6

    spoil("update", "recent_sums", fault)
    first, second = (run_lockstep(tiny_bundle, SOUND, FAULTY, n_points=450) for _ in range(2))
    assert first.n_points == 450 and first == second
    assert tensor_of(first, "consolidate", "base_sums").n_runs > 0
    assert len(first.alone.tensors) == len(second.along.tensors)


def test_a_backend_that_does_not_open_leaves_nothing_open(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Stream] = []
    close = Stream.close

    def noted(stream: Stream) -> None:
        closed.append(stream)
        close(stream)

    monkeypatch.setattr(Stream, "close", noted)
    with pytest.raises(BackendError):
        run_lockstep(tiny_bundle, SOUND, Contender("no such backend"))
    assert len(closed) == 1


@pytest.mark.long
def test_a_backend_whose_memory_is_on_a_device_keeps_step(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnImitation:
        """TensorRT over an imitation of CUDA, which computes with onnxruntime."""

        @classmethod
        def open(cls, info: Any, manifest: Any, threads: int, engine: Any) -> TensorRtBackend:
            return TensorRtBackend(manifest, HostDriver({}), EngineOptions(tmp_path / "cache"))

    module: Any = SimpleNamespace(OnImitation=OnImitation)
    monkeypatch.setitem(sys.modules, "edgefold.runtime.backends.imitation", module)
    info = BackendInfo("imitation", "imitation:OnImitation", "gpu")
    monkeypatch.setitem(BACKENDS, "imitation", info)
    other = Contender("imitation")
    for a, b in ((SOUND, other), (other, SOUND)):
        report = run_lockstep(tiny_bundle, a, b)
        assert report.passed and not report.never_ran
        assert tensor_of(report, "consolidate", "base_rest").rest_ratio == pytest.approx(1, rel=0.1)
