"""The TensorRT backend over the host seam: the contract, contexts, addresses and copies."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, BundleError, EngineOptions, Stream
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.backends.tensorrt.context import GraphContext
from edgefold.runtime.bundle.manifest_file import load_manifest
from tests.contract import Contract
from tests.pairwise import leave_out
from tests.runtime.backends.host_driver import HostDriver
from tests.runtime.backends.on_the_host import KINDS, SESSIONS, assert_same, driver, opened
from tests.runtime.stream.consolidations import assert_errors_of_sums_are_kept
from tests.runtime.stream.subjects import StreamSubject, points


class TestOneStream(Contract):
    @pytest.fixture(params=KINDS)
    def subject(self, bundles: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        with opened(bundles / "tiny", driver(request.param), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestThreeStreams(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        with opened(bundles / "streams", driver(), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestNarrowPrecisions(Contract):
    @pytest.fixture(params=leave_out(["float16", "int8"], ["float16"]))
    def subject(self, bundles: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        with opened(bundles / f"tiny-{request.param}", driver(), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestWaitingPoints(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        with opened(bundles / "tiny", driver(), tmp_path / "cache", buffered=True) as stream:
            yield StreamSubject(stream)


class TestWithoutCudaGraphs(Contract):
    @pytest.fixture(params=["discrete", "integrated"])
    def subject(self, bundles: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        seam, cache = driver(request.param), tmp_path / "cache"
        with opened(bundles / "tiny", seam, cache, cuda_graphs=False) as stream:
            yield StreamSubject(stream)


@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_both_backends_give_the_same_numbers(
    tiny_bundle: Path, tmp_path: Path, kind: str, cuda_graphs: bool
) -> None:
    seam = driver(kind)
    with (
        opened(tiny_bundle, seam, tmp_path, cuda_graphs=cuda_graphs) as one,
        Stream.open(tiny_bundle) as other,
    ):
        x, y = points(one, 400)
        for stream in (one, other):
            stream.update(x[:300], y[:300])
            for row in range(300, 400):
                stream.update(x[row : row + 1], y[row : row + 1])
        assert_same(one.state(), other.state())
        np.testing.assert_array_equal(one.query(x[:3]).mean, other.query(x[:3]).mean)


def test_the_errors_of_sums_are_kept(tiny_bundle: Path, tmp_path: Path) -> None:
    with opened(tiny_bundle, driver(), tmp_path) as one, Stream.open(tiny_bundle) as cpu:
        assert_errors_of_sums_are_kept(one, cpu, tmp_path)


def test_a_gpu_that_loses_the_errors_of_sums_is_noticed(tiny_bundle: Path, tmp_path: Path) -> None:
    class Forgetful(HostDriver):
        """As if a compiler had found that (a - (a + b)) + b is nothing."""

        def _run(self, context: Any, addresses: dict[str, int], scratch: Any) -> None:
            super()._run(context, addresses, scratch)
            for tensor in context.engine.session.get_outputs():
                if tensor.name == "next_base_rest":
                    self._tensor(tensor, addresses)[...] = 0

    with (
        opened(tiny_bundle, Forgetful(SESSIONS), tmp_path) as one,
        Stream.open(tiny_bundle) as cpu,
        pytest.raises(AssertionError, match="times its bound away"),
    ):
        assert_errors_of_sums_are_kept(one, cpu, tmp_path)


def test_a_snapshot_moves_between_backends(tiny_bundle: Path, tmp_path: Path) -> None:
    with opened(tiny_bundle, driver(), tmp_path) as one, Stream.open(tiny_bundle) as other:
        x, y = points(one, 200)
        one.update(x[:150], y[:150])
        one.save(tmp_path / "state.npz")
        other.restore(tmp_path / "state.npz")
        for stream in (one, other):
            stream.update(x[150:], y[150:])
        assert_same(one.state(), other.state())


def test_the_report_tells_where_engines_came_from_and_how_they_run(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with opened(tiny_bundle, driver(), tmp_path) as stream:
        report = stream.backend_report
    assert report["name"] == "tensorrt"
    assert report["version"] == "tensorrt 10.3.0"
    assert set(report["engines"].values()) == {"built"}
    assert set(report["launched"]) == set(stream.manifest.graphs) - {"merge"}  # opened when used
    assert set(report["launched"].values()) == {"as one CUDA graph"}
    assert report["scratch_bytes"] == 4096
    assert report["waits"] == "auto"
    assert report["staged"] == "copied"
    assert "kernels" not in report


def test_the_report_tells_how_engines_were_built_and_in_which_mode(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    def report(mode: str | None) -> dict[str, Any]:
        conditions = None if mode is None else (lambda: {"power_mode": mode, "gpu_max_hz": 612e6})
        manifest = load_manifest(tiny_bundle)
        options = EngineOptions(tmp_path, conditions=conditions)
        backend = TensorRtBackend(manifest, driver(), options)
        try:
            return backend.report()
        finally:
            backend.close()

    assert report("25W")["mode"] == "built in 25W, running in 25W"
    later = report("MAXN_SUPER")
    assert later["mode"] == "built in 25W, running in MAXN_SUPER"
    assert set(later["builds"]) == set(load_manifest(tiny_bundle).graphs)
    for birth in later["builds"].values():
        assert birth["seconds"] == 1.5 and "kernels" not in birth
        assert birth["conditions"] == {"power_mode": "25W", "gpu_max_hz": 612e6}
    assert report(None)["mode"] == "built in 25W"


def test_engines_of_an_older_edgefold_are_used_and_tell_nothing(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    opened(tiny_bundle, driver(), tmp_path).close()
    for path in tmp_path.glob("*.engine"):
        words, header, plan = path.read_bytes().split(b"\n", 2)
        old = {"key": json.loads(header)["key"], "n_bytes": len(plan)}
        old["sha256"] = hashlib.sha256(plan).hexdigest()
        path.write_bytes(b"\n".join([words, json.dumps(old).encode(), plan]))
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        assert seam.n_builds == 0
        assert stream.backend_report["mode"] == ""
        assert not any(stream.backend_report["builds"].values())


def test_a_gpu_in_the_processors_memory_builds_within_a_workspace(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    manifest, board = load_manifest(tiny_bundle), driver("integrated")
    TensorRtBackend(manifest, board, EngineOptions(tmp_path / "board")).close()
    assert {options.workspace_bytes for options in board.built_with} == {256 << 20}
    card = driver()
    TensorRtBackend(manifest, card, EngineOptions(tmp_path / "card")).close()
    assert {options.workspace_bytes for options in card.built_with} == {None}


def test_a_second_open_takes_every_engine_from_the_cache(tiny_bundle: Path, tmp_path: Path) -> None:
    first, second = driver(), driver()
    with opened(tiny_bundle, first, tmp_path) as stream:
        n_graphs = len(stream.manifest.graphs)
    assert first.n_builds == n_graphs
    with opened(tiny_bundle, second, tmp_path) as stream:
        assert set(stream.backend_report["engines"].values()) == {"from the cache"}
    assert second.n_builds == 0


def test_a_damaged_engine_is_built_again(tiny_bundle: Path, tmp_path: Path) -> None:
    opened(tiny_bundle, driver(), tmp_path).close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        assert seam.n_builds == len(stream.manifest.graphs)


def test_a_step_that_cannot_be_captured_runs_kernel_by_kernel_and_says_so(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    seam = driver()
    seam.capturable = False
    with opened(tiny_bundle, seam, tmp_path) as stream, Stream.open(tiny_bundle) as other:
        assert "not permitted" in stream.backend_report["launched"]["update"]
        x, y = points(stream, 30)
        for each in (stream, other):
            each.update(x, y)
        assert_same(stream.state(), other.state())


# Contexts, addresses and copies ------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_one_launch_and_one_wait(tiny_bundle: Path, tmp_path: Path, kind: str) -> None:
    seam = driver(kind)
    with opened(tiny_bundle, seam, tmp_path) as stream:
        x, y = points(stream, 1)
        start = len(seam.calls)
        stream.update(x, y)
        assert seam.calls[start:] == ["launch", "synchronise"]
        stream.query(x)  # refreshes first
        assert seam.calls[start + 2 :] == ["launch", "synchronise"] * 2


def test_every_graph_has_one_context_and_every_capture_was_launched_once_at_open(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        assert seam.calls.count("context") == len(stream.manifest.graphs) - 1 == 6
    captures = seam.calls.count("end_capture")
    assert captures == 14 and seam.calls.count("launch") >= captures


@pytest.mark.parametrize("kind", KINDS)
def test_merge_is_captured_when_it_is_used_and_touches_no_other_state(
    tiny_bundle: Path, tmp_path: Path, kind: str
) -> None:
    """Each combination of buffers that a merge meets has a context, and none is run again."""
    seam = driver(kind)
    with opened(tiny_bundle, seam, tmp_path) as stream, Stream.open(tiny_bundle) as other:
        x, y = points(stream, 90)
        for each in (stream, other):
            each.update(x[:30], y[:30])
        other.save(tmp_path / "other.npz")
        n_before = seam.calls.count("end_capture")
        for part in range(1, 5):
            for each in (stream, other):
                each.merge(tmp_path / "other.npz", disjoint=True)
            assert_same(stream.state(), other.state())
            for each in (stream, other):
                each.update(x[:part], y[:part])
        n_captures = seam.calls.count("end_capture") - n_before
        assert 2 <= n_captures <= 4
        assert seam.calls.count("context") == 6 + n_captures


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_that_follow_their_context_get_a_context_each(
    tiny_bundle: Path, tmp_path: Path, kind: str
) -> None:
    """NVIDIA's text asks for one context for each captured graph."""
    seam = driver(kind)
    seam.graphs_follow_context = True
    with opened(tiny_bundle, seam, tmp_path) as stream:
        told = stream.backend_report["launched"]
        assert "a context of its own" in told["update"]
        assert seam.calls.count("context") > len(stream.manifest.graphs)
        assert learns_as_the_cpu(stream, tiny_bundle)


