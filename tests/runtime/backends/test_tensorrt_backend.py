"""The TensorRT backend over the host seam: the contract, and a failure at every call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.registry import open_backend
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.backends.tensorrt.driver import Device
from edgefold.runtime.manifest_file import load_manifest
from tests.contract import Array, Contract
from tests.runtime.host_driver import HostDriver
from tests.runtime.subjects import StreamSubject, points

SESSIONS: dict[bytes, Any] = {}
"""Shared by all drivers here: opening onnxruntime a thousand times proves nothing."""


def driver() -> HostDriver:
    return HostDriver(SESSIONS)


def opened(
    bundle: Path, seam: HostDriver, cache: Path, wait: bool = False, cuda_graphs: bool = True
) -> Stream:
    manifest = load_manifest(bundle)
    backend = TensorRtBackend(manifest, seam, EngineOptions(cache, cuda_graphs=cuda_graphs))
    try:
        return Stream(manifest, backend, backend.report(), wait)
    except BaseException:
        backend.close()
        raise


class TestOneStream(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        with opened(bundles / "tiny", driver(), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestThreeStreams(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        with opened(bundles / "streams", driver(), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestNarrowPrecisions(Contract):
    @pytest.fixture(params=["float16", "int8"])
    def subject(self, bundles: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
        with opened(bundles / f"tiny-{request.param}", driver(), tmp_path / "cache") as stream:
            yield StreamSubject(stream)


class TestWaitingPoints(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        with opened(bundles / "tiny", driver(), tmp_path / "cache", wait=True) as stream:
            yield StreamSubject(stream)


class TestWithoutCudaGraphs(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, tmp_path: Path) -> Any:
        cache = tmp_path / "cache"
        with opened(bundles / "tiny", driver(), cache, cuda_graphs=False) as stream:
            yield StreamSubject(stream)


def test_both_backends_give_the_same_numbers(tiny_bundle: Path, tmp_path: Path) -> None:
    with opened(tiny_bundle, driver(), tmp_path) as one, Stream.open(tiny_bundle) as other:
        x, y = points(one, 400)
        for stream in (one, other):
            stream.update(x[:300], y[:300])
            for row in range(300, 400):
                stream.update(x[row : row + 1], y[row : row + 1])
        assert_same(one.state(), other.state())
        np.testing.assert_array_equal(one.query(x[:3]).mean, other.query(x[:3]).mean)


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
    assert set(report["launched"]) == set(stream.manifest.graphs)
    assert set(report["launched"].values()) == {"as one CUDA graph"}
    assert report["scratch_bytes"] == 4096


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
    class Board(HostDriver):
        def device(self) -> Device:
            return replace(super().device(), is_integrated=True)

    manifest, board = load_manifest(tiny_bundle), Board(SESSIONS)
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


def test_an_update_is_one_launch_and_one_wait(tiny_bundle: Path, tmp_path: Path) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        x, y = points(stream, 1)
        start = len(seam.calls)
        stream.update(x, y)
        assert seam.calls[start:] == ["launch", "synchronise"]
        stream.query(x)  # refreshes first
        assert seam.calls[start + 2 :] == ["launch", "synchronise"] * 2


def test_nothing_is_allocated_after_open(tiny_bundle: Path, tmp_path: Path) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        start = len(seam.calls)
        x, y = points(stream, 300)
        for row in range(300):
            stream.update(x[row : row + 1], y[row : row + 1])
        stream.query(x[:3])
        assert set(seam.calls[start:]) == {"launch", "synchronise"}


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
    with pytest.raises(BackendError, match="other tensors than its manifest"):
        opened(tiny_bundle, seam, tmp_path)
    assert seam.live == {}


# A failure at every call ------------------------------------------------------------------------


def assert_same(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("cached", [False, True])
def test_a_failure_at_any_call_of_open_releases_everything(
    tiny_bundle: Path, tmp_path: Path, cached: bool
) -> None:
    probe = driver()
    stream = opened(tiny_bundle, probe, tmp_path / "cache")
    calls = list(probe.calls)
    stream.close()
    if cached:
        probe = driver()
        stream = opened(tiny_bundle, probe, tmp_path / "cache")
        calls = list(probe.calls)
        stream.close()
    for index, name in enumerate(calls):
        seam = driver()
        seam.fail_at = index
        cache = tmp_path / ("cache" if cached else f"cache{index}")
        begun = calls[: index + 1].count("begin_capture") > calls[:index].count("end_capture")
        tolerated = begun or name == "is_capturable" or (cached and name == "load")
        try:
            with opened(tiny_bundle, seam, cache) as stream:
                assert tolerated, f"call {index}, {name}, failed and nobody noticed"
                report = stream.backend_report
                told = (*report["launched"].values(), *report["engines"].values())
                assert any("injected" in words for words in told)
                stream.update(*points(stream, 1))
        except BackendError as error:
            assert f"call {index}, {name}" in str(error)
        assert seam.live == {}, f"call {index}, {name}"


@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize("work", ["update", "consolidating", "chunk", "query", "reset", "restore"])
def test_a_failure_at_any_call_of_a_step_leaves_the_state_as_it_was(
    tiny_bundle: Path, tmp_path: Path, work: str, cuda_graphs: bool
) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path, cuda_graphs=cuda_graphs) as stream:
        x, y = points(stream, 200)
        stream.update(x[:40], y[:40])
        stream.save(tmp_path / "older.npz")
        full = stream.manifest.consolidate_every if work == "consolidating" else 60
        stream.update(x[40:full], y[40:full])
        jobs: dict[str, Callable[[], Any]] = {
            "update": lambda: stream.update(x[:1], y[:1]),
            "consolidating": lambda: stream.update(x[:1], y[:1]),
            "chunk": lambda: stream.update(x[:8], y[:8]),
            "query": lambda: stream.query(x[:3]),
            "reset": stream.reset,
            "restore": lambda: stream.restore(tmp_path / "older.npz"),
        }
        before, count = stream.state(), stream.n_points
        stream.save(tmp_path / "kept.npz")
        start = len(seam.calls)
        jobs[work]()
        n_calls = len(seam.calls) - start
        after, expected = stream.state(), stream.query(x[:3]).mean.copy()
        assert n_calls >= 2
        for failing in range(n_calls):
            seam.fail_at = None
            stream.restore(tmp_path / "kept.npz")
            seam.fail_at = len(seam.calls) + failing
            with pytest.raises(BackendError, match="injected"):
                jobs[work]()
            seam.fail_at = None
            if work != "consolidating":  # which commits before the update that follows it
                assert_same(stream.state(), before)
            assert stream.n_points == count
            jobs[work]()
            assert_same(stream.state(), after)
            np.testing.assert_array_equal(stream.query(x[:3]).mean, expected)
    assert seam.live == {}


def test_a_failed_save_leaves_state_and_older_snapshot(tiny_bundle: Path, tmp_path: Path) -> None:
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path) as stream:
        stream.update(*points(stream, 30))
        stream.save(tmp_path / "state.npz")
        kept, before = (tmp_path / "state.npz").read_bytes(), stream.state()
        seam.fail_at = len(seam.calls) + 3
        with pytest.raises(BackendError, match="injected"):
            stream.save(tmp_path / "state.npz")
        assert (tmp_path / "state.npz").read_bytes() == kept
        assert_same(stream.state(), before)


def test_a_failure_at_any_call_of_close_releases_everything_else(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    probe = driver()
    stream = opened(tiny_bundle, probe, tmp_path)
    start = len(probe.calls)
    stream.close()
    n_calls = len(probe.calls) - start
    assert n_calls > 30
    for failing in range(n_calls):
        seam = driver()
        stream = opened(tiny_bundle, seam, tmp_path)
        seam.fail_at = len(seam.calls) + failing
        with pytest.raises(BackendError, match="injected"):
            stream.close()
        released = len(seam.calls) - 1
        assert len(seam.live) == (seam.calls[seam.fail_at] != "close")
        stream.close()  # idempotent, also after a failure
        assert len(seam.calls) - 1 == released


# Without a GPU ----------------------------------------------------------------------------------


def test_auto_runs_on_onnxruntime_and_says_why_not_tensorrt(tiny_bundle: Path) -> None:
    with Stream.open(tiny_bundle) as stream:
        report = stream.backend_report
    assert report["name"] == "onnxruntime"
    assert "TensorRT" in report["refused"]["tensorrt"]


def test_tensorrt_by_name_is_refused_with_the_reason(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match=r"no backend opened .* tensorrt: .*TensorRT"):
        open_backend("tensorrt", load_manifest(tiny_bundle), 1, EngineOptions())
