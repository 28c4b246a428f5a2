"""The TensorRT backend over the host seam: a failure at every call of open, step and close."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from tests.runtime.backends.on_the_host import KINDS, assert_same, driver, opened
from tests.runtime.stream.subjects import points


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("kind", "cached"),
    [("discrete", False), *((kind, True) for kind in KINDS)],  # all kinds build alike
)
def test_a_failure_at_any_call_of_open_releases_everything(
    tiny_bundle: Path, tmp_path: Path, kind: str, cached: bool
) -> None:
    for _ in range(1 + cached):
        probe = driver(kind)
        stream = opened(tiny_bundle, probe, tmp_path / "cache")
        calls = list(probe.calls)
        stream.close()
    if not cached:  # what follows the engines does not know where they came from
        calls = calls[: calls.index("scratch_bytes")]
    for index, name in enumerate(calls):
        seam = driver(kind)
        seam.fail_at = index
        cache = tmp_path / ("cache" if cached else f"cache{index}")
        begun = calls[: index + 1].count("begin_capture") > calls[:index].count("end_capture")
        tolerated = begun or name in ("is_capturable", "kernels") or (cached and name == "load")
        try:
            with opened(tiny_bundle, seam, cache) as stream:
                assert tolerated, f"call {index}, {name}, failed and nobody noticed"
                report = stream.backend_report
                told = (*report["launched"].values(), *report["engines"].values())
                assert any("injected" in words for words in (*told, report.get("kernels", "")))
                stream.update(*points(stream, 1))
        except BackendError as error:
            assert f"call {index}, {name}" in str(error)
        assert seam.live == {}, f"call {index}, {name}"


def test_an_engine_that_is_built_again_and_cannot_be_kept_is_told(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tiny_bundle, driver(), tmp_path).close()
    seam = driver()
    with opened(tiny_bundle, seam, tmp_path):
        fail_at = seam.calls.index("load")
    monkeypatch.setattr(EngineCache, "store", lambda *arguments: "the disk is full")
    seam = driver()
    seam.fail_at = fail_at
    with opened(tiny_bundle, seam, tmp_path) as stream:
        told = [words for words in stream.backend_report["engines"].values() if "again" in words]
    assert len(told) == 1 and told[0].endswith("not kept: the disk is full")


@pytest.mark.parametrize("kind", ["discrete", "integrated"])
@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize(
    "work", ["update", "consolidating", "chunk", "query", "reset", "restore", "merge"]
)
def test_a_failure_at_any_call_of_a_step_leaves_the_state_as_it_was(
    tiny_bundle: Path, tmp_path: Path, work: str, cuda_graphs: bool, kind: str
) -> None:
    seam = driver(kind)
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
            "merge": lambda: stream.merge(tmp_path / "older.npz", disjoint=True),
        }
        before, n_points = stream.state(), stream.n_points
        stream.save(tmp_path / "kept.npz")
        jobs[work]()
        after, expected = stream.state(), stream.query(x[:3]).mean.copy()
        for failing in count():
            stream.restore(tmp_path / "kept.npz")
            seam.fail_at = len(seam.calls) + failing
            try:
                jobs[work]()
            except BackendError as error:
                assert "injected" in str(error)
            else:  # it needs fewer calls: how many, depends on the addresses set before
                assert len(seam.calls) <= seam.fail_at
                seam.fail_at = None
                break
            seam.fail_at = None
            if work != "consolidating":  # which commits before the update that follows it
                assert_same(stream.state(), before)
            assert stream.n_points == n_points
            jobs[work]()
            assert_same(stream.state(), after)
            np.testing.assert_array_equal(stream.query(x[:3]).mean, expected)
        assert failing >= 2
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


@pytest.mark.one_case
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_at_any_call_of_close_releases_everything_else(
    tiny_bundle: Path, tmp_path: Path, kind: str
) -> None:
    probe = driver(kind)
    stream = opened(tiny_bundle, probe, tmp_path)
    start = len(probe.calls)
    stream.close()
    n_calls = len(probe.calls) - start
    assert n_calls > 30
    for failing in range(n_calls):
        seam = driver(kind)
        stream = opened(tiny_bundle, seam, tmp_path)
        seam.fail_at = len(seam.calls) + failing
        with pytest.raises(BackendError, match="injected"):
            stream.close()
        released = len(seam.calls) - 1
        assert len(seam.live) == (seam.calls[seam.fail_at] != "close")
        stream.close()  # idempotent, also after a failure
        assert len(seam.calls) - 1 == released