@pytest.mark.parametrize(
    ("kind", "copies", "staged"),
    [
        ("discrete", {"to_device", "to_host"}, "copied"),
        ("integrated", set(), "shared with the GPU"),
    ],
)
def test_only_a_gpu_with_its_own_memory_copies_points_and_predictions(
    tiny_bundle: Path, tmp_path: Path, kind: str, copies: set[str], staged: str
) -> None:
    seam = driver(kind)
    with opened(tiny_bundle, seam, tmp_path, cuda_graphs=False) as stream:
        assert stream.backend_report["staged"] == staged
        x, y = points(stream, 1)
        start = len(seam.calls)
        stream.update(x, y)
        stream.query(x)
        assert set(seam.calls[start:]) & {"to_device", "to_host"} == copies


def test_an_integrated_gpu_needs_no_mirrors_and_keeps_its_state_unpinned(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    seams = {kind: driver(kind) for kind in ("discrete", "integrated")}
    for seam in seams.values():
        opened(tiny_bundle, seam, tmp_path).close()
    discrete, integrated = (seams[kind].calls for kind in ("discrete", "integrated"))
    n_shared = integrated.count("device_address")
    assert n_shared > 0
    assert discrete.count("allocate") - integrated.count("allocate") == n_shared
    assert discrete.count("allocate_pinned") == integrated.count("allocate_pinned")


def test_a_context_that_keeps_its_first_addresses_does_not_pass(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam tells sides apart: else no test here would show that they are set again."""
    kept = GraphContext._set

    def only_new(context: GraphContext, addresses: dict[str, int]) -> None:
        new = {name: at for name, at in addresses.items() if name not in context._addresses}
        kept(context, new)

    monkeypatch.setattr(GraphContext, "_set", only_new)
    for cuda_graphs in (True, False):
        with opened(tiny_bundle, driver(), tmp_path, cuda_graphs=cuda_graphs) as one:
            assert not learns_as_the_cpu(one, tiny_bundle)


@pytest.mark.parametrize("cuda_graphs", [True, False])
def test_captured_graphs_keep_their_addresses_and_plain_runs_take_those_set_last(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda_graphs: bool
) -> None:
    with opened(tiny_bundle, driver(), tmp_path, cuda_graphs=cuda_graphs) as one:
        monkeypatch.setattr(GraphContext, "_set", lambda context, addresses: None)
        assert learns_as_the_cpu(one, tiny_bundle) == cuda_graphs


def learns_as_the_cpu(one: Stream, bundle: Path) -> bool:
    """Learn three points, so that the sides of the state take turns, and compare the states."""
    with Stream.open(bundle) as other:
        x, y = points(one, 3)
        for stream in (one, other):
            for row in range(3):
                stream.update(x[row : row + 1], y[row : row + 1])
        try:
            assert_same(one.state(), other.state())
        except AssertionError:
            return False
        return True


def test_nothing_is_allocated_after_open(tiny_bundle: Path, tmp_path: Path) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        start = len(seam.calls)
        x, y = points(stream, 300)
        for row in range(300):
            stream.update(x[row : row + 1], y[row : row + 1])
        stream.query(x[:3])
        assert set(seam.calls[start:]) == {"launch", "synchronise"}


@pytest.mark.long
def test_a_hundred_streams_leave_nothing_behind(tiny_bundle: Path, tmp_path: Path) -> None:
    seam = driver()
    for _ in range(100):
        with opened(tiny_bundle, seam, tmp_path) as stream:
            stream.update(*points(stream, 3))
        assert seam.live == {}


def test_an_engine_with_other_tensors_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    class Liar(HostDriver):
        def tensors(self, engine: Any) -> Any:
            return super().tensors(engine)[1:]

    seam = Liar(SESSIONS)
    with pytest.raises(BundleError, match="other inputs than its manifest"):
        opened(tiny_bundle, seam, tmp_path)
    assert seam.live == {}


# Without a GPU ----------------------------------------------------------------------------------


def test_auto_runs_on_onnxruntime_and_says_why_not_tensorrt(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        report = stream.backend_report
    assert report["name"] == "onnxruntime"
    assert "TensorRT" in report["refused"]["tensorrt"]


def test_tensorrt_by_name_is_refused_with_the_reason(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match=r"no backend opened .* tensorrt: .*TensorRT"):
        open_backend("tensorrt", load_manifest(tiny_bundle), 1, EngineOptions())


@pytest.mark.parametrize("kind", ["discrete", "integrated"])
@pytest.mark.parametrize("fresh", [0x00, 0xCD, 0xFF])
def test_no_graph_runs_on_memory_that_nobody_has_written(
    bundles: Path, tmp_path: Path, fresh: int, kind: str
) -> None:
    """Graphs run once at open; a count of 0xFF.. is -1, and reservoirs divide by it plus 1."""
    seam = driver(kind)
    seam.fresh = fresh
    run = seam._run

    def watched(context: Any, addresses: dict[str, int], scratch: Any) -> None:
        for tensor in context.engine.session.get_inputs():
            values = seam._tensor(tensor, addresses)
            assert not fresh or values.tobytes() != bytes([fresh]) * values.nbytes
        run(context, addresses, scratch)

    seam._run = watched  # type: ignore[method-assign]
    with opened(bundles / "tiny", seam, tmp_path / "cache") as stream:
        assert learns_as_the_cpu(stream, bundles / "tiny")
